"""The transaction buffer: cuts chunks into slices that tear no transaction (SPEC T1-T4, K5, K9).

Rules:
- Slices leave in log order, each at most `slice_events_max` events long and from one chunk. Every event leaves once,
  but those of abandoned transactions (K5), which are counted in `dropped`.
- Whole transactions that follow each other are coalesced into one slice. A transaction that is longer than a slice, or
  that spans chunks, leaves as OPEN_PIECE ... LAST_PIECE, so that a transaction of any size passes a ring of any size.
- A statement that `is_isolated` wants alone leaves as one STATEMENT slice: its GTID event and its query. Where a chunk
  border stands between the two, they are copied into one small chunk.
- A transaction is held back only while a single statement may still be all of it (its GTID event has come and nothing
  else); nothing else stays in the buffer between two feeds.
- Without coalescing the articles' rule (T1) holds to the letter: flush before a begin, after an end, after anything
  that is not DML, after a heartbeat, and when full.
- What stands before a refused or contradicting event is delivered before the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.transactions.grouping import TransactionBounds, TransactionPass
from cdc_pipeline.binlog.transactions.grouping_kernel import MARK_ABANDON, MARK_STATEMENT
from cdc_pipeline.errors import CdcError, RingSizeError, StoreError, TransactionError
from cdc_pipeline.position.position import Position


class StatementObserver(Protocol):
    """Is shown every statement before it leaves; may raise a CdcError to refuse it by name."""

    def __call__(self, sql: str, database: str, journal: str, offset: int, inside_transaction: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class DroppedTransaction:
    """A transaction that its journal's end left unfinished (K5).

    Attributes:
        journal, offset: of its first event.
        event_count: events that were dropped.
        is_announced: True where pieces had left before, so that an ABANDONED slice followed them.
    """

    journal: str
    offset: int
    event_count: int
    is_announced: bool


class TransactionBuffer:
    """Between the reader and the store, in the reader's thread.

    Args:
        put: stores a list of slices whole; False where it refuses (T3).
        is_isolated: whether a statement that is a transaction by itself must be alone in its batch, by text and default
            database.
        slice_events_max: events of the longest slice; a power of two (T1).
        source: identity that every slice carries (S14).
        on_position: told of the place after the last transaction's end of each list that was stored (T3).
        on_statement: see StatementObserver.
        coalesce: False for one list per transaction, to the letter of T1.

    Raises:
        RingSizeError: `slice_events_max` is not a power of two.
    """

    def __init__(
        self,
        put: Callable[[Sequence[EventSlice]], bool],
        *,
        is_isolated: Callable[[str, str], bool],
        source: str,
        slice_events_max: int = 1024,
        on_position: Callable[[Position], None] | None = None,
        on_statement: StatementObserver | None = None,
        coalesce: bool = True,
    ) -> None:
        if slice_events_max < 1 or slice_events_max & (slice_events_max - 1):
            raise RingSizeError(
                "the transaction buffer's size is not a power of two",
                expected="a power of two, such as 1024",
                got=slice_events_max,
                next_step="set a power of two",
            )
        self._put = put
        self._is_isolated = is_isolated
        self._slice_events_max = slice_events_max
        self._source = source
        self._on_position = on_position
        self._on_statement = on_statement
        self._coalesce = coalesce
        self._pass = TransactionPass()
        self._held: list[EventSlice] = []  # an open transaction of which nothing has left
        self._open_events = 0  # events of the open transaction that have left as pieces
        self._open_journal = ""
        self._open_offset = -1
        self.dropped: list[DroppedTransaction] = []

    @property
    def transactions(self) -> TransactionPass:
        """The pass with its counters: transactions, rolled_back, abandoned."""
        return self._pass

    def feed(self, chunk: Chunk) -> None:
        """Run the transaction pass over `chunk` and put its slices.

        Raises:
            TransactionError, BinlogError: the log contradicts itself; what stands before has been put.
            StoreError: the store refused (T3).
            CdcError: what `on_statement` and `is_isolated` raise.
        """
        grouped = self._pass.step(chunk)
        bounds = grouped.bounds
        first = 0
        for row in bounds.statements.tolist():
            start = self._boundary_before(bounds, row)
            try:
                statement = self._isolated_statement(chunk, row, int(bounds.marks[row]))
            except CdcError:
                if start > first:
                    self._deliver(chunk, first, start, bounds)
                raise
            if statement is not None:
                if start > first:
                    self._deliver(chunk, first, start, bounds)
                self._send_statement(chunk, start, row, statement)
                first = row + 1
        if first < grouped.rows:
            self._deliver(chunk, first, grouped.rows, bounds)
        if grouped.error is not None:
            raise grouped.error

    def finish(self) -> None:
        """The source has reached its end.

        Raises:
            TransactionError: a transaction is still open there; its pieces must not count.
        """
        if self._pass.is_open:
            raise TransactionError(
                "the log was read to its end inside a transaction",
                journal=self._open_journal,
                offset=self._open_offset,
                expected="an end that is a transaction's end",
                got="a transaction that began here and has not ended",
                next_step="start again; if it stays, the end of the journal is cut: compare it with the server's own",
            )

    # -- statements ---------------------------------------------------------------------------------------------------

    def _isolated_statement(self, chunk: Chunk, row: int, mark: int) -> query.Query | None:
        """The statement at `row` where it must be alone, after it was shown to the observer."""
        statement = query.parse_query(chunk, row)
        is_transaction = mark == MARK_STATEMENT
        if self._on_statement is not None:
            self._on_statement(
                statement.sql,
                statement.database,
                chunk.journal,
                int(chunk.events["offset"][row]),
                not is_transaction,
            )
        return statement if is_transaction and self._is_isolated(statement.sql, statement.database) else None

    def _send_statement(self, chunk: Chunk, start: int, row: int, statement: query.Query) -> None:
        if start == 0 and self._held:
            chunk, start, stop = _stitch([*self._held, EventSlice(chunk, 0, row + 1)])
            self._held = []
        else:
            stop = row + 1
        self._send(
            EventSlice(
                chunk,
                start,
                stop,
                SliceKind.STATEMENT,
                sql=statement.sql,
                database=statement.database,
                source=self._source,
            ),
            end_row=stop - 1,
        )

    # -- slices -------------------------------------------------------------------------------------------------------

    def _deliver(self, chunk: Chunk, first: int, stop: int, bounds: TransactionBounds) -> None:
        """Put the events [first, stop), but hold back the beginning of a transaction that may be one statement."""
        abandons = (bounds.marks[first:stop] == MARK_ABANDON).nonzero()[0]
        for row in (first + abandons).tolist() if len(abandons) else ():
            start = max(self._boundary_before(bounds, row), first)
            self._cut(chunk, first, start, bounds)
            first = self._abandon(chunk, start, row)
        tail = stop
        if bounds.inside[stop - 1]:
            tail = max(self._boundary_before(bounds, stop), first)
            if self._pass.is_body_open:
                self._cut(chunk, first, tail, bounds)
                self._begin_open(chunk, tail)
                self._cut(chunk, tail, stop, bounds)
                return
        self._cut(chunk, first, tail, bounds)
        if tail < stop:
            self._begin_open(chunk, tail)
            self._held.append(EventSlice(chunk, tail, stop, SliceKind.OPEN_PIECE, source=self._source))

    def _cut(self, chunk: Chunk, first: int, stop: int, bounds: TransactionBounds) -> None:
        """Put [first, stop) in slices; `first` and `stop` are boundaries, or lie in the open transaction."""
        if first < stop:
            self._flush_held()
        cuts = bounds.boundaries if self._coalesce else self._article_cuts(chunk, stop, bounds)
        while first < stop:
            starts_inside = bool(bounds.inside[first - 1]) if first else bounds.begins_inside
            # A mark that abandons a transaction is not part of it.
            starts_inside = starts_inside and int(bounds.marks[first]) != MARK_ABANDON
            limit = min(first + self._slice_events_max, stop)
            if self._coalesce and not starts_inside:
                before = int(cuts.searchsorted(limit, side="right")) - 1
                cut = int(cuts[before]) if before >= 0 and cuts[before] > first else limit
            else:
                after = int(cuts.searchsorted(first, side="right"))
                cut = min(int(cuts[after]), limit) if after < len(cuts) else limit
            ends_inside = bool(bounds.inside[cut - 1])
            kind = SliceKind.TRANSACTIONS
            if ends_inside:
                kind = SliceKind.OPEN_PIECE
                self._begin_open(chunk, first)
                self._open_events += cut - first
            elif starts_inside:
                kind = SliceKind.LAST_PIECE
                self._open_events = 0
            last_end = int(bounds.ends.searchsorted(cut)) - 1
            end_row = int(bounds.ends[last_end]) if last_end >= 0 and bounds.ends[last_end] >= first else -1
            self._send(EventSlice(chunk, first, cut, kind, source=self._source), end_row=end_row)
            first = cut

    def _abandon(self, chunk: Chunk, start: int, row: int) -> int:
        """Drop the open transaction that the mark at `row` leaves unfinished; the first row that is not yet put."""
        self._begin_open(chunk, start)
        held = sum(part.event_count for part in self._held)
        is_announced = self._open_events > 0
        self.dropped.append(
            DroppedTransaction(
                self._open_journal, self._open_offset, held + self._open_events + row - start, is_announced
            )
        )
        self._held = []
        self._open_events = 0
        if not is_announced:
            return row
        self._send(EventSlice(chunk, row, row + 1, SliceKind.ABANDONED, source=self._source), end_row=-1)
        return row + 1

    def _begin_open(self, chunk: Chunk, row: int) -> None:
        """Remember where the open transaction began, if it begins at `row`."""
        if row < len(chunk.events) and chunk.events["tx_offset"][row] >= 0 and chunk.events["tx_ordinal"][row] == 0:
            self._open_journal = chunk.journal
            self._open_offset = int(chunk.events["tx_offset"][row])

    def _flush_held(self) -> None:
        held, self._held = self._held, []
        for part in held:
            self._open_events += part.event_count
            self._send(part, end_row=-1)

    def _send(self, part: EventSlice, *, end_row: int) -> None:
        """Put one list (T2); tell its position if it was accepted (T3). `end_row` is a row of the slice's chunk."""
        if not self._put([part]):
            event = part.events[0]
            raise StoreError(
                "the store refused events; the position stays before them",
                journal=part.chunk.journal,
                offset=int(event["offset"]),
                expected="room in the store within the time limit",
                got=f"{part.event_count} events refused",
                next_step="start again: reading goes on after the last transaction that was stored",
            )
        if self._on_position is not None and end_row >= 0:
            end = part.chunk.events[end_row]
            self._on_position(
                Position(
                    journal=part.chunk.journal,
                    offset=int(end["next_offset"]),
                    timestamp_s=int(end["timestamp_s"]),
                    server_id=int(end["server_id"]),
                )
            )

    @staticmethod
    def _boundary_before(bounds: TransactionBounds, row: int) -> int:
        """The last row count up to `row` after which no transaction was open; 0 where the chunk begins inside one."""
        at = int(bounds.boundaries.searchsorted(row, side="right")) - 1
        return int(bounds.boundaries[at]) if at >= 0 else 0

    @staticmethod
    def _article_cuts(chunk: Chunk, stop: int, bounds: TransactionBounds) -> NDArray[np.int64]:
        """Where T1 flushes: before a begin; after an end, a statement, a heartbeat or a mark of the journal."""
        roles = chunk.events["role"][:stop]
        flushes = (Role.TRANSACTIONEND, Role.ROLLBACK, Role.XA_PREPARE, Role.STATEMENT, Role.HEARTBEAT, Role.JOURNAL)
        return np.union1d(np.flatnonzero(np.isin(roles, flushes)) + 1, bounds.starts)


def _stitch(parts: Sequence[EventSlice]) -> tuple[Chunk, int, int]:
    """A chunk of its own that holds copies of the events of `parts`, and the rows that they are: all of them."""
    data = []
    tables = []
    size_bytes = rows = 0
    for part in parts:
        events = part.events.copy()
        # A payload event and those inside it are of one chunk, and begin no transaction apart from each other.
        events["parent"][events["parent"] >= 0] += rows - part.first
        rows += part.event_count
        for event in events:
            start = int(event["start"])
            data.append(part.chunk.data[start : start + int(event["event_length"])])
            event["start"] = size_bytes
            size_bytes += int(event["event_length"])
        tables.append(events)
    events = np.concatenate(tables)
    last = parts[-1].chunk
    chunk = Chunk(last.journal, last.journal_format, np.concatenate(data), events, int(events["next_offset"][-1]))
    return chunk, 0, len(events)
