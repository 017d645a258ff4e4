"""Count what journals hold.

Rules:
- Marks of a journal (its format, GTIDs before it, how it ends) are reported for every journal that
  is read. With a selection, all else counts only what is wanted.
- Bytes are bytes of the journal: of a transaction from its first event to its last; of a table its
  rows events, which inside compressed transactions count with their unpacked size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, Role
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE
from cdc_pipeline.binlog.event_types import SET_TYPES, EventType, event_name
from cdc_pipeline.binlog.events import gtid, rotate
from cdc_pipeline.operations.inspect.change_log import Changes, LogPiece
from cdc_pipeline.operations.inspect.inputs import STDIN, FileChunk, shown_name

# By number: the last event may be of an unknown, ignorable type.
_ENDS: Final = {int(EventType.ROTATE): "rotated", int(EventType.STOP): "stopped"}


@dataclass(slots=True)
class LargestTransaction:
    journal: str
    offset: int
    gtid: str | None
    journal_bytes: int
    rows: int


@dataclass(slots=True, kw_only=True)
class JournalInfo:
    """One journal. `previous_gtids`: the set at its head, None if it has none; `first_gtid`,
    `last_gtid`: of its wanted transactions, in the order of the log; `ends`: "rotated" to
    `next_journal`, "stopped" by a clean shutdown, "in use" (being written, or its server was
    killed), or "no end mark" (a copy of a journal that was being written, or a part of one);
    `packed_bytes`, `unpacked_bytes`: of compressed transactions in it.
    """

    journal: str
    size_bytes: int = 0
    server_version: str
    server_id: int = 0
    checksums: bool = True
    events: int = 0
    first_time_s: int = 0
    last_time_s: int = 0
    previous_gtids: str | None = None
    first_gtid: str | None = None
    last_gtid: str | None = None
    transactions: int = 0
    ends: str = ""
    next_journal: str | None = None
    packed_bytes: int = 0
    unpacked_bytes: int = 0


@dataclass(slots=True)
class TableChanges:
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    event_bytes: int = 0


@dataclass(slots=True)
class JournalSummary:
    """`error`: what ended the reading early; the counts are of what came before."""

    journals: list[JournalInfo] = field(default_factory=list)
    transactions: int = 0
    rolled_back: int = 0
    # ended by XA PREPARE; their XA COMMIT or XA ROLLBACK is a transaction of its own
    prepared: int = 0
    abandoned: int = 0  # their journal ended before they did
    unfinished: str = ""  # journal:offset of a transaction that is open where all journals end
    statements: int = 0
    largest: LargestTransaction | None = None
    events_by_type: dict[str, int] = field(default_factory=dict)
    tables: dict[str, TableChanges] = field(default_factory=dict)
    error: dict[str, object] | None = None


class SummaryBuilder:
    """Whole after `finish`; `everything`: no selection, so that every event counts."""

    def __init__(self, *, everything: bool = True) -> None:
        self.summary = JournalSummary()
        self._everything = everything
        self._journals: dict[str, JournalInfo] = {}
        self._types: Counter[int] = Counter()
        self._rows_of: dict[tuple[str, int], int] = {}  # of the last transaction so far

    def seen(self, chunks: Iterable[FileChunk]) -> Iterator[FileChunk]:
        """Chunks passed on, with their journals' marks counted; all events, if all are wanted."""
        for file, chunk in chunks:
            info = self._info(chunk)
            events, journal_format = chunk.events, chunk.journal_format
            info.size_bytes = chunk.end_offset if file == STDIN else file.stat().st_size
            last_type = int(events["event_type"][-1])
            unended = "in use" if journal_format.in_use else "no end mark"
            info.ends = _ENDS.get(last_type, unended)
            marks = np.isin(events["event_type"], (*SET_TYPES, EventType.ROTATE))
            for row in np.flatnonzero(marks).tolist():
                kind, offset = int(events["event_type"][row]), int(events["offset"][row])
                body = bytes(chunk.body(row))
                if kind == EventType.ROTATE:
                    info.next_journal, _ = rotate.parse(body, journal=chunk.journal, offset=offset)
                else:
                    info.previous_gtids = gtid.previous_set(
                        body, kind, journal=chunk.journal, offset=offset
                    )
            if self._everything:
                self._count(info, events)
            yield file, chunk

    def add_piece(self, piece: LogPiece, changes: Changes) -> None:
        info, summary = self._info(piece.chunk), self.summary
        events = piece.chunk.events[piece.events]
        if not self._everything:
            self._count(info, events)
        begins = piece.events[(events["tx_offset"] >= 0) & (events["tx_ordinal"] == 0)]
        rolled_back, prepared, statements = (
            int(np.count_nonzero(events["role"] == role))
            for role in (Role.ROLLBACK, Role.XA_PREPARE, Role.STATEMENT)
        )
        ended = len(begins) - rolled_back - prepared
        info.transactions += ended
        summary.transactions += ended
        summary.rolled_back += rolled_back
        summary.prepared += prepared
        summary.statements += statements
        gtids = piece.gtids_of(begins)
        with_gtid = np.flatnonzero(gtids.key >= 0)
        if len(with_gtid):
            info.first_gtid = info.first_gtid or gtids.text(int(with_gtid[0]))
            info.last_gtid = gtids.text(int(with_gtid[-1]))
        self._add_tables(piece, changes)
        self._add_transactions(piece, changes)

    def finish(self) -> JournalSummary:
        summary = self.summary
        summary.tables = dict(sorted(summary.tables.items()))
        summary.events_by_type = {
            event_name(number): count for number, count in sorted(self._types.items()) if count
        }
        return summary

    def _info(self, chunk: Chunk) -> JournalInfo:
        name, journal_format = shown_name(chunk.journal), chunk.journal_format
        info = self._journals.get(name)
        if info is None:
            info = self._journals[name] = JournalInfo(
                journal=name,
                server_version=journal_format.server_version,
                server_id=journal_format.server_id,
                checksums=journal_format.checksum_bytes > 0,
            )
            self.summary.journals.append(info)
        return info

    def _count(self, info: JournalInfo, events: np.ndarray) -> None:
        if not len(events):
            return
        info.events += len(events)
        info.first_time_s = info.first_time_s or int(events["timestamp_s"][0])
        info.last_time_s = int(events["timestamp_s"][-1])
        self._types.update(dict(enumerate(np.bincount(events["event_type"]).tolist())))
        lengths = events["event_length"].astype(np.int64)
        taken = events["next_offset"] - events["offset"]
        inside = events["parent"] >= 0
        # A payload event is the packed form of the events inside it; MariaDB rewrites events in
        # their place.
        payload = events["event_type"] == EventType.TRANSACTION_PAYLOAD
        rewritten = ~inside & ~payload & (lengths != taken)
        info.packed_bytes += int(taken[payload | rewritten].sum())
        info.unpacked_bytes += int(lengths[inside | rewritten].sum())

    def _add_tables(self, piece: LogPiece, changes: Changes) -> None:
        tables = self.summary.tables
        for table_rows, rows in changes:
            table = tables.setdefault(rows.schema.full_name, TableChanges())
            counts = np.bincount(rows.op, minlength=4).tolist()
            table.inserts += counts[INSERT]
            table.updates += counts[UPDATE]
            table.deletes += counts[DELETE]
            table.event_bytes += int(
                piece.chunk.events["event_length"][table_rows].sum(dtype=np.int64)
            )

    def _add_transactions(self, piece: LogPiece, changes: Changes) -> None:
        all_offsets, journal = piece.chunk.events["tx_offset"], shown_name(piece.chunk.journal)
        inside = piece.events[all_offsets[piece.events] >= 0]
        if not len(inside):
            return
        offsets = all_offsets[inside]
        row_offsets = np.concatenate(
            [offsets[:0], *(all_offsets[at][rows.event_row] for at, rows in changes)]
        )

        def rows_of(offset: int) -> int:
            earlier = self._rows_of.get((journal, offset), 0)
            return earlier + int(np.count_nonzero(row_offsets == offset))

        lasts = np.append(np.flatnonzero(np.diff(offsets)), len(offsets) - 1)
        sizes = piece.chunk.events["next_offset"][inside[lasts]] - offsets[lasts]
        best = lasts[sizes.argmax()]
        first, offset, final = int(offsets[0]), int(offsets[best]), int(offsets[-1])
        largest = self.summary.largest
        if largest is None or sizes.max() > largest.journal_bytes:
            self.summary.largest = LargestTransaction(
                journal=journal,
                offset=offset,
                gtid=piece.gtids_of(inside[[best]]).text(0),
                journal_bytes=int(sizes.max()),
                rows=rows_of(offset),
            )
        elif (largest.journal, largest.offset) == (journal, first):
            largest.rows = rows_of(first)
        self._rows_of = {(journal, final): rows_of(final)}
