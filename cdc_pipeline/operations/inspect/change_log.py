"""Turn chunks into changes and statements of ended transactions, in the log's order.

Rules:
- Events pass the transaction buffer. It holds the pieces of an open transaction, up to
  `HELD_BYTES_MAX`, until its end is known: rows of a transaction that is rolled back, or never
  ended, are not shown, and are counted.
- A larger transaction is shown before its end is known. If it is rolled back after all, its
  ROLLBACK is shown too (as a statement), and `shown_too_early` counts it.
- Effects of much later events are not known here: rows of prepared XA transactions, and rows that
  ROLLBACK TO a savepoint undoes, are shown in their place, and so are those statements.
- An error comes after everything before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.events.gtid_columns import GtidColumns, Gtids
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import CdcError
from cdc_pipeline.operations.inspect.inputs import shown_name
from cdc_pipeline.operations.inspect.selection import Selection, TransactionFilter
from cdc_pipeline.transaction.buffer import TransactionBuffer
from cdc_pipeline.transaction.table_maps import TableMaps

HELD_BYTES_MAX: Final = 64 << 20
DECODE_BYTES: Final = 16 << 20  # of events that are decoded at a time

# A statement with its chunk and row.
StatementObserver = Callable[[query.Query, Chunk, int], None]

_SLICE_EVENTS: Final = 1 << 30  # slices are as long as chunks


# Table by table: rows of the piece's chunk with what their events hold; `event_row` counts through
# these rows.
Changes = list[tuple[NDArray[np.int64], DecodedRows]]


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows events of one table at one schema version; `rows` are rows of the piece's chunk."""

    schema: TableSchema
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Consecutive events of one chunk. `events`: int64: rows of all wanted events, in order;
    `gtids`: of the transactions of all events of the chunk from `first` on; `tables`: wanted rows
    events; `statements`: int64: rows of statements, XA PREPARE and ROLLBACK; `annotations`: SQL
    texts of the chunk's events from `first` on, None if not requested.
    """

    chunk: Chunk
    events: NDArray[np.int64]
    gtids: Gtids
    first: int
    tables: list[TableRows]
    statements: NDArray[np.int64]
    annotations: pa.DictionaryArray | None = None

    def gtids_of(self, rows: NDArray[np.int64]) -> Gtids:
        at = rows - self.first
        return Gtids(self.gtids.keys, self.gtids.key[at], self.gtids.number[at])

    def decoded(self) -> Iterator[tuple[LogPiece, Changes]]:
        """Once, with its changes; before an error, what comes before its event."""
        try:
            changes = [
                (
                    table.rows,
                    decode_rows([RowsSelection(self.chunk, table.rows)], table.schema, epoch=1),
                )
                for table in self.tables
            ]
        except CdcError as error:
            stop = _count_before(self.chunk, self.events, error)
            if 0 < stop < len(self.events):
                yield from self.between(0, stop).decoded()
            raise
        yield self, changes

    def parts(self) -> Iterator[LogPiece]:
        """The same in parts of about `DECODE_BYTES`, for chunks unpacked to more."""
        lengths = self.chunk.events["event_length"][self.events].astype(np.int64)
        if int(lengths.sum()) <= DECODE_BYTES:
            yield self
            return
        part = np.cumsum(lengths) // DECODE_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
        for first, stop in itertools.pairwise(cuts):
            yield self.between(first, stop)

    def between(self, first: int, stop: int) -> LogPiece:
        low, high = int(self.events[first]), int(self.events[stop - 1])
        tables = [TableRows(table.schema, _between(table.rows, low, high)) for table in self.tables]
        return replace(
            self,
            events=self.events[first:stop],
            tables=[table for table in tables if len(table.rows)],
            statements=_between(self.statements, low, high),
        )


@dataclass(slots=True)
class _LogCounts:
    abandoned: int = 0  # their journal ended before they did
    shown_too_early: int = 0  # shown in part, and then rolled back or abandoned
    unfinished: str = ""  # journal:offset of one that is open at the very end


class ChangeLog:
    """Transactions and table maps over consecutive chunks; `annotations`: with SQL texts of rows.
    `on_statement` gets every statement, wanted or not, before table maps behind it are resolved.
    `current`: rows as SELECT returns them, in place of rows as logged.
    """

    def __init__(
        self,
        selection: Selection | None = None,
        table_maps: TableMaps | None = None,
        *,
        on_statement: StatementObserver | None = None,
        annotations: bool = False,
        current: bool = False,
    ) -> None:
        self.selection = selection or Selection()
        self.counts = _LogCounts()
        self.filter = TransactionFilter(self.selection)
        self._slices: list[EventSlice] = []
        self._buffer = TransactionBuffer(
            self._take, is_isolated=self._is_isolated, source="", slice_events_max=_SLICE_EVENTS
        )
        self._maps = table_maps or TableMaps(self.selection.wants_table, names=self.selection.names)
        self._types = self.selection.wanted_types()
        self._gtids = GtidColumns()
        self._on_statement = on_statement
        if annotations:  # imported late: it reads texts by Arrow's functions
            from cdc_pipeline.operations.inspect.annotations import StatementReader
        self._annotations = StatementReader() if annotations else None
        self._current = current
        self._is_mariadb = False
        self._journal = ""
        self._held: list[tuple[EventSlice, Gtids]] = []
        self._is_early = False  # the open transaction was released before its end
        self._is_shown = False  # ... and some of it is wanted

    @property
    def is_open(self) -> bool:
        return self._buffer.transactions.is_open

    def feed(self, chunk: Chunk) -> Iterator[LogPiece]:
        """The pieces that the chunk completes; raises CdcError after everything before it."""
        self._journal, self._is_mariadb = chunk.journal, chunk.journal_format.is_mariadb
        failure: CdcError | None = None
        try:
            self._buffer.feed(chunk)
        except CdcError as error:
            failure = error
        taken, self._slices = self._slices, []
        # Events held in the buffer are from the chunk before, whose GTIDs are still known.
        for piece in taken:
            if piece.chunk is not chunk:
                yield from self._pass_on(piece)
        self._gtids.feed(chunk)
        for piece in taken:
            if piece.chunk is chunk:
                yield from self._pass_on(piece)
        if failure is not None:
            raise failure

    def finish(self) -> None:
        """A transaction that is still open does not count."""
        if self.is_open:
            self.counts.unfinished = (
                f"{shown_name(self._journal)}:{self._buffer.transactions.open_offset}"
            )
            self.counts.shown_too_early += self._is_shown

    def _is_isolated(self, statement: query.Query) -> bool:
        """Isolate DDL: behind it the same table map may mean another table."""
        if self._on_statement is None:
            return False
        parsed = self.selection.parse(statement, is_mariadb=self._is_mariadb)
        return parsed.is_isolated(lambda _database, _table: True)

    def _take(self, slices: Sequence[EventSlice]) -> bool:
        self._slices.extend(slices)
        return True

    def _pass_on(self, piece: EventSlice) -> Iterator[LogPiece]:
        if piece.kind is SliceKind.ABANDONED:
            self.counts.abandoned += 1
            self.counts.shown_too_early += self._is_shown
            self._held, self._is_early, self._is_shown = [], False, False
            self._maps.reset()
            return
        self._held.append((piece, self._gtids.of_transactions(piece.events["tx_offset"])))
        is_open = piece.kind is SliceKind.OPEN_PIECE
        if is_open and not self._is_early:
            self._is_early = sum(held.event_bytes for held, _ in self._held) > HELD_BYTES_MAX
            if not self._is_early:
                return
        is_rolled_back = piece.kind is SliceKind.LAST_PIECE and len(piece.rolled_back_offsets) > 0
        self.counts.shown_too_early += is_rolled_back and self._is_shown
        self._is_early &= is_open
        self._is_shown &= is_open
        released, self._held = self._held, []
        for held, gtids in released:
            yield from self._resolved(held, gtids, without_rows=is_rolled_back)

    def _resolved(
        self, piece: EventSlice, gtids: Gtids, *, without_rows: bool = False
    ) -> Iterator[LogPiece]:
        events = piece.events
        keep = self.filter.wanted(piece.chunk, events, gtids)
        self._is_shown |= self._is_early and bool(keep.any())
        rows_wanted = keep & self._types[events["event_type"]]
        rows_wanted &= ~np.isin(events["tx_offset"], piece.rolled_back_offsets)
        if self._on_statement is not None:
            for row in (np.flatnonzero(events["role"] == Role.STATEMENT) + piece.first).tolist():
                self._on_statement(query.parse_query(piece.chunk, row), piece.chunk, row)
        tables = []
        try:
            # Maps are resolved even if no row is wanted: later pieces refer to them.
            groups = self._maps.resolve(piece)
        except CdcError as error:
            stop = _count_before(piece.chunk, np.arange(piece.first, piece.stop), error)
            if 0 < stop < piece.event_count:
                yield from self._resolved(piece.part(0, stop), gtids, without_rows=without_rows)
            raise
        for group in groups:
            if group.schema is not None and not without_rows:
                rows = group.rows[rows_wanted[group.rows - piece.first]]
                if len(rows):
                    # as logged: the server's columns and earlier versions of rows, too
                    schema = group.schema if self._current else group.schema.logged
                    tables.append(TableRows(schema, rows))
        is_text = np.isin(events["role"], (Role.STATEMENT, Role.ROLLBACK, Role.XA_PREPARE))
        yield from LogPiece(
            chunk=piece.chunk,
            events=np.flatnonzero(keep) + piece.first,
            gtids=gtids,
            first=piece.first,
            tables=tables,
            statements=np.flatnonzero(keep & is_text) + piece.first,
            annotations=None
            if self._annotations is None
            else self._annotations.read(piece.chunk, piece.first, piece.stop),
        ).parts()


def _count_before(chunk: Chunk, events: NDArray[np.int64], error: CdcError) -> int:
    """How many events of a chunk come before the place of an error; all if it has none."""
    if error.offset is None or error.journal not in (None, chunk.journal):
        return len(events)
    return int(np.searchsorted(chunk.events["offset"][events], error.offset))


def _between(rows: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64]:
    return rows[np.searchsorted(rows, low) : np.searchsorted(rows, high, side="right")]
