"""The state of a ring: sequences, entries in slots, positions of events (SPEC S1, S2, S9, S11).

Rules:
- Four sequences, all -1 at the start: ack <= released <= get <= put. An entry is in the slot of its
  first retained event, ``sequence & (size - 1)``, and occupies one sequence per event.
- All numbers are Python integers and cannot overflow.
- Nothing changes before everything that can fail has succeeded, such as loading an entry from a
  file.
- The keeper decides where entries are kept. The ring locks and waits; this class does neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from cdc_pipeline.binlog.chunk import SliceKind
from cdc_pipeline.errors import AckPositionError
from cdc_pipeline.position.position import Position
from cdc_pipeline.store import positions
from cdc_pipeline.store.entries import Entry, Keeper, is_at, row_at
from cdc_pipeline.store.ranges import BatchRange

STATEMENT = SliceKind.STATEMENT


class RetainedEvents:
    """Between ack and put, of `size` sequences."""

    def __init__(self, keeper: Keeper, size: int) -> None:
        self._keeper = keeper
        self._size = size
        self._mask = size - 1
        self._reset()

    def _reset(self) -> None:
        self._slots: dict[int, Entry] = {}  # retained entries by slot
        self._put_sequence = self._get_sequence = self._released_sequence = self._ack_sequence = -1
        self._put_bytes = self._get_bytes = self._released_bytes = 0
        self._oldest = 0  # sequence of the oldest event still retained
        self._get_entry = 0  # slot sequence of the entry with the next event to get
        self._retained: deque[BatchRange] = deque()  # of batches got and not acked, oldest first
        self._last_isolated = -1  # last sequence of the newest isolated entry
        self._newest: Entry | None = None
        self._last_freed: Position | None = None
        self._open_gtid = ""

    # -- entries -----------------------------------------------------------------------------------

    def _insert(self, entries: Sequence[Entry]) -> None:
        slots, mask = self._slots, self._mask
        for entry in entries:
            slots[entry.first & mask] = entry
            if entry.kind is STATEMENT:
                self._last_isolated = entry.last
        self._newest = entry
        self._put_sequence = entry.last
        self._put_bytes = entry.bytes_before + entry.event_bytes

    def _entry(self, sequence: int) -> Entry:
        entry = self._slots[sequence & self._mask]
        assert entry.first <= sequence <= entry.last
        return entry

    def _entry_of(self, sequence: int) -> int:
        first = self._oldest
        while self._entry(first).last < sequence:
            first = self._entry(first).last + 1
        return first

    # -- positions ---------------------------------------------------------------------------------

    def _find(self, position: Position) -> tuple[int, Position]:
        """Sequence and position of the event at `position`, among those got and not acked (S9)."""
        for span in self._retained:
            sequence = span.sequence_of(position)
            if self._ack_sequence < sequence <= self._get_sequence:
                return sequence, position
        sequence = self._search(position)
        if sequence < 0:
            raise AckPositionError(
                "this position has no event that was got but not acked",
                at=position,
                expected="the position of an event in a batch that was got but not acked",
                got=f"{position} at timestamp {position.timestamp_s}",
                next_step="ack the range of a batch that was got; roll back and get "
                "again if in doubt",
            )
        return sequence, self._position_at(sequence)

    def _search(self, position: Position) -> int:
        """By comparing positions; -1 if there is none."""
        newest = -1
        for span in self._retained:
            if not span.is_settled:
                continue  # all of its events are retained
            for candidate, sequence in span.known_positions:
                is_open = self._ack_sequence < sequence <= self._get_sequence
                if candidate is not None and is_open and is_at(candidate, position):
                    newest = max(newest, sequence)
        sequence = self._oldest
        while sequence <= self._get_sequence:
            entry = self._entry(sequence)
            row = -1
            if entry.may_hold(position):
                row = row_at(entry.load(), position, self._get_sequence - entry.first + 1)
            if row >= 0 and entry.first + row > self._ack_sequence:
                newest = max(newest, entry.first + row)
            sequence = entry.last + 1
        return newest

    def _position_at(self, sequence: int) -> Position:
        """The position of an event that is retained or in the range of a batch not yet acked."""
        for span in reversed(self._retained):
            for position, read_sequence in span.known_positions:
                if read_sequence == sequence and position is not None:
                    return position
        newest = self._newest
        is_newest = newest is not None and newest.first <= sequence
        entry = (
            newest if newest is not None and is_newest else self._entry(self._entry_of(sequence))
        )
        return positions.event_position(
            entry.load(), sequence - entry.first, open_gtid=entry.open_gtid
        )

    # -- freeing -----------------------------------------------------------------------------------

    def _free_until(self, sequence: int, freed: Position) -> None:
        """Move `released` to `sequence`, whose event is at `freed`; drop the entries up to it."""
        if sequence <= self._released_sequence:
            return
        while self._oldest <= sequence:
            entry = self._entry(self._oldest)
            stop = min(entry.last, sequence)
            self._released_bytes = entry.bytes_until(stop)
            del self._slots[self._oldest & self._mask]
            if entry.last > sequence:
                # The slots before are free for new entries: the rest moves to the slot of its first
                # event.
                self._slots[(sequence + 1) & self._mask] = entry
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

    def _settle_until(self, sequence: int) -> None:
        for span in reversed(self._retained):
            if span.last <= self._released_sequence:
                break
            if span.first <= sequence:
                span.settle()
