"""The transaction buffer: cuts chunks into slices along transactions (SPEC T1-T4).

Rules:
- Slices leave in log order, each at most `slice_events_max` events long and from one chunk. Every
  event leaves once, except those of transactions that their journal's end left unfinished (K5: the
  server never committed them), which `dropped` counts.
- Consecutive whole transactions are coalesced into one slice. A transaction that is longer than a
  slice, or not short and in two chunks, leaves as OPEN_PIECE ... LAST_PIECE, so that a transaction
  of any size passes a ring of any size (K9: memory is bounded).
- A short transaction in two chunks is copied into one small chunk, and leaves whole.
- A statement that must be alone according to `is_isolated` leaves as one STATEMENT slice: its GTID
  event and its query. If the two are in different chunks, they are copied into one small chunk.
- Between two feeds the buffer keeps only the begin of a transaction that is short so far, or may
  still be a single statement, of which only the GTID event has arrived.
- The slices of a chunk are put as one list, up to `slice_events_max` events at a time: a put needs
  room for one slice at most.
- T1 flushes for each transaction. Here all that a chunk brought has left when its feed ends, and
  slices begin and end where T1 flushes, but hold many transactions.
- Every transaction that ends before a refused or contradictory event is delivered before the error
  is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, EventSlice, SliceKind
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.transactions import grouping_kernel as kernel
from cdc_pipeline.binlog.transactions.grouping import (
    TransactionBounds,
    TransactionPass,
)
from cdc_pipeline.errors import CdcError, RingSizeError, StoreError, TransactionError
from cdc_pipeline.position.position import Position

# What is done for each slice costs more than copying this much, once a chunk.
SHORT_EVENTS_MAX: Final = 256
SHORT_BYTES_MAX: Final = 1 << 20
_ENDS_BODY: Final = (kernel.MARK_COMMIT, kernel.MARK_ROLLBACK, kernel.MARK_PREPARE)


class TransactionBuffer:
    """Buffers events between the reader and the store, in the reader's thread.

    Args:
        put: stores a whole list of slices, or returns False (T3).
        is_isolated: returns whether a statement that is a transaction by itself must be alone
            in its batch.
        slice_events_max: most events of a slice; a power of two, else RingSizeError (T1).
        source: stored in every slice (S14).
        on_position: called after each stored list with the position after its last transaction
            (T3).
    """

    def __init__(
        self,
        put: Callable[[Sequence[EventSlice]], bool],
        *,
        is_isolated: Callable[[query.Query], bool],
        source: str,
        slice_events_max: int = 8192,
        on_position: Callable[[Position], None] | None = None,
    ) -> None:
        if slice_events_max < 1 or slice_events_max & (slice_events_max - 1):
            raise RingSizeError(
                "the transaction buffer's size is not a power of two",
                expected="a power of two, such as 1024",
                got=slice_events_max,
                next_step="choose a power of two",
            )
        self._put = put
        self._is_isolated = is_isolated
        self._slice_events_max = slice_events_max
        self._short_events_max = min(SHORT_EVENTS_MAX, slice_events_max)
        self._source = source
        self._on_position = on_position
        self._pass = TransactionPass()
        self._pending: list[EventSlice] = []  # an open transaction, before any of it has left
        self._list: list[EventSlice] = []  # to be put together
        self._list_events = 0
        self._list_end: tuple[Chunk, int] | None = None  # chunk and row of its last transaction end
        self._open_events = 0  # events of the open transaction that have left as pieces
        self._open_journal = ""
        self._open_offset = -1

    @property
    def transactions(self) -> TransactionPass:
        """The pass with its counters: transactions, rolled_back, abandoned."""
        return self._pass

    def feed(self, chunk: Chunk) -> None:
        """TransactionError, BinlogError: the log contradicts itself, everything before has been
        put; StoreError (T3); CdcError: whatever `is_isolated` raises.
        """
        bounds = self._pass.step(chunk)
        try:
            self._feed(chunk, bounds)
        finally:
            # Also before an error: everything before it is delivered.
            self._put_list()
        if bounds.error is not None:
            raise bounds.error

    def _feed(self, chunk: Chunk, bounds: TransactionBounds) -> None:
        first = self._end_pending(chunk, bounds)
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
        rows = len(bounds.events)
        if first < rows:
            self._deliver(chunk, first, rows, bounds)

    def finish(self) -> None:
        """TransactionError: a transaction is still open; its pieces must not count."""
        if self._pass.is_open:
            raise TransactionError(
                "the log ends inside a transaction",
                at=(self._open_journal, self._open_offset),
                expected="a log that ends between transactions",
                got="a transaction that began here and has not ended",
                next_step="run again; if the error stays, the journal is truncated: compare it "
                "with the server's copy",
            )

    def _end_pending(self, chunk: Chunk, bounds: TransactionBounds) -> int:
        """Put the pending transaction whole, if it ends here and is short; return the row after."""
        stop = int(bounds.ends[0]) + 1 if self._pending and len(bounds.ends) else 0
        if not stop or bounds.marks[: stop - 1].any() or bounds.marks[stop - 1] not in _ENDS_BODY:
            return 0
        parts = [*self._pending, EventSlice(chunk, 0, stop)]
        if not self._is_short(parts):
            return 0
        self._pending = []
        whole = _stitch(parts)
        rows = len(whole.events)
        self._send(EventSlice(whole, 0, rows, source=self._source), end_row=rows - 1)
        return stop

    def _is_short(self, parts: Sequence[EventSlice]) -> bool:
        return (
            sum(part.event_count for part in parts) <= self._short_events_max
            and sum(part.event_bytes for part in parts) <= SHORT_BYTES_MAX
        )

    # -- statements --------------------------------------------------------------------------------

    def _isolated_statement(self, chunk: Chunk, row: int, mark: int) -> query.Query | None:
        if mark != kernel.MARK_STATEMENT:
            return None
        statement = query.parse_query(chunk, row)
        return statement if self._is_isolated(statement) else None

    def _send_statement(self, chunk: Chunk, start: int, row: int, statement: query.Query) -> None:
        if start == 0 and self._pending:
            chunk = _stitch([*self._pending, EventSlice(chunk, 0, row + 1)])
            stop = len(chunk.events)
            self._pending = []
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

    # -- slices ------------------------------------------------------------------------------------

    def _deliver(self, chunk: Chunk, first: int, stop: int, bounds: TransactionBounds) -> None:
        """[first, stop), but for the begin of a transaction that waits for its end."""
        abandons = (bounds.marks[first:stop] == kernel.MARK_ABANDON).nonzero()[0]
        for row in (first + abandons).tolist() if len(abandons) else ():
            start = max(self._boundary_before(bounds, row), first)
            self._cut(chunk, first, start, bounds)
            first = self._abandon(chunk, row)
        if not bounds.inside[stop - 1]:
            self._cut(chunk, first, stop, bounds)
            return
        tail = max(self._boundary_before(bounds, stop), first)
        self._cut(chunk, first, tail, bounds)
        self._begin_open(chunk, tail)
        part = EventSlice(chunk, tail, stop, SliceKind.OPEN_PIECE, source=self._source)
        is_short = not self._open_events and self._is_short([*self._pending, part])
        if is_short or not self._pass.is_body_open:
            self._pending.append(part)
        else:
            self._cut(chunk, tail, stop, bounds)

    def _cut(self, chunk: Chunk, first: int, stop: int, bounds: TransactionBounds) -> None:
        """`first` and `stop` are boundaries, or inside the open transaction."""
        if first < stop:
            self._flush_pending()
        cuts = bounds.boundaries
        while first < stop:
            starts_inside = bool(bounds.inside[first - 1]) if first else bounds.begins_inside
            # The event that abandons a transaction is not part of it.
            starts_inside = starts_inside and int(bounds.marks[first]) != kernel.MARK_ABANDON
            limit = min(first + self._slice_events_max, stop)
            if not starts_inside:
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
            end_row = (
                int(bounds.ends[last_end])
                if last_end >= 0 and bounds.ends[last_end] >= first
                else -1
            )
            self._send(EventSlice(chunk, first, cut, kind, source=self._source), end_row=end_row)
            first = cut

    def _abandon(self, chunk: Chunk, row: int) -> int:
        """Drop what the event at `row` leaves unfinished; return the first row not yet put."""
        is_announced = self._open_events > 0
        self._pending = []
        self._open_events = 0
        if not is_announced:
            return row
        self._send(
            EventSlice(chunk, row, row + 1, SliceKind.ABANDONED, source=self._source), end_row=-1
        )
        return row + 1

    def _begin_open(self, chunk: Chunk, row: int) -> None:
        if (
            row < len(chunk.events)
            and chunk.events["tx_offset"][row] >= 0
            and chunk.events["tx_ordinal"][row] == 0
        ):
            self._open_journal = chunk.journal
            self._open_offset = int(chunk.events["tx_offset"][row])

    def _flush_pending(self) -> None:
        pending, self._pending = self._pending, []
        for part in pending:
            self._open_events += part.event_count
            self._send(part, end_row=-1)

    def _send(self, part: EventSlice, *, end_row: int) -> None:
        """`end_row`: in the slice's chunk; -1 if no transaction ends in the slice (T2)."""
        is_full = self._list_events + part.event_count > self._slice_events_max
        if is_full or part.is_isolated:
            self._put_list()
        self._list.append(part)
        self._list_events += part.event_count
        if end_row >= 0:
            self._list_end = part.chunk, end_row
        if part.is_isolated:
            self._put_list()

    def _put_list(self) -> None:
        """Put the list (T2) and report its position if it was accepted (T3)."""
        parts, self._list = self._list, []
        ended, self._list_end = self._list_end, None
        count, self._list_events = self._list_events, 0
        if not parts:
            return
        if not self._put(parts):
            event = parts[0].events[0]
            raise StoreError(
                "the store refused events; the position remains before them",
                at=(parts[0].chunk.journal, int(event["offset"])),
                expected="room in the store within the time limit",
                got=f"{count} events refused",
                next_step="run again: reading continues after the last transaction that was stored",
            )
        if self._on_position is not None and ended is not None:
            chunk, row = ended
            end = chunk.events[row]
            self._on_position(
                Position(
                    journal=chunk.journal,
                    offset=int(end["next_offset"]),
                    timestamp_s=int(end["timestamp_s"]),
                    server_id=int(end["server_id"]),
                )
            )

    @staticmethod
    def _boundary_before(bounds: TransactionBounds, row: int) -> int:
        """0 if the chunk begins inside a transaction."""
        at = int(bounds.boundaries.searchsorted(row, side="right")) - 1
        return int(bounds.boundaries[at]) if at >= 0 else 0


def _stitch(parts: Sequence[EventSlice]) -> Chunk:
    """A new chunk with copies of the events of `parts`."""
    data: list[NDArray[np.uint8]] = []
    tables = []
    size_bytes = rows = 0
    for part in parts:
        events = part.events.copy()
        lengths = events["event_length"].astype(np.int64)
        stops = events["start"] + lengths
        bounds = zip(events["start"].tolist(), stops.tolist(), strict=True)
        data += [part.chunk.data[start:stop] for start, stop in bounds]
        events["start"] = size_bytes + np.cumsum(lengths) - lengths
        # A payload event and the events inside it are in one chunk and in one transaction.
        events["parent"][events["parent"] >= 0] += rows - part.first
        size_bytes += int(lengths.sum())
        rows += part.event_count
        tables.append(events)
    events = np.concatenate(tables)
    last = parts[-1].chunk
    return Chunk(
        last.journal,
        last.journal_format,
        np.concatenate(data),
        events,
        int(events["next_offset"][-1]),
    )
