"""The store's contract: what every event store does, whatever it keeps its events in (SPEC S1-S14, K9).

Rules:
- Sequences count events, start at -1 and only grow (rollback aside): ack <= released <= get <= put.
- An entry is an `EventSlice` and occupies as many sequences as it has events; get may split it, a slot is
  ``sequence & (size - 1)``.
- What was got and durably staged is *released*: room and memory count from there, rollback returns to there. Without
  release, released equals ack and SPEC holds to the letter.
- An isolated slice (DDL) is returned alone in its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.position.position import Position


class PositionRange(Protocol):
    """Positions of a batch (SPEC S8), each read from its events when it is first asked for."""

    @property
    def start(self) -> Position:
        """Of its first event."""

    @property
    def end(self) -> Position:
        """Of its last event."""

    @property
    def ack(self) -> Position | None:
        """Of the last event that a cursor may stand on: a transaction's end or a DDL (and, without GTIDs, a
        transaction's begin); None where the batch holds none."""

    @property
    def resume(self) -> Position | None:
        """Where reading goes on after the event at `ack` (its `next_offset`): what a cursor records; None where `ack`
        is. For a transaction's begin it is the begin itself."""


@dataclass(slots=True, eq=False)
class Batch:
    """What one get returned. Nothing changes it; it is not frozen because one is made for every get.

    Attributes:
        batch_id: grows by one per batch; -1 for an empty batch.
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

    An empty batch does not mean the end: where a put waits for room that only an ack or a release can make, a waiting
    get returns what there is, perhaps nothing (SPEC S13). The end is `is_drained`.
    """

    def start(self) -> None:
        """Allocate; all counters at -1 (SPEC S12)."""

    def stop(self) -> None:
        """Drop everything, reset every counter and wake every waiter with StoreClosedError (SPEC S12)."""

    def put(self, slices: Sequence[EventSlice], *, timeout_s: float | None = None) -> bool:
        """Store the list whole or not at all (SPEC S4). Blocks for room; with a timeout returns False when it is up.

        Raises:
            EventListTooLargeError: more events than the ring can hold.
            StoreClosedError: stopped while waiting.
        """

    def try_put(self, slices: Sequence[EventSlice]) -> bool:
        """As `put`, but False at once where there is no room."""

    def get(self, size: int, *, start: Position | None = None, timeout_s: float | None = None) -> Batch:
        """Block until a full batch is there; with a timeout return what there is when it is up (SPEC S5, S6).

        `size` counts events (ITEMSIZE) or memory units (MEMSIZE).
        """

    def try_get(self, size: int, *, start: Position | None = None) -> Batch:
        """What there is, up to `size`; an empty batch where there is nothing."""

    def release(self, sequence: int) -> None:
        """Free the room of all events up to `sequence`: they were got and are durably staged (K9)."""

    def ack(self, position: Position) -> None:
        """Move ack to the event at `position` among those got and not acked (SPEC S9).

        Raises:
            AckPositionError: no event there; nothing changes.
        """

    def rollback(self) -> None:
        """Return get to what was released (without release: to ack): the same events come again (SPEC S10)."""

    def first_position(self) -> Position | None:
        """SPEC S11."""

    def latest_position(self) -> Position | None:
        """SPEC S11."""

    def clean_all(self) -> None:
        """Drop every event and reset every counter; the store stays usable (SPEC S12)."""

    def clean_until(self, position: Position) -> None:
        """What `ack` calls (SPEC S12)."""

    def end_of_input(self) -> None:
        """The reader is done: waiting gets return what there is instead of waiting for a full batch."""

    def fail(self, error: BaseException) -> None:
        """The reader has failed: once all that was put has been got, `get` and `try_get` raise `error`."""

    @property
    def is_drained(self) -> bool:
        """True where the input has ended and every event has been got."""
