"""The ring: room, waiting and batches (SPEC S1-S14; K9: memory is bounded).

Rules:
- Events that were got and durably staged are *released*, and rollback returns there. If `release`
  is not used, released equals ack, exactly as in SPEC.
- Room, in events and in bytes, counts from `released`: waiting = put - get, retained = put -
  released. The ring is full for n events if put + n - released > size. In MEMSIZE a put also waits
  while the retained bytes reach size * memory unit.
- One lock and two conditions, notified only if a thread waits. A get that waits for a full batch
  while a put waits for room returns whatever is stored (S13).
- A batch next to an isolated slice is full: waiting cannot make it longer.
- Nothing changes before everything that can fail has succeeded: keeping entries on put, loading
  them on get.
- The keeper is called under the lock. Sequences and entries: see `cdc_pipeline.store.retained`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.errors import EventListTooLargeError, RingSizeError, StoreClosedError, StoreError
from cdc_pipeline.position.position import Position
from cdc_pipeline.store import positions
from cdc_pipeline.store.entries import Keeper, MemoryEntry, cut
from cdc_pipeline.store.ranges import Batch, BatchRange, Taken
from cdc_pipeline.store.retained import STATEMENT, RetainedEvents

DEFAULT_RING_EVENTS: Final = 16384
UNBOUNDED_EVENTS: Final = 1 << 40
DEFAULT_MEMORY_UNIT_BYTES: Final = 1024
EMPTY_BATCH: Final = Batch(slices=(), range=None, last_sequence=-1)

BatchMode = Literal["itemsize", "memsize"]

_OPEN_PIECE, _LAST_PIECE = SliceKind.OPEN_PIECE, SliceKind.LAST_PIECE


class RingStore(RetainedEvents):
    """A store between one putting and one getting thread (more are allowed).

    An empty batch does not mean the end: if a put waits for room that only an ack or a release
    can make, a waiting get returns whatever is stored, perhaps nothing (SPEC S13). `is_drained`
    tells the end.

    Args:
        ring_events: size of the ring, a power of two.
        keeper: stores the entries; by default slices stay in memory.
        batch_mode: whether room and batch sizes count events or also bytes (S3).
        memory_unit_bytes: unit of a batch size in MEMSIZE; the budget is `ring_events` units.
        ddl_isolation: whether a STATEMENT slice is alone in its batch (S7).

    Raises RingSizeError: `ring_events` is not a power of two (S1).
    """

    def __init__(
        self,
        ring_events: int = DEFAULT_RING_EVENTS,
        *,
        keeper: Keeper | None = None,
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
        self._counts_bytes = batch_mode == "memsize"
        self._unit_bytes = memory_unit_bytes
        self._bytes_max = ring_events * memory_unit_bytes
        self._ddl_isolation = ddl_isolation
        self._lock = threading.Lock()
        self._not_full = threading.Condition(self._lock)
        self._not_empty = threading.Condition(self._lock)
        self._is_running = False
        self._waiting_puts: list[tuple[int, int]] = []  # events and bytes of each waiting put
        self._waiting_gets: list[int] = []  # the batch size that each wants
        self._generation = 0  # increases on stop: waiters of an older one get an error
        super().__init__(keeper or Keeper(), ring_events)

    def _reset(self) -> None:
        super()._reset()
        self._has_ended = False
        self._error: BaseException | None = None

    # -- life (S12) --------------------------------------------------------------------------------

    def start(self) -> None:
        """Allocate the store and set all counters to -1 (SPEC S12)."""
        with self._lock:
            self._reset()
            self._keeper.open()
            self._is_running = True

    def stop(self) -> None:
        """Drop everything, and wake every waiter with StoreClosedError (SPEC S12)."""
        with self._lock:
            self._reset()
            if self._is_running:
                self._keeper.close()
            self._is_running = False
            self._generation += 1
            self._not_full.notify_all()
            self._not_empty.notify_all()

    def clean_all(self) -> None:
        """Drop every event and reset every counter; the store stays usable (SPEC S12)."""
        with self._lock:
            self._check_running()
            self._reset()
            self._keeper.clean()
            self._not_full.notify_all()

    def clean_until(self, position: Position) -> None:
        """Drop the events up to `position`; `ack` calls this (SPEC S12)."""
        with self._lock:
            self._check_running()
            sequence, acked = self._find(position)
            retained = self._retained
            if sequence > self._released_sequence:
                # A range that is acked as a whole goes with its events; one that is cut outlives
                # some of them.
                for span in retained:
                    if span.last > sequence:
                        if span.first > sequence:
                            break
                        span.settle()
                self._free_until(sequence, acked)
            self._ack_sequence = sequence
            while retained and retained[0].last <= sequence:
                retained.popleft()
            if self._waiting_puts:
                self._not_full.notify_all()

    # -- put (S4) ----------------------------------------------------------------------------------

    def put(
        self, slices: Sequence[EventSlice] | EventSlice, *, timeout_s: float | None = None
    ) -> bool:
        """All or nothing, when there is room (SPEC S4); False on timeout. EventListTooLargeError:
        more events than the ring can hold; StoreClosedError: stopped while waiting.
        """
        parts = (slices,) if isinstance(slices, EventSlice) else slices
        count = count_bytes = 0
        for part in parts:
            count += part.stop - part.first
            count_bytes += part.event_bytes
        if count > self._size:
            raise EventListTooLargeError(
                "the list of events is larger than the ring",
                expected=f"at most {self._size} events",
                got=f"{count} events",
                setting="store.ring_events",
                next_step="put the events in several pieces, or raise store.ring_events",
            )
        with self._lock:
            self._check_running()
            if not count:
                return True
            if not self._has_room(count, count_bytes) and not self._wait_for_room(
                (count, count_bytes), timeout_s
            ):
                return False
            if self._has_ended:
                raise StoreError(
                    "events were put after the end of the input",
                    next_step="put events before end_of_input, or start the store again",
                )
            self._append(parts)
            # Do not wake a get that would only wait again: it would take the interpreter from the
            # reader each time.
            if self._waiting_gets and (
                self._waits_in_vain() or any(map(self._is_full_batch, self._waiting_gets))
            ):
                self._not_empty.notify_all()
            return True

    def try_put(self, slices: Sequence[EventSlice] | EventSlice) -> bool:
        """Do the same as `put`, but return False at once if there is no room."""
        return self.put(slices, timeout_s=0)

    def end_of_input(self) -> None:
        """Mark the end of the input: gets no longer wait for a full batch."""
        with self._lock:
            if not self._is_running:  # the reader may finish after the drain has stopped the store
                return
            self._has_ended = True
            self._not_empty.notify_all()

    def fail(self, error: BaseException) -> None:
        """After the last stored event, `get` and `try_get` raise `error`."""
        with self._lock:
            if not self._is_running:
                return
            self._has_ended = True
            self._error = error
            self._not_empty.notify_all()

    def _has_room(self, count: int, count_bytes: int) -> bool:
        if self._put_sequence + count - self._released_sequence > self._size:
            return False
        if self._counts_bytes and self._put_bytes - self._released_bytes >= self._bytes_max:
            return False
        return self._keeper.has_room(count, count_bytes)

    def _wait_for_room(self, wanted: tuple[int, int], timeout_s: float | None) -> bool:
        self._waiting_puts.append(wanted)
        self._not_empty.notify_all()  # a get can no longer wait for a full batch
        try:
            return self._wait(self._not_full, lambda: self._has_room(*wanted), timeout_s)
        finally:
            self._waiting_puts.remove(wanted)

    def _append(self, parts: Sequence[EventSlice]) -> None:
        first, bytes_before, open_gtid = self._put_sequence + 1, self._put_bytes, self._open_gtid
        placed = []
        for part in parts:
            count, kind, event_bytes = part.stop - part.first, part.kind, part.event_bytes
            if not count:
                continue
            gtid = ""
            if kind is _OPEN_PIECE:
                gtid = open_gtid = positions.gtid_text(part.chunk, part.first) or open_gtid
            else:
                if kind is _LAST_PIECE:
                    gtid = open_gtid
                open_gtid = ""
            last = first + count - 1
            placed.append(MemoryEntry(first, last, event_bytes, kind, bytes_before, gtid, part))
            first, bytes_before = last + 1, bytes_before + event_bytes
        self._insert(self._keeper.keep(placed))
        self._open_gtid = open_gtid

    # -- get (S5-S8) -------------------------------------------------------------------------------

    def get(
        self, size: int, *, start: Position | None = None, timeout_s: float | None = None
    ) -> Batch:
        """A full batch; on timeout whatever is stored (SPEC S5, S6). `size`: events, or memory
        units.
        """
        if size < 1:
            raise StoreError(
                "a batch holds at least one event",
                got=size,
                next_step="get with a size of 1 or more",
            )
        with self._lock:
            self._check_running()
            if not self._is_full_batch(size):
                self._waiting_gets.append(size)
                try:
                    self._wait(
                        self._not_empty,
                        lambda: self._is_full_batch(size) or self._waits_in_vain(),
                        timeout_s,
                    )
                finally:
                    self._waiting_gets.remove(size)
            return self._take(size, start)

    def try_get(self, size: int, *, start: Position | None = None) -> Batch:
        """Whatever is stored, up to `size`; an empty batch if the store is empty."""
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
        """Whether nothing more can arrive before this get returns (S13)."""
        if self._has_ended:
            return True
        return bool(self._waiting_puts) and not any(
            self._has_room(*wanted) for wanted in self._waiting_puts
        )

    def _take(self, size: int, start: Position | None) -> Batch:
        first = self._get_sequence + 1
        entry_first = self._get_entry
        # S6: `included` begins at the get position itself, if its event is still retained.
        if start is not None and start.included and self._get_sequence > self._released_sequence:
            first = self._get_sequence
            entry_first = self._entry_of(first)
        if first > self._put_sequence:
            if self._error is not None:
                raise self._error
            return EMPTY_BATCH
        taken: list[Taken] = []
        slices: list[EventSlice] = []
        are_in_memory = True
        sequence = first
        counts_bytes = self._counts_bytes
        left = size * self._unit_bytes if counts_bytes else size  # bytes, or events
        while entry_first <= self._put_sequence and left > 0:
            entry = self._slots[entry_first & self._mask]
            is_alone = entry.kind is STATEMENT and self._ddl_isolation
            if is_alone and taken:
                break
            part = entry.load()
            are_in_memory = are_in_memory and entry.is_in_memory
            count = entry.last - entry.first + 1
            measure = entry.event_bytes if counts_bytes else count
            row = sequence - entry.first
            if row == 0 and measure <= left:  # most entries are taken whole
                taken.append((entry, part, 0, count))
                slices.append(part)
            else:
                stop, measure = self._stop_row(part, row, left)
                taken.append((entry, part, row, stop))
                slices.extend(cut(part, row, stop))
                if stop < count:
                    sequence += stop - row
                    break
            left -= measure
            sequence = entry_first = entry.last + 1
            if is_alone:
                break
        last = sequence - 1
        got_bytes = entry.bytes_until(last)
        span = BatchRange(first, last, taken)
        if not are_in_memory:
            span.settle()
        self._retained.append(span)
        self._get_sequence, self._get_bytes, self._get_entry = last, got_bytes, entry_first
        return Batch(tuple(slices), span, last)

    def _stop_row(self, part: EventSlice, row: int, left: int) -> tuple[int, int]:
        """The row after the last that a batch takes, and the size in events or bytes."""
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

    # -- release, ack, rollback (S9, S10, K9) ------------------------------------------------------

    def release(self, sequence: int) -> None:
        """They were got and are durably staged: their room is free (K9)."""
        with self._lock:
            self._check_running()
            if sequence > self._get_sequence:
                raise StoreError(
                    "events that were not got cannot be released",
                    expected=f"a sequence up to {self._get_sequence}",
                    got=sequence,
                    next_step="release a batch's last_sequence after it was staged",
                )
            if sequence > self._released_sequence:
                self._settle_until(sequence)
                self._free_until(sequence, self._position_at(sequence))
            if self._waiting_puts:
                self._not_full.notify_all()

    def ack(self, position: Position) -> None:
        """Move ack there. AckPositionError: it is none of those got and not yet acked (SPEC S9)."""
        self.clean_until(position)

    def rollback(self) -> None:
        """Move get to released (without release, to ack): the same events come again (SPEC S10)."""
        with self._lock:
            self._check_running()
            self._get_sequence = self._released_sequence
            self._get_bytes = self._released_bytes
            self._get_entry = self._oldest
            while self._retained and self._retained[-1].first > self._released_sequence:
                self._retained.pop()
            self._not_empty.notify_all()

    # -- state (S2, S11) ------- -------------------------------------------------------------------

    def first_position(self) -> Position | None:
        """Of the oldest event that is not released, or None (SPEC S11)."""
        with self._lock:
            if self._put_sequence == self._released_sequence:
                return self._last_freed
            sequence = self._released_sequence + 1
            included = self._released_sequence >= 0
            return replace(self._position_at(sequence), included=included)

    def latest_position(self) -> Position | None:
        """The position of the newest event; None if there is none (SPEC S11)."""
        with self._lock:
            if self._put_sequence == self._released_sequence:
                return self._last_freed
            return self._position_at(self._put_sequence)

    @property
    def is_drained(self) -> bool:
        """Whether the input has ended and every event was got."""
        with self._lock:
            return (
                self._has_ended and self._error is None and self._get_sequence == self._put_sequence
            )

    @property
    def waiting_events(self) -> int:
        """The number of events put and not yet got (S2)."""
        with self._lock:
            return self._put_sequence - self._get_sequence

    @property
    def retained_events(self) -> int:
        """The number of events that occupy room, counted from `released` (S2)."""
        with self._lock:
            return self._put_sequence - self._released_sequence

    @property
    def retained_bytes(self) -> int:
        with self._lock:
            return self._put_bytes - self._released_bytes

    @property
    def sequences(self) -> tuple[int, int, int, int]:
        """(ack, released, get, put) (S1)."""
        with self._lock:
            return (
                self._ack_sequence,
                self._released_sequence,
                self._get_sequence,
                self._put_sequence,
            )

    # -- internals ---------------------------------------------------------------------------------

    def _check_running(self, generation: int | None = None) -> None:
        if not self._is_running or generation not in (None, self._generation):
            raise StoreClosedError(
                "the store is stopped",
                next_step="start it; everything after the last acked position is read again",
            )

    def _wait(
        self, condition: threading.Condition, is_met: Callable[[], bool], timeout_s: float | None
    ) -> bool:
        """False on timeout. StoreClosedError: the store is stopped."""
        generation = self._generation
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_met():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            condition.wait(left)
            self._check_running(generation)
        return True
