"""The unit of data flow: raw bytes, and one row of plain numbers per event.

Rules:
- A chunk belongs to one journal. Its events are in journal order, whole, and checksum-verified. It
  has no artificial events of a dump (rotate and format description with position 0, heartbeats):
  reading the same journal live and from an archive yields the same rows.
- The structured array is filled in two compiled passes: *framing* writes the header fields, the
  *transaction pass* (`cdc_pipeline.binlog.transactions.grouping`) writes `role`, `tx_offset`,
  `tx_ordinal` and `commit_ts_us`.
- Compressed events are unpacked right after framing. The events inside a payload (MySQL) follow
  their payload event: `parent` is its row. `offset` and `next_offset` are those of the payload
  event, so that both never decrease and a capture never stops inside a payload. They have no
  checksum and count in `tx_ordinal` like all others. A payload event keeps only its header and
  fields. Compressed events of MariaDB are rewritten to plain ones (parent -1).
- `event_length` is the event's size in `data`; the sum is the memory of a slice, which rings count.
  The journal bytes are ``next_offset - offset`` of the events without a parent
  (`EventSlice.journal_bytes`).
- Nothing downstream makes one Python object per event: it passes slices of the array on, with a
  reference to the bytes.

Source: event header of the MySQL binlog format, version 4 (MySQL internals, "Binlog Event Header").
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.event_types import EventType

EVENT_DTYPE: Final = np.dtype(
    [
        ("start", "<i8"),  # index in Chunk.data of the event's first header byte
        ("offset", "<i8"),  # byte offset of the event in its journal
        # Offset of the next event of the journal; inside a payload: that of the payload event.
        ("next_offset", "<i8"),
        # Offset of the first event (GTID or BEGIN) of the event's transaction; -1 outside one.
        ("tx_offset", "<i8"),
        (
            "commit_ts_us",
            "<i8",
        ),  # commit time of the transaction at the source, microseconds since 1970 UTC; -1 unknown
        ("table_id", "<i8"),  # of table maps and rows events; -1 for all others
        ("timestamp_s", "<u4"),  # header timestamp
        ("server_id", "<u4"),
        ("event_length", "<u4"),  # header + body + checksum, in Chunk.data (uncompressed)
        ("tx_ordinal", "<i4"),  # 0, 1, 2 ... within the transaction
        ("parent", "<i4"),  # row index of the payload event this one was unpacked from; -1 for none
        ("flags", "<u2"),
        ("event_type", "u1"),
        ("role", "u1"),  # a Role
    ],
    align=True,
)


class Role(IntEnum):
    """What an event means for transactions (SPEC T1, S7). Written by the transaction pass."""

    OTHER = 0  # known and harmless: rows query, annotate, previous GTIDs ...
    TRANSACTIONBEGIN = 1  # the GTID event, or BEGIN if there is none
    ROWDATA = 2  # table maps and rows events
    # XID, the query COMMIT; MariaDB's START ALTER and ROLLBACK ALTER, which change nothing.
    TRANSACTIONEND = 3
    ROLLBACK = 4  # the query ROLLBACK that ends a group: its rows never count
    # Any other query, classified by its text: DDL, statement-format DML (LOAD too), SAVEPOINT, XA
    # COMMIT ...
    STATEMENT = 5
    HEARTBEAT = 6
    JOURNAL = 7  # events about the journal itself: format description, rotate, stop, lists of GTIDs
    XA_PREPARE = 8  # ends a group without committing it: its rows are parked until XA COMMIT (K8)


@dataclass(frozen=True, slots=True)
class JournalFormat:
    """The content of a journal's format description event.

    Attributes:
        binlog_version: 4 for every server since MySQL 5.0.
        server_version: version text, such as ``9.7.4`` or ``10.11.19-MariaDB-log``.
        is_mariadb: decides the meaning of event types above 42 and the transaction rules.
        created_s: header timestamp of the format description event; distinguishes a renumbered
            journal from its namesake.
        server_id: server id in the header of the format description event.
        checksum_bytes: 4 if each event ends with a CRC32, else 0.
        post_header_lengths: uint8 array; entry ``t - 1`` is the post-header length of event type
            ``t``.
        in_use: flag 0x1 of the event: the journal is being written, or its server was killed.
    """

    binlog_version: int
    server_version: str
    is_mariadb: bool
    created_s: int
    server_id: int
    checksum_bytes: int
    post_header_lengths: tuple[int, ...]
    in_use: bool

    @property
    def query_post_header_bytes(self) -> int:
        lengths = self.post_header_lengths
        return lengths[EventType.QUERY - 1] if len(lengths) >= EventType.QUERY else 13

    @property
    def table_id_bytes(self) -> int:
        """The size of a table id: 6 bytes, or 4 in journals from before MySQL 5.1.4."""
        lengths = self.post_header_lengths[EventType.TABLE_MAP - 1 :]
        return 4 if lengths and lengths[0] == 6 else 6


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of whole events of one journal.

    Attributes:
        journal: journal name, such as ``binlog.000003``.
        journal_format: format of the journal.
        data: uint8 array with the events' bytes; each event is contiguous in it.
        events: array of EVENT_DTYPE, one row per event.
        end_offset: journal offset up to which the source has been read after this chunk (events
            that a server skips in GTID mode count as read).
    """

    journal: str
    journal_format: JournalFormat
    data: NDArray[np.uint8]
    events: np.ndarray  # dtype EVENT_DTYPE
    end_offset: int

    def body(self, row: int) -> memoryview:
        """The bytes of event `row` between its 19-byte header and its checksum."""
        event = self.events[row]
        first = int(event["start"]) + 19
        # Events inside a payload have no checksum.
        tail = self.journal_format.checksum_bytes if event["parent"] < 0 else 0
        last = int(event["start"]) + int(event["event_length"]) - tail
        return memoryview(self.data)[first:last]  # type: ignore[arg-type]


