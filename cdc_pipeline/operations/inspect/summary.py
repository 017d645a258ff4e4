"""Count what journals hold.

Rules:
- Marks of a journal (its format, GTIDs before it, how it ends) are reported for every journal that
  is read. With a selection, all else counts only what is wanted.
- Bytes are bytes of the journal: of a transaction from its first event to its last; of a table its
  rows events, which inside compressed transactions count with their unpacked size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cdc_pipeline.binlog.chunk import Chunk, Role
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows
from cdc_pipeline.binlog.event_types import EventType, event_name
from cdc_pipeline.binlog.events import gtid, rotate
from cdc_pipeline.errors import CdcError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.operations.inspect.change_log import LogPiece, TableRows

ENDS_ROTATED: Final = "rotated"
ENDS_STOPPED: Final = "stopped"
ENDS_IN_USE: Final = "in use"
ENDS_OPEN: Final = "no end mark"

_SETS: Final = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


class LargestTransaction(FrozenModel):
    """The transaction that takes the most bytes of its journal."""

    journal: str
    offset: int
    gtid: str | None
    journal_bytes: int
    rows: int


class JournalInfo(FrozenModel):
    """One journal.

    Attributes:
        previous_gtids: the set at its head; None if it has none.
        first_gtid, last_gtid: of its wanted transactions, in the order of the log.
        ends: ENDS_...: "rotated" to `next_journal`, "stopped" by a clean shutdown, "in use" (being
            written, or its server was killed), or "no end mark" (a copy of a journal that was being
            written, or a part of one).
        packed_bytes, unpacked_bytes: of compressed transactions in it.
    """

    journal: str
    size_bytes: int
    server_version: str
    server_id: int = 0
    checksums: bool = True
    events: int
    first_time_s: int
    last_time_s: int
    previous_gtids: str | None = None
    first_gtid: str | None = None
    last_gtid: str | None = None
    transactions: int = 0
    ends: str = ENDS_OPEN
    next_journal: str | None = None
    packed_bytes: int = 0
    unpacked_bytes: int = 0


class TableChanges(FrozenModel):
    """Over all journals."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    event_bytes: int = 0


class JournalSummary(FrozenModel):
    """`error`: what ended the reading early; the counts are of what came before."""

    journals: list[JournalInfo] = Field(default_factory=list)
    transactions: int = 0
    rolled_back: int = 0
    # ended by XA PREPARE; their XA COMMIT or XA ROLLBACK is a transaction of its own
    prepared: int = 0
    abandoned: int = 0  # their journal ended before they did
    unfinished: str = ""  # journal:offset of a transaction that is open where all journals end
    statements: int = 0
    largest: LargestTransaction | None = None
    events_by_type: dict[str, int] = Field(default_factory=dict)
    tables: dict[str, TableChanges] = Field(default_factory=dict)
    error: dict[str, object] | None = None


@dataclass(slots=True)
class _Journal:
    name: str
    path: Path | None
    chunk: Chunk
    size_bytes: int = 0
    events: int = 0
    first_s: int = 0
    last_s: int = 0
    previous_gtids: str | None = None
    first_gtid: str | None = None
    last_gtid: str | None = None
    transactions: int = 0
    last_type: int = 0
    next_journal: str | None = None
    packed_bytes: int = 0
    unpacked_bytes: int = 0

    def info(self) -> JournalInfo:
        journal_format = self.chunk.journal_format
        # By number: the last event may be of an unknown, ignorable type.
        ends = {int(EventType.ROTATE): ENDS_ROTATED, int(EventType.STOP): ENDS_STOPPED}.get(
            self.last_type
        )
        return JournalInfo(
            journal=self.name,
            size_bytes=self.path.stat().st_size if self.path is not None else self.size_bytes,
            server_version=journal_format.server_version,
            server_id=journal_format.server_id,
            checksums=journal_format.checksum_bytes > 0,
            events=self.events,
            first_time_s=self.first_s,
            last_time_s=self.last_s,
            previous_gtids=self.previous_gtids,
            first_gtid=self.first_gtid,
            last_gtid=self.last_gtid,
            transactions=self.transactions,
            ends=ends or (ENDS_IN_USE if journal_format.in_use else ENDS_OPEN),
            next_journal=self.next_journal,
            packed_bytes=self.packed_bytes,
            unpacked_bytes=self.unpacked_bytes,
        )


