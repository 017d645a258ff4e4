"""The contract of every event store, in memory or on disk (SPEC S1-S14; K9: memory is bounded).

Rules:
- Sequences count events, start at -1 and only grow, except on rollback: ack <= released <= get <=
  put.
- An entry is an `EventSlice` and occupies one sequence per event; get may split it. A slot is
  ``sequence & (size - 1)``.
- Events that were got and durably staged are *released*: room and memory count from there, and
  rollback returns there. If `release` is not used, released equals ack, exactly as in SPEC.
- An isolated slice (DDL) is returned alone in its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.position.position import Position


class PositionRange(Protocol):
    """Positions of a batch (SPEC S8), each read from its events on first use."""

    @property
    def start(self) -> Position:
        """Position of the first event."""

    @property
    def end(self) -> Position:
        """Position of the last event."""

    @property
    def ack(self) -> Position | None:
        """Position of the last event that a cursor may point to: a transaction's end or a DDL (and,
        without GTIDs, a transaction's begin); None if the batch has none.
        """

    @property
    def resume(self) -> Position | None:
        """Position that a cursor records: where reading continues after the event at `ack` (its
        `next_offset`); None if `ack` is None. For a transaction's begin it is the begin itself.
        """


@dataclass(slots=True, eq=False)
class Batch:
    """The result of one get. Immutable by convention: a frozen class costs too much for every get.

    Attributes:
        batch_id: increases by one per batch; -1 for an empty batch.
        slices: the events, in order; () for an empty batch.
        range: None for an empty batch.
        last_sequence: sequence of the last event, which `release` and `ack` refer to.
    """

    batch_id: int
    slices: tuple[EventSlice, ...]
    range: PositionRange | None
    last_sequence: int

    @property
    def event_count(self) -> int:
        return sum(part.event_count for part in self.slices)

    @property
    def event_bytes(self) -> int:
        return sum(part.event_bytes for part in self.slices)

    @property
    def journal_bytes(self) -> int:
        return sum(part.journal_bytes for part in self.slices)


class EventStore(Protocol):
    """Between one putting and one getting thread (more are allowed).

    An empty batch does not mean the end: if a put waits for room that only an ack or a release
    can make, a waiting get returns whatever is stored, perhaps nothing (SPEC S13). `is_drained`
    tells the end.
    """

    def start(self) -> None:
        """Allocate the store and set all counters to -1 (SPEC S12)."""

    def stop(self) -> None:
        """Drop everything, reset every counter and wake every waiter with StoreClosedError (SPEC
        S12).
        """

    def put(self, slices: Sequence[EventSlice], *, timeout_s: float | None = None) -> bool:
        """Store the whole list or nothing (SPEC S4). Block until there is room; return False on
        timeout.

        Raises:
            EventListTooLargeError: more events than the ring can hold.
            StoreClosedError: stopped while waiting.
        """

    def try_put(self, slices: Sequence[EventSlice]) -> bool:
        """Do the same as `put`, but return False at once if there is no room."""

    def get(
        self, size: int, *, start: Position | None = None, timeout_s: float | None = None
    ) -> Batch:
        """Block until there is a full batch; on timeout return whatever is stored (SPEC S5, S6).

        `size` counts events (ITEMSIZE) or memory units (MEMSIZE).
        """

    def try_get(self, size: int, *, start: Position | None = None) -> Batch:
        """Whatever is stored, up to `size`; an empty batch if the store is empty."""

    def release(self, sequence: int) -> None:
        """Free the room of all events up to `sequence`: they were got and are durably staged
        (K9).
        """

    def ack(self, position: Position) -> None:
        """Move ack to the event at `position`, one of those got and not yet acked (SPEC S9). Raises
        AckPositionError: there is no such event; nothing changes.
        """

    def rollback(self) -> None:
        """Move get back to released (without release, to ack): the same events come again (SPEC
        S10).
        """

    def first_position(self) -> Position | None:
        """The position of the oldest event that is not released; None if there is none (SPEC
        S11).
        """

    def latest_position(self) -> Position | None:
        """The position of the newest event; None if there is none (SPEC S11)."""

    def clean_all(self) -> None:
        """Drop every event and reset every counter; the store stays usable (SPEC S12)."""

    def clean_until(self, position: Position) -> None:
        """Drop the events up to `position`; `ack` calls this (SPEC S12)."""

    def end_of_input(self) -> None:
        """Mark the end of the input: gets no longer wait for a full batch."""

    def fail(self, error: BaseException) -> None:
        """Mark the reader as failed: after the last stored event, `get` and `try_get` raise
        `error`.
        """

    @property
    def is_drained(self) -> bool:
        """Whether the input has ended and every event was got."""
