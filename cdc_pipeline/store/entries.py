"""The entries of a store: slices with their sequences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

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


class Keeper(Protocol):
    """Storage of a ring's entries. The ring calls it while holding its lock."""

    def open(self) -> None:
        """Start empty."""

    def close(self) -> None:
        """Stop and drop everything."""

    def clean(self) -> None:
        """Drop everything; the store continues."""

    def has_room(self, events: int, event_bytes: int, /) -> bool:
        """Whether a list of this size fits now; always True if nothing is stored."""

    def keep(self, entries: list[MemoryEntry], /) -> Sequence[Entry]:
        """All, or raise and keep none. Returns the entries that replace them."""

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