@dataclass(slots=True)
class SummaryBuilder:
    """Collector of a summary; `everything`: no selection, so that every event counts."""

    everything: bool = True
    rolled_back: int = 0
    prepared: int = 0
    statements: int = 0
    _journals: dict[str, _Journal] = field(default_factory=dict)
    _types: Counter[int] = field(default_factory=Counter)
    _tables: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    _largest: LargestTransaction | None = None
    # of the last transaction so far
    _rows_of: dict[tuple[str, int], int] = field(default_factory=dict)

    def add_chunk(self, name: str, path: Path | None, chunk: Chunk) -> None:
        """Count marks of the journal, and all events if everything is wanted."""
        events = chunk.events
        seen = self._journals.setdefault(name, _Journal(name, path, chunk))
        seen.size_bytes = chunk.end_offset
        seen.last_type = int(events["event_type"][-1])
        for row in np.flatnonzero(
            np.isin(events["event_type"], (*_SETS, EventType.ROTATE))
        ).tolist():
            kind, offset = int(events["event_type"][row]), int(events["offset"][row])
            if kind == EventType.ROTATE:
                seen.next_journal, _ = rotate.parse(
                    bytes(chunk.body(row)), journal=chunk.journal, offset=offset
                )
            else:
                seen.previous_gtids = gtid.previous_set(
                    chunk.body(row), kind, journal=chunk.journal, offset=offset
                )
        if self.everything:
            self._count(seen, events)

    def add_piece(self, name: str, piece: LogPiece) -> None:
        """Count wanted events. Raises CdcError as the decoder, after what precedes its event."""
        try:
            tables = list(piece.decoded())
        except CdcError as error:
            earlier = piece.before(error)
            if earlier is not None:
                self.add_piece(name, earlier)
            raise
        chunk, seen = piece.chunk, self._journals[name]
        events = chunk.events[piece.events]
        if not self.everything:
            self._count(seen, events)
        begins = piece.events[(events["tx_offset"] >= 0) & (events["tx_ordinal"] == 0)]
        undecided = np.count_nonzero(np.isin(events["role"], (Role.ROLLBACK, Role.XA_PREPARE)))
        seen.transactions += len(begins) - int(undecided)
        self.rolled_back += int(np.count_nonzero(events["role"] == Role.ROLLBACK))
        self.prepared += int(np.count_nonzero(events["role"] == Role.XA_PREPARE))
        self.statements += int(np.count_nonzero(events["role"] == Role.STATEMENT))
        if len(begins):
            gtids = piece.gtids_of(begins)
            with_gtid = np.flatnonzero(gtids.key >= 0)
            if len(with_gtid):
                seen.first_gtid = seen.first_gtid or gtids.text(int(with_gtid[0]))
                seen.last_gtid = gtids.text(int(with_gtid[-1]))
        self._add_transactions(name, piece, self._add_tables(piece, tables))

    def summary(
        self, *, abandoned: int, unfinished: str, error: dict[str, object] | None
    ) -> JournalSummary:
        journals = [seen.info() for seen in self._journals.values()]
        return JournalSummary(
            journals=journals,
            transactions=sum(info.transactions for info in journals),
            rolled_back=self.rolled_back,
            prepared=self.prepared,
            abandoned=abandoned,
            unfinished=unfinished,
            statements=self.statements,
            largest=self._largest,
            events_by_type={
                event_name(number): count for number, count in sorted(self._types.items()) if count
            },
            tables={
                name: TableChanges(
                    inserts=int(ops[INSERT]),
                    updates=int(ops[UPDATE]),
                    deletes=int(ops[DELETE]),
                    event_bytes=int(ops[0]),
                )
                for name, ops in sorted(self._tables.items())
            },
            error=error,
        )

    def _count(self, seen: _Journal, events: np.ndarray) -> None:
        if not len(events):
            return
        seen.events += len(events)
        seen.first_s = seen.first_s or int(events["timestamp_s"][0])
        seen.last_s = int(events["timestamp_s"][-1])
        self._types.update(dict(enumerate(np.bincount(events["event_type"]).tolist())))
        lengths = events["event_length"].astype(np.int64)
        taken = events["next_offset"] - events["offset"]
        inside = events["parent"] >= 0
        # A payload event is the packed form of the events inside it; MariaDB rewrites events in
        # their place.
        payload = events["event_type"] == EventType.TRANSACTION_PAYLOAD
        rewritten = ~inside & ~payload & (lengths != taken)
        seen.packed_bytes += int(taken[payload | rewritten].sum())
        seen.unpacked_bytes += int(lengths[inside | rewritten].sum())

    def _add_tables(
        self, piece: LogPiece, tables: list[tuple[TableRows, DecodedRows]]
    ) -> NDArray[np.int64]:
        events = piece.chunk.events
        offsets = [np.empty(0, np.int64)]
        for table, rows in tables:
            name = rows.schema.full_name
            counts = np.bincount(rows.op, minlength=4)
            counts[0] = int(events["event_length"][table.rows].sum(dtype=np.int64))
            self._tables[name] = self._tables.get(name, np.zeros(4, np.int64)) + counts
            offsets.append(events["tx_offset"][table.rows][rows.event_row])
        return np.concatenate(offsets)

    def _add_transactions(self, name: str, piece: LogPiece, row_offsets: NDArray[np.int64]) -> None:
        events = piece.chunk.events[piece.events]
        events = events[events["tx_offset"] >= 0]
        if not len(events):
            return
        offsets, counts = np.unique(row_offsets, return_counts=True)

        def rows_of(offset: int) -> int:
            at = int(np.searchsorted(offsets, offset))
            return int(counts[at]) if at < len(offsets) and offsets[at] == offset else 0

        lasts = np.append(np.flatnonzero(np.diff(events["tx_offset"])), len(events) - 1)
        sizes = events["next_offset"][lasts] - events["tx_offset"][lasts]
        best = int(sizes.argmax())
        offset, size = int(events["tx_offset"][lasts[best]]), int(sizes[best])
        final = int(events["tx_offset"][-1])
        first = int(events["tx_offset"][0])
        carried = {first: self._rows_of.get((name, first), 0)}
        if self._largest is None or size > self._largest.journal_bytes:
            at = piece.events[
                np.flatnonzero(piece.chunk.events["tx_offset"][piece.events] == offset)[:1]
            ]
            self._largest = LargestTransaction(
                journal=name,
                offset=offset,
                gtid=piece.gtids_of(at).text(0),
                journal_bytes=size,
                rows=carried.get(offset, 0) + rows_of(offset),
            )
        elif (self._largest.journal, self._largest.offset) == (name, first):
            self._largest = self._largest.model_copy(
                update={"rows": carried[first] + rows_of(first)}
            )
        self._rows_of = {(name, final): carried.get(final, 0) + rows_of(final)}
