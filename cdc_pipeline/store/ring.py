"""The ring: sequences, room, waiting and batches, whatever the events are kept in (SPEC S1-S14, K9).

Rules:
- Four sequences, all -1 at the start: ack <= released <= get <= put. An entry stands in the slot of its first held
  event, ``sequence & (size - 1)``, and occupies as many sequences as it has events.
- Room, in events and in bytes, counts from `released`: waiting = put - get, held = put - released; the ring is full
  where put + n - released > size. In MEMSIZE a put is also held back while the bytes held reach size * memory unit.
- One lock, two conditions. A get that waits for a full batch while a put waits for room takes what there is (S13).
- A batch that an isolated slice bounds is full: waiting longer cannot make it longer.
- All figures are Python integers: no overflow.
- Nothing changes before everything that can fail has succeeded: keeping entries on a put, loading them on a get.
- Where entries are kept is the keeper's business; it is called under the lock.
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
from cdc_pipeline.store.entries import Entry, HeldEntry, Keeper, Retained, Taken, is_at, row_at

DEFAULT_RING_EVENTS: Final = 16384
DEFAULT_MEMORY_UNIT_BYTES: Final = 1024
EMPTY_BATCH: Final = Batch(batch_id=-1, slices=(), range=None, last_sequence=-1)

BatchMode = Literal["itemsize", "memsize"]


class RingStore:
    """An `EventStore` but for the place where entries are kept.

    Args:
        keeper: keeps the entries.
        ring_events: size of the ring, a power of two.
        batch_mode: whether room and batch sizes count events or also bytes (S3).
        memory_unit_bytes: what one unit of a batch size is in MEMSIZE; the budget is `ring_events` of them.
        ddl_isolation: whether a STATEMENT slice is alone in its batch (S7).

    Raises:
        RingSizeError: `ring_events` is not a power of two (S1).
    """

    def __init__(
        self,
        keeper: Keeper,
        *,
        ring_events: int,
        batch_mode: BatchMode,
        memory_unit_bytes: int,
        ddl_isolation: bool,
    ) -> None:
        if ring_events < 1 or ring_events & (ring_events - 1):
            raise RingSizeError(
                "the ring's size is not a power of two",
                setting="store.ring_events",
                expected="a power of two, such as 16384",
                got=ring_events,
                next_step="set store.ring_events to a power of two",
            )
        self._keeper = keeper
        self._size = ring_events
        self._counts_bytes = batch_mode == "memsize"
        self._unit_bytes = memory_unit_bytes
        self._ddl_isolation = ddl_isolation
        self._lock = threading.Lock()
        self._not_full = threading.Condition(self._lock)
        self._not_empty = threading.Condition(self._lock)
        self._is_running = False
        self._waiting_puts: list[tuple[int, int]] = []  # events and bytes of each put that waits for room
        self._generation = 0  # grows with every stop: a waiter of an older one is woken with an error
        self._reset()

    def _reset(self) -> None:
        self._slots: dict[int, Entry] = {}  # by slot, of the entries held
        self._put_sequence = self._get_sequence = self._released_sequence = self._ack_sequence = -1
        self._put_bytes = self._get_bytes = self._released_bytes = 0
        self._oldest = 0  # sequence of the oldest event still held
        self._get_entry = 0  # slot sequence of the entry that holds the next event to get
        self._retained: deque[Retained] = deque()
        self._last_isolated = -1  # last sequence of the newest isolated entry
        self._newest: Entry | None = None
        self._last_freed: Position | None = None
        self._open_gtid = ""
        self._has_ended = False
        self._error: BaseException | None = None
        self._next_batch_id = 1

    # -- life (S12) ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._lock:
            self._reset()
            self._keeper.open()
            self._is_running = True

    def stop(self) -> None:
        with self._lock:
            self._reset()
            if self._is_running:
                self._keeper.close()
            self._is_running = False
            self._generation += 1
            self._not_full.notify_all()
            self._not_empty.notify_all()

    def clean_all(self) -> None:
        with self._lock:
            self._check_running()
            self._reset()
            self._keeper.clean()
            self._not_full.notify_all()

    def clean_until(self, position: Position) -> None:
        with self._lock:
            self._check_running()
            sequence = self._sequence_at(position)
            acked = self._position_at(sequence)
            self._free_until(max(sequence, self._released_sequence))
            self._ack_sequence = sequence
            while self._retained and self._retained[0].last <= sequence:
                self._retained.popleft()
            self._keeper.acked(sequence, acked)
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
        wanted = (count, sum(part.event_bytes for part in parts))
        with self._lock:
            self._check_running()
            if count and not self._has_room(*wanted):
                self._waiting_puts.append(wanted)
                self._not_empty.notify_all()
                try:
                    has_room = self._wait(self._not_full, lambda: self._has_room(*wanted), timeout_s)
                finally:
                    self._waiting_puts.remove(wanted)
                if not has_room:
                    return False
            if count and self._has_ended:
                raise StoreError(
                    "events were put after the end of the input",
                    next_step="put before end_of_input, or start the store again",
                )
            if count:
                self._append(parts)
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

    def _has_room(self, count: int, count_bytes: int) -> bool:
        if self._put_sequence + count - self._released_sequence > self._size:
            return False
        if self._counts_bytes and self._put_bytes - self._released_bytes >= self._size * self._unit_bytes:
            return False
        return self._keeper.has_room(count, count_bytes)

    def _append(self, parts: list[EventSlice]) -> None:
        first, bytes_before, open_gtid = self._put_sequence + 1, self._put_bytes, self._open_gtid
        placed = []
        for part in parts:
            if part.kind is SliceKind.OPEN_PIECE:
                open_gtid = positions.gtid_text(part.chunk, part.first) or open_gtid
            continues = part.kind in (SliceKind.OPEN_PIECE, SliceKind.LAST_PIECE)
            last = first + part.event_count - 1
            gtid = open_gtid if continues else ""
            placed.append(HeldEntry(first, last, part.event_bytes, part.kind, bytes_before, gtid, part))
            if part.kind is not SliceKind.OPEN_PIECE:
                open_gtid = ""
            first, bytes_before = last + 1, bytes_before + part.event_bytes
        for entry in self._keeper.keep(placed):
            self._insert(entry)
        self._open_gtid = open_gtid

    def _insert(self, entry: Entry) -> None:
        """Make a kept entry the newest."""
        self._slots[entry.first & (self._size - 1)] = entry
        if entry.is_isolated:
            self._last_isolated = entry.last
        self._newest = entry
        self._put_sequence = entry.last
        self._put_bytes = entry.bytes_before + entry.event_bytes

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
        return self._ddl_isolation and self._last_isolated > self._get_sequence

    def _waits_in_vain(self) -> bool:
        """True where nothing more will come before this get returns (S13)."""
        if self._has_ended:
            return True
        return bool(self._waiting_puts) and not any(self._has_room(*wanted) for wanted in self._waiting_puts)

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
        taken: list[Taken] = []
        sequence = first
        left = size * self._unit_bytes if self._counts_bytes else size  # bytes, or events
        while entry_first <= self._put_sequence and left > 0:
            entry = self._entry(entry_first)
            if self._ddl_isolation and entry.is_isolated and taken:
                break
            part = entry.load()
            row = sequence - entry.first
            stop, measure = self._stop_row(part, row, left)
            taken.append(Taken(entry, part, row, stop))
            left -= measure
            sequence = entry.first + stop
            if sequence <= entry.last:
                break
            entry_first = sequence
            if self._ddl_isolation and entry.is_isolated:
                break
        batch, ack_sequence = self._batch(taken, sequence - 1)
        got_bytes = taken[-1].entry.bytes_until(sequence - 1)
        assert batch.range is not None
        self._retained.append(Retained(first, sequence - 1, batch.range, ack_sequence))
        self._next_batch_id += 1
        self._get_sequence, self._get_bytes, self._get_entry = sequence - 1, got_bytes, entry_first
        return batch

    def _stop_row(self, part: EventSlice, row: int, left: int) -> tuple[int, int]:
        """Row after the last that a batch takes of the slice, the first with which `left` is reached, and the measure
        (events, or bytes) of what it takes."""
        count = part.event_count
        if not self._counts_bytes:
            stop = count if part.is_isolated else min(count, row + left)
            return stop, stop - row
        if row == 0 and (part.is_isolated or part.event_bytes <= left):
            return count, part.event_bytes
        bytes_taken = np.cumsum(part.events["event_length"][row:], dtype=np.int64)
        at = len(bytes_taken) - 1 if part.is_isolated else int(np.searchsorted(bytes_taken, left))
        at = min(at, len(bytes_taken) - 1)
        return row + at + 1, int(bytes_taken[at])

    def _batch(self, taken: list[Taken], last: int) -> tuple[Batch, int]:
        """The batch of what was taken up to sequence `last`, and the sequence of its ack position (-1 for none)."""
        slices = tuple(piece for one in taken for piece in cut(one.part, one.row, one.stop))
        ack: Position | None = None
        resume: Position | None = None
        ack_sequence = -1
        for one in reversed(taken):
            at = positions.last_ackable_row(one.part.part(one.row, one.stop))
            if at >= 0:
                at += one.row
                ack = positions.event_position(one.part, at, open_gtid=one.entry.open_gtid)
                resume = positions.resume_position(one.part, at, open_gtid=one.entry.open_gtid)
                ack_sequence = one.entry.first + at
                break
        begin, end = taken[0], taken[-1]
        span = PositionRange(
            start=positions.event_position(begin.part, begin.row, open_gtid=begin.entry.open_gtid),
            end=positions.event_position(end.part, end.stop - 1, open_gtid=end.entry.open_gtid),
            ack=ack,
            resume=resume,
        )
        return Batch(self._next_batch_id, slices, span, last), ack_sequence

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
            for candidate, sequence in batch.places:
                is_open = self._ack_sequence < sequence <= self._get_sequence
                if candidate is not None and is_open and is_at(candidate, position):
                    found = max(found, sequence)
        sequence = self._oldest
        while sequence <= self._get_sequence:
            entry = self._entry(sequence)
            row = -1
            if entry.may_hold(position):
                row = row_at(entry.load(), position, self._get_sequence - entry.first + 1)
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
        freed = self._position_at(sequence)
        while self._oldest <= sequence:
            entry = self._entry(self._oldest)
            stop = min(entry.last, sequence)
            self._released_bytes = entry.bytes_until(stop)
            del self._slots[self._oldest & (self._size - 1)]
            if entry.last > sequence:
                # The slots before are free for new entries: what is left stands in that of its own first event.
                self._slots[(sequence + 1) & (self._size - 1)] = entry
                if self._get_entry == self._oldest:
                    self._get_entry = sequence + 1
                self._oldest = sequence + 1
                break
            self._keeper.forget(entry)
            self._oldest = entry.last + 1
        self._released_sequence = sequence
        self._last_freed = freed
        if self._newest is not None and self._newest.last <= sequence:
            self._newest = None
        self._keeper.released(sequence)

    # -- what is there (S2, S11) --------------------------------------------------------------------------------------

    def first_position(self) -> Position | None:
        with self._lock:
            if self._put_sequence == self._released_sequence:
                return self._last_freed
            sequence = self._released_sequence + 1
            included = self._released_sequence >= 0
            return replace(self._position_at(sequence), included=included)

    def latest_position(self) -> Position | None:
        with self._lock:
            if self._put_sequence == self._released_sequence:
                return self._last_freed
            return self._position_at(self._put_sequence)

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
        assert entry.first <= sequence <= entry.last
        return entry

    def _entry_of(self, sequence: int) -> int:
        """Sequence of the first event still held of the entry that holds `sequence`."""
        first = self._oldest
        while self._entry(first).last < sequence:
            first = self._entry(first).last + 1
        return first

    def _position_at(self, sequence: int) -> Position:
        """Position of the event with this sequence, which is held or in the range of a batch that was not acked."""
        for batch in reversed(self._retained):
            for position, place in batch.places:
                if place == sequence and position is not None:
                    return position
        newest = self._newest
        is_newest = newest is not None and newest.first <= sequence
        entry = newest if newest is not None and is_newest else self._entry(self._entry_of(sequence))
        return positions.event_position(entry.load(), sequence - entry.first, open_gtid=entry.open_gtid)

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
