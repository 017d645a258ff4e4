"""The event store in memory: a ring (SPEC S1-S14, K9).

Rules:
- Four sequences, all -1 at the start: ack <= released <= get <= put. An entry stands in the slot of its first held
  event, ``sequence & (size - 1)``, and occupies as many sequences as it has events.
- Room, in events and in bytes, counts from `released`: waiting = put - get, held = put - released; the ring is full
  where put + n - released > size. In MEMSIZE a put is also held back while the bytes held reach size * memory unit.
- One lock, two conditions. A get that waits for a full batch while a put waits for room takes what there is (S13).
- A batch that an isolated slice bounds is full: waiting longer cannot make it longer.
- All figures are Python integers: no overflow.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.errors import AckPositionError, EventListTooLargeError, RingSizeError, StoreClosedError, StoreError
from cdc_pipeline.position.position import Position
from cdc_pipeline.store import positions
from cdc_pipeline.store.contract import Batch, PositionRange
from cdc_pipeline.store.cutting import cut
from cdc_pipeline.store.entries import Entry, Retained, is_at, row_at

DEFAULT_RING_EVENTS: Final = 16384
DEFAULT_MEMORY_UNIT_BYTES: Final = 1024
EMPTY_BATCH: Final = Batch(batch_id=-1, slices=(), range=None, last_sequence=-1)

BatchMode = Literal["itemsize", "memsize"]


class MemoryEventStore:
    """An `EventStore` whose events live in the process.

    Args:
        ring_events: size of the ring, a power of two.
        batch_mode: whether room and batch sizes count events or also bytes (S3).
        memory_unit_bytes: what one unit of a batch size is in MEMSIZE; the budget is `ring_events` of them.
        ddl_isolation: whether a STATEMENT slice is alone in its batch (S7).

    Raises:
        RingSizeError: `ring_events` is not a power of two (S1).
    """

    def __init__(
        self,
        ring_events: int = DEFAULT_RING_EVENTS,
        *,
        batch_mode: BatchMode = "memsize",
        memory_unit_bytes: int = DEFAULT_MEMORY_UNIT_BYTES,
        ddl_isolation: bool = True,
    ) -> None:
        if ring_events < 1 or ring_events & (ring_events - 1):
            raise RingSizeError(
                "the ring's size is not a power of two",
                setting="store.ring_events",
                expected="a power of two, such as 16384",
                got=ring_events,
                next_step="set store.ring_events to a power of two",
            )
        self._size = ring_events
        self._counts_bytes = batch_mode == "memsize"
        self._unit_bytes = memory_unit_bytes
        self._ddl_isolation = ddl_isolation
        self._lock = threading.Lock()
        self._not_full = threading.Condition(self._lock)
        self._not_empty = threading.Condition(self._lock)
        self._is_running = False
        self._waiting_puts: list[int] = []  # events of each put that waits for room
        self._generation = 0  # grows with every stop: a waiter of an older one is woken with an error
        self._reset()

    def _reset(self) -> None:
        self._slots: list[Entry | None] = []
        self._put_sequence = self._get_sequence = self._released_sequence = self._ack_sequence = -1
        self._put_bytes = self._get_bytes = self._released_bytes = 0
        self._oldest = 0  # sequence of the oldest event still held
        self._get_entry = 0  # slot sequence of the entry that holds the next event to get
        self._retained: deque[Retained] = deque()
        self._isolated: deque[int] = deque()  # last sequences of the isolated entries still held
        self._last_freed: Position | None = None
        self._open_gtid = ""
        self._has_ended = False
        self._error: BaseException | None = None
        self._next_batch_id = 1

    # -- life (S12) ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._lock:
            self._reset()
            self._slots = [None] * self._size
            self._is_running = True

    def stop(self) -> None:
        with self._lock:
            self._reset()
            self._is_running = False
            self._generation += 1
            self._not_full.notify_all()
            self._not_empty.notify_all()

    def clean_all(self) -> None:
        with self._lock:
            self._check_running()
            self._reset()
            self._slots = [None] * self._size
            self._not_full.notify_all()

    def clean_until(self, position: Position) -> None:
        with self._lock:
            self._check_running()
            sequence = self._sequence_at(position)
            self._free_until(max(sequence, self._released_sequence))
            self._ack_sequence = sequence
            while self._retained and self._retained[0].last <= sequence:
                self._retained.popleft()
            self._not_full.notify_all()

    # -- put (S4) -----------------------------------------------------------------------------------------------------

    def put(self, slices: Sequence[EventSlice] | EventSlice, *, timeout_s: float | None = None) -> bool:
        parts = _parts(slices)
        count = sum(part.event_count for part in parts)
        if count > self._size:
            raise EventListTooLargeError(
                "a list of events can never fit the ring",
                expected=f"at most {self._size} events",
                got=f"{count} events",
                setting="store.ring_events",
                next_step="put it in pieces, or raise store.ring_events",
            )
        with self._lock:
            self._check_running()
            if count and not self._has_room(count):
                self._waiting_puts.append(count)
                self._not_empty.notify_all()
                try:
                    has_room = self._wait(self._not_full, lambda: self._has_room(count), timeout_s)
                finally:
                    self._waiting_puts.remove(count)
                if not has_room:
                    return False
            if count and self._has_ended:
                raise StoreError(
                    "events were put after the end of the input",
                    next_step="put before end_of_input, or start the store again",
                )
            for part in parts:
                self._append(part)
            self._not_empty.notify_all()
            return True

    def try_put(self, slices: Sequence[EventSlice] | EventSlice) -> bool:
        return self.put(slices, timeout_s=0)

    def end_of_input(self) -> None:
        with self._lock:
            if not self._is_running:  # the reader may end after the drain has stopped the store
                return
            self._has_ended = True
            self._not_empty.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if not self._is_running:
                return
            self._has_ended = True
            self._error = error
            self._not_empty.notify_all()

    def _has_room(self, count: int) -> bool:
        if self._put_sequence + count - self._released_sequence > self._size:
            return False
        return not self._counts_bytes or self._put_bytes - self._released_bytes < self._size * self._unit_bytes

    def _append(self, part: EventSlice) -> None:
        continues = part.kind in (SliceKind.OPEN_PIECE, SliceKind.LAST_PIECE)
        if part.kind is SliceKind.OPEN_PIECE:
            self._open_gtid = positions.gtid_text(part.chunk, part.first) or self._open_gtid
        entry = Entry(self._put_sequence + 1, part, self._put_bytes, self._open_gtid if continues else "")
        if part.kind is not SliceKind.OPEN_PIECE:
            self._open_gtid = ""
        self._slots[entry.first & (self._size - 1)] = entry
        if part.is_isolated:
            self._isolated.append(entry.last)
        self._put_sequence = entry.last
        self._put_bytes += part.event_bytes

    # -- get (S5-S8) --------------------------------------------------------------------------------------------------

    def get(self, size: int, *, start: Position | None = None, timeout_s: float | None = None) -> Batch:
        if size < 1:
            raise StoreError("a batch holds at least one event", got=size, next_step="get with a size of 1 or more")
        with self._lock:
            self._check_running()
            self._wait(self._not_empty, lambda: self._is_full_batch(size) or self._waits_in_vain(), timeout_s)
            return self._take(size, start)

    def try_get(self, size: int, *, start: Position | None = None) -> Batch:
        return self.get(size, start=start, timeout_s=0)

    def _is_full_batch(self, size: int) -> bool:
        waiting = self._put_sequence - self._get_sequence
        if waiting == 0:
            return False
        if self._counts_bytes:
            if self._put_bytes - self._get_bytes >= size * self._unit_bytes:
                return True
        elif waiting >= size:
            return True
        return self._ddl_isolation and bool(self._isolated) and self._isolated[-1] > self._get_sequence

    def _waits_in_vain(self) -> bool:
        """True where nothing more will come before this get returns (S13)."""
        if self._has_ended:
            return True
        return bool(self._waiting_puts) and not any(self._has_room(count) for count in self._waiting_puts)

    def _take(self, size: int, start: Position | None) -> Batch:
        first = self._get_sequence + 1
        entry_first = self._get_entry
        # S6: `included` begins at the get position itself, where its event is still held.
        if start is not None and start.included and self._get_sequence > self._released_sequence:
            first = self._get_sequence
            entry_first = self._entry_of(first)
        if first > self._put_sequence:
            if self._error is not None:
                raise self._error
            return EMPTY_BATCH
        parts: list[tuple[Entry, int, int]] = []
        sequence = first
        taken = 0  # events, or bytes
        budget = size * self._unit_bytes if self._counts_bytes else size
        while entry_first <= self._put_sequence and taken < budget:
            entry = self._entry(entry_first)
            if self._ddl_isolation and entry.part.is_isolated and parts:
                break
            row = sequence - entry.first
            stop = self._stop_row(entry, row, budget - taken)
            parts.append((entry, row, stop))
            taken += self._measure(entry, row, stop)
            sequence = entry.first + stop
            if sequence <= entry.last:
                break
            entry_first = sequence
            if self._ddl_isolation and entry.part.is_isolated:
                break
        last_entry = parts[-1][0]
        self._get_sequence = sequence - 1
        self._get_bytes = last_entry.bytes_until(self._get_sequence)
        self._get_entry = entry_first
        return self._batch(first, parts)

    def _measure(self, entry: Entry, row: int, stop: int) -> int:
        if not self._counts_bytes:
            return stop - row
        return int(entry.part.events["event_length"][row:stop].sum(dtype=np.int64))

    def _stop_row(self, entry: Entry, row: int, budget: int) -> int:
        """Row after the last that a batch takes of the entry: the first with which the budget is reached."""
        count = entry.part.event_count
        if entry.part.is_isolated:
            return count
        if not self._counts_bytes:
            return min(count, row + budget)
        bytes_taken = np.cumsum(entry.part.events["event_length"][row:], dtype=np.int64)
        return min(count, row + int(np.searchsorted(bytes_taken, budget)) + 1)

    def _batch(self, first: int, parts: list[tuple[Entry, int, int]]) -> Batch:
        slices = tuple(piece for entry, row, stop in parts for piece in cut(entry.part, row, stop))
        first_entry, first_row, _ = parts[0]
        last_entry, _, last_stop = parts[-1]
        ack: Position | None = None
        resume: Position | None = None
        ack_sequence = -1
        for entry, row, stop in reversed(parts):
            at = positions.last_ackable_row(entry.part.part(row, stop))
            if at >= 0:
                at += row
                ack = positions.event_position(entry.part, at, open_gtid=entry.open_gtid)
                resume = positions.resume_position(entry.part, at, open_gtid=entry.open_gtid)
                ack_sequence = entry.first + at
                break
        span = PositionRange(
            start=positions.event_position(first_entry.part, first_row, open_gtid=first_entry.open_gtid),
            end=positions.event_position(last_entry.part, last_stop - 1, open_gtid=last_entry.open_gtid),
            ack=ack,
            resume=resume,
        )
        self._retained.append(Retained(first, self._get_sequence, span, ack_sequence))
        batch = Batch(self._next_batch_id, slices, span, self._get_sequence)
        self._next_batch_id += 1
        return batch

    # -- release, ack, rollback (S9, S10, K9) -------------------------------------------------------------------------

    def release(self, sequence: int) -> None:
        with self._lock:
            self._check_running()
            if sequence > self._get_sequence:
                raise StoreError(
                    "events that were not got cannot be released",
                    expected=f"a sequence up to {self._get_sequence}",
                    got=sequence,
                    next_step="release a batch's last_sequence after it was staged",
                )
            self._free_until(sequence)
            self._not_full.notify_all()

    def ack(self, position: Position) -> None:
        self.clean_until(position)

    def rollback(self) -> None:
        with self._lock:
            self._check_running()
            self._get_sequence = self._released_sequence
            self._get_bytes = self._released_bytes
            self._get_entry = self._oldest
            while self._retained and self._retained[-1].first > self._released_sequence:
                self._retained.pop()
            self._not_empty.notify_all()

    def _sequence_at(self, position: Position) -> int:
        """Sequence of the event at `position` among those got and not acked."""
        found = -1
        for batch in self._retained:
            for candidate, sequence in (
                (batch.range.start, batch.first),
                (batch.range.ack, batch.ack_sequence),
                (batch.range.end, batch.last),
            ):
                is_open = self._ack_sequence < sequence <= self._get_sequence
                if candidate is not None and is_open and is_at(candidate, position):
                    found = max(found, sequence)
        sequence = self._oldest
        while sequence <= self._get_sequence:
            entry = self._entry(sequence)
            row = row_at(entry.part, position, self._get_sequence - entry.first + 1)
            if row >= 0 and entry.first + row > self._ack_sequence:
                found = max(found, entry.first + row)
            sequence = entry.last + 1
        if found < 0:
            raise AckPositionError(
                "no event that was got and not acked is at this position",
                journal=position.journal,
                offset=position.offset,
                expected="the position of an event of a batch that was got and not acked",
                got=f"{position} at timestamp {position.timestamp_s}",
                next_step="ack the range of a batch that was got; roll back and get again if in doubt",
            )
        return found

    def _free_until(self, sequence: int) -> None:
        """Move `released` to `sequence`; drop the entries that end there or before."""
        if sequence <= self._released_sequence:
            return
        while self._oldest <= sequence:
            entry = self._entry(self._oldest)
            stop = min(entry.last, sequence)
            self._released_bytes = entry.bytes_until(stop)
            if stop == sequence:
                self._last_freed = positions.event_position(entry.part, stop - entry.first, open_gtid=entry.open_gtid)
            self._slots[self._oldest & (self._size - 1)] = None
            if entry.last > sequence:
                # The slots before are free for new entries: what is left stands in that of its own first event.
                self._slots[(sequence + 1) & (self._size - 1)] = entry
                if self._get_entry == self._oldest:
                    self._get_entry = sequence + 1
                self._oldest = sequence + 1
                break
            if entry.part.is_isolated:
                self._isolated.popleft()
            self._oldest = entry.last + 1
        self._released_sequence = sequence

    # -- what is there (S2, S11) --------------------------------------------------------------------------------------

    def first_position(self) -> Position | None:
        with self._lock:
            if self._put_sequence == self._released_sequence:
                return self._last_freed
            sequence = self._released_sequence + 1
            included = self._released_sequence >= 0
            return self._position_of(sequence, included=included)

    def latest_position(self) -> Position | None:
        with self._lock:
            if self._put_sequence == self._released_sequence:
                return self._last_freed
            return self._position_of(self._put_sequence, included=False)

    @property
    def is_drained(self) -> bool:
        with self._lock:
            return self._has_ended and self._error is None and self._get_sequence == self._put_sequence

    @property
    def waiting_events(self) -> int:
        """Events put and not got (S2)."""
        with self._lock:
            return self._put_sequence - self._get_sequence

    @property
    def held_events(self) -> int:
        """Events that occupy room (S2; with K9 counted from `released`)."""
        with self._lock:
            return self._put_sequence - self._released_sequence

    @property
    def held_bytes(self) -> int:
        """Bytes of the events that occupy room."""
        with self._lock:
            return self._put_bytes - self._released_bytes

    @property
    def sequences(self) -> tuple[int, int, int, int]:
        """(ack, released, get, put) (S1)."""
        with self._lock:
            return self._ack_sequence, self._released_sequence, self._get_sequence, self._put_sequence

    # -- inside -------------------------------------------------------------------------------------------------------

    def _entry(self, sequence: int) -> Entry:
        """The entry whose first event still held has this sequence."""
        entry = self._slots[sequence & (self._size - 1)]
        assert entry is not None
        assert entry.first <= sequence <= entry.last
        return entry

    def _entry_of(self, sequence: int) -> int:
        """Sequence of the first event still held of the entry that holds `sequence`."""
        first = self._oldest
        while self._entry(first).last < sequence:
            first = self._entry(first).last + 1
        return first

    def _position_of(self, sequence: int, *, included: bool) -> Position:
        entry = self._entry(self._entry_of(sequence))
        position = positions.event_position(entry.part, sequence - entry.first, open_gtid=entry.open_gtid)
        return replace(position, included=included)

    def _check_running(self, generation: int | None = None) -> None:
        if not self._is_running or generation not in (None, self._generation):
            raise StoreClosedError(
                "the store is stopped", next_step="start it; everything after the last acked position is read again"
            )

    def _wait(self, condition: threading.Condition, is_met: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `is_met`; False when the time is up. Raises StoreClosedError where the store was stopped."""
        generation = self._generation
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_met():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            condition.wait(left)
            self._check_running(generation)
        return True


def _parts(slices: Sequence[EventSlice] | EventSlice) -> list[EventSlice]:
    parts = [slices] if isinstance(slices, EventSlice) else list(slices)
    return [part for part in parts if part.event_count]
