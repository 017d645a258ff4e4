"""The entries of a store: slices with their sequences, and how a batch takes a part of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.position.position import Position


@dataclass(slots=True, eq=False)
class Entry(ABC):
    """In memory or on disk. Immutable by convention: a frozen class costs too much for every put.

    `first`, `last`: sequences; `bytes_before`: put since the store was started; `open_gtid`: of
    the transaction that it continues, or leaves open.
    """

    first: int
    last: int
    event_bytes: int
    kind: SliceKind
    bytes_before: int
    open_gtid: str
    is_in_memory: ClassVar[bool] = False  # whether its events stay in memory as long as it exists

    @abstractmethod
    def load(self) -> EventSlice:
        """Raises StoreDamagedError: its bytes on disk are not those that were put."""

    def may_hold(self, _wanted: Position) -> bool:
        """False if no event can be at the position, as far as is known unloaded (S9)."""
        return True

    @property
    def event_count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_isolated(self) -> bool:
        return self.kind is SliceKind.STATEMENT

    def bytes_until(self, sequence: int) -> int:
        """The bytes put up to and including `sequence` since the store was started."""
        if sequence == self.last:
            return self.bytes_before + self.event_bytes
        lengths = self.load().events["event_length"][: sequence - self.first + 1]
        return self.bytes_before + int(lengths.sum(dtype=np.int64))


@dataclass(slots=True, eq=False)
class MemoryEntry(Entry):
    part: EventSlice
    is_in_memory: ClassVar[bool] = True

    def load(self) -> EventSlice:
        return self.part


class Keeper:
    """Where a ring's entries are kept, here in memory. The ring calls it while holding its lock."""

    def open(self) -> None:
        """Start empty."""

    def close(self) -> None:
        """Stop and drop everything."""

    def clean(self) -> None:
        """Drop everything; the store continues."""

    def has_room(self, _events: int, _event_bytes: int, /) -> bool:
        """Whether a list of this size fits now; always True if nothing is stored."""
        return True

    def keep(self, entries: list[MemoryEntry], /) -> Sequence[Entry]:
        """All, or raise and keep none. Returns the entries that replace them."""
        return entries

    def forget(self, entry: Entry, /) -> None:
        """Drop an entry; all of its events are released."""

    def released(self, sequence: int, /) -> None:
        """Note that released moved to `sequence`; every entry up to it was forgotten."""


def is_at(candidate: Position, wanted: Position) -> bool:
    """Whether timestamps are equal, and journal and offset if `wanted` has them (S9)."""
    return (
        candidate.timestamp_s == wanted.timestamp_s
        and wanted.journal in ("", candidate.journal)
        and wanted.offset in (0, candidate.offset)
    )


def row_at(part: EventSlice, wanted: Position, stop: int) -> int:
    """-1 if there is none. Without an offset it is the first of several events of one second; with
    an offset the last, because the events inside a payload share its offset.
    """
    if wanted.journal not in ("", part.chunk.journal):
        return -1
    events = part.events[:stop]
    is_match = events["timestamp_s"] == wanted.timestamp_s
    if wanted.offset:
        is_match &= events["offset"] == wanted.offset
    rows = np.flatnonzero(is_match)
    if not len(rows):
        return -1
    return int(rows[-1] if wanted.offset else rows[0])


def cut(part: EventSlice, first: int, stop: int) -> list[EventSlice]:
    """Rows [first, stop) of `part`, counted from its first row, as slices of the right kinds (K9: a
    transaction may pass the ring in pieces).

    A part that ends inside a transaction ends with an OPEN_PIECE. The next part begins with a piece
    of the same transaction, whose last piece is a LAST_PIECE. A statement is never cut.
    """
    count = part.event_count
    if (first, stop) == (0, count):
        return [part]
    if part.kind is SliceKind.LAST_PIECE:
        kind = SliceKind.LAST_PIECE if stop == count else SliceKind.OPEN_PIECE
        return [replace(part.part(first, stop), kind=kind)]
    if part.kind is not SliceKind.TRANSACTIONS:
        return [part.part(first, stop)]
    events = part.events
    parts = []
    begins = np.flatnonzero((events["tx_offset"] >= 0) & (events["tx_ordinal"] == 0))
    if _is_inside(events, first):
        end = _end_of(events, first)
        if end > stop:
            return [replace(part.part(first, stop), kind=SliceKind.OPEN_PIECE)]
        parts.append(replace(part.part(first, end), kind=SliceKind.LAST_PIECE))
        first = end
    if _is_inside(events, stop):
        begin = int(begins[np.searchsorted(begins, stop) - 1])
        if begin > first:
            parts.append(part.part(first, begin))
        parts.append(replace(part.part(begin, stop), kind=SliceKind.OPEN_PIECE))
    elif stop > first:
        parts.append(part.part(first, stop))
    return parts


def _is_inside(events: np.ndarray, row: int) -> bool:
    """Whether a transaction that began before `row`, of whole transactions, includes it."""
    if not 0 < row < len(events):
        return False
    members = np.flatnonzero(events["tx_offset"][row:] >= 0)
    return bool(len(members)) and int(events["tx_ordinal"][row + members[0]]) > 0


def _end_of(events: np.ndarray, row: int) -> int:
    members = np.flatnonzero(events["tx_offset"][row:] >= 0)
    offset = events["tx_offset"][row + members[0]]
    return row + int(np.flatnonzero(events["tx_offset"][row:] == offset)[-1]) + 1
