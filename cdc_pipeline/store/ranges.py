"""The position range of a batch, computed on first use (SPEC S8, S9).

Rules:
- A range refers to the events of its batch and reads each position from them on first use: callers
  need one or two of the four positions of most batches, and none of many.
- It is *settled* before its events are dropped: then it has its positions and no events, so that a
  range that outlives the release of its batch keeps no memory (K9). A range of events that were
  loaded for one get is settled at once.
- `ack` recognises a position that a range returned by object identity, and compares others (S9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.position.position import Position
from cdc_pipeline.store import positions
from cdc_pipeline.store.entries import Entry

Taken = tuple[Entry, EventSlice, int, int]
"""Rows [row, stop) of an entry's slice, on their way into a batch: (entry, slice, row, stop)."""

_NOT_LOOKED_FOR = -2


class BatchRange:
    """Positions of the events with sequences `first` to `last` (SPEC S8).

    Its properties may be read from any thread; `settle` is called under the ring's lock.
    """

    # Unread positions are class attributes: every get makes a range, and few are read.
    _start: Position | None = None
    _end: Position | None = None
    _ack: Position | None = None
    _resume: Position | None = None
    _ack_sequence = _NOT_LOOKED_FOR

    def __init__(self, first: int, last: int, taken: Sequence[Taken]) -> None:
        self.first = first
        self.last = last
        self._taken = taken

    # Each property first takes a reference to the events: `settle` fills in every position before
    # it drops them.

    @property
    def start(self) -> Position:
        """Position of the first event."""
        taken = self._taken
        if self._start is None:
            entry, part, row, _ = taken[0]
            self._start = positions.event_position(part, row, open_gtid=entry.open_gtid)
        return self._start

    @property
    def end(self) -> Position:
        """Position of the last event."""
        taken = self._taken
        if self._end is None:
            entry, part, _, stop = taken[-1]
            self._end = positions.event_position(part, stop - 1, open_gtid=entry.open_gtid)
        return self._end

    @property
    def ack(self) -> Position | None:
        """Of the last event that a cursor may point to: a transaction's end or a DDL (without
        GTIDs also a begin); None if the batch has none.
        """
        self._look_for_ack()
        return self._ack

    @property
    def resume(self) -> Position | None:
        """Where reading continues after `ack` (its `next_offset`; of a begin the begin itself), or
        None.
        """
        self._look_for_ack()
        return self._resume

    def _look_for_ack(self) -> None:
        taken = self._taken
        if self._ack_sequence != _NOT_LOOKED_FOR:
            return
        for entry, part, row, stop in reversed(taken):
            at = positions.last_ackable_row(part, row, stop)
            if at >= 0:
                self._ack = positions.event_position(part, at, open_gtid=entry.open_gtid)
                self._resume = positions.resume_after(self._ack, part, at)
                self._ack_sequence = entry.first + at
                return
        self._ack_sequence = -1

    @property
    def is_settled(self) -> bool:
        return not self._taken

    def settle(self) -> None:
        """Read all positions and drop the events."""
        if self._taken:
            _ = self.start, self.end, self.ack
            self._taken = ()

    @property
    def known_positions(self) -> tuple[tuple[Position | None, int], ...]:
        """The positions read so far, with the sequences of their events."""
        return (self._end, self.last), (self._ack, self._ack_sequence), (self._start, self.first)

    def sequence_of(self, position: Position) -> int:
        """By the very object; -1 if it is not from this range."""
        if position is self._end:
            return self.last
        if position is self._ack:
            return self._ack_sequence
        return self.first if position is self._start else -1


@dataclass(slots=True, eq=False)
class Batch:
    """Of one get. Immutable by convention: a frozen class costs too much for every get. An empty
    one has no slices and no range; `release` and `ack` refer to `last_sequence`.
    """

    slices: tuple[EventSlice, ...]
    range: BatchRange | None
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