class SliceKind(IntEnum):
    """The content of a slice that leaves the transaction buffer."""

    TRANSACTIONS = 0  # one or more whole transactions, or journal events between them
    # One transaction that is a captured-relevant statement (DDL): GTID event and query.
    STATEMENT = 1
    OPEN_PIECE = 2  # a piece of a transaction that continues in a later slice
    LAST_PIECE = 3  # the last piece of a transaction that began in an earlier slice
    ABANDONED = (
        # One event of the journal: the transaction of the open pieces before it never ended and is
        # dropped.
        4
    )


Chunks = Generator[Chunk, None, None]  # closing them ends the dump


@dataclass(frozen=True, slots=True)
class EventSlice:
    """Consecutive events of one chunk: the entry of the ring store, with one sequence per event.

    Attributes:
        chunk: the chunk whose bytes the events refer to.
        first: first row in `chunk.events`.
        stop: row after the last.
        kind: see SliceKind.
        sql: text of the statement if `kind` is STATEMENT, else "".
        database: default database of that statement, else "".
        source: identity of the source (SPEC S14), such as ``mysql:3f0c...`` ; constant for one run.
        event_bytes: memory of the events: the sum of their lengths.
    """

    chunk: Chunk
    first: int
    stop: int
    kind: SliceKind = SliceKind.TRANSACTIONS
    sql: str = ""
    database: str = ""
    source: str = ""
    event_bytes: int = field(default=-1)

    def __post_init__(self) -> None:
        if self.event_bytes < 0:
            total = int(self.events["event_length"].sum(dtype=np.int64))
            object.__setattr__(self, "event_bytes", total)

    @property
    def events(self) -> np.ndarray:
        return self.chunk.events[self.first : self.stop]

    @property
    def event_count(self) -> int:
        return self.stop - self.first

    @property
    def rolled_back_offsets(self) -> NDArray[np.int64]:
        """`tx_offset` of the transactions that end with ROLLBACK."""
        events = self.events
        offsets: NDArray[np.int64] = events["tx_offset"][events["role"] == Role.ROLLBACK]
        return offsets

    @property
    def journal_bytes(self) -> int:
        """The size of the slice's events in the journal;
        those inside a payload count with the payload event.
        """
        events = self.events
        own = events["next_offset"] - events["offset"]
        return int(own[events["parent"] < 0].sum())

    @property
    def is_isolated(self) -> bool:
        """Whether this is a statement that must be alone in its batch (SPEC S7)."""
        return self.kind is SliceKind.STATEMENT

    def joined(self, following: EventSlice) -> EventSlice:
        """This slice with the one that follows it in the same chunk, of the same kind."""
        assert following.chunk is self.chunk
        assert following.first == self.stop
        event_bytes = self.event_bytes + following.event_bytes
        return replace(self, stop=following.stop, event_bytes=event_bytes)

    def part(self, first: int, stop: int) -> EventSlice:
        """Return rows [first, stop) of this slice, counted from its first row.
        A split statement stays one.
        """
        return EventSlice(
            chunk=self.chunk,
            first=self.first + first,
            stop=self.first + stop,
            kind=self.kind,
            sql=self.sql,
            database=self.database,
            source=self.source,
        )
