"""What a store keeps: slices with their sequences."""

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
    """A stored slice, wherever its events are. Nothing changes it once it is made; it is not frozen because one is made
    for every put.

    Attributes:
        first: sequence of its first event.
        last: sequence of its last event.
        event_bytes: bytes of its events.
        kind: the slice's kind.
        bytes_before: bytes put before it, over the store's life.
        open_gtid: GTID of the transaction that the slice continues or begins and leaves open; "" for others.
    """

    first: int
    last: int
    event_bytes: int
    kind: SliceKind
    bytes_before: int
    open_gtid: str
    is_held: ClassVar[bool] = False  # its events are in the process as long as it is

    @abstractmethod
    def load(self) -> EventSlice:
        """The slice.

        Raises:
            StoreDamagedError: its bytes on disk are not what was put.
        """

    def may_hold(self, _wanted: Position) -> bool:
        """False where it is known without loading that no event of the entry is at the position (S9)."""
        return True

    @property
    def event_count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_isolated(self) -> bool:
        return self.kind is SliceKind.STATEMENT

    def bytes_until(self, sequence: int) -> int:
        """Bytes put up to and with `sequence`, over the store's life."""
        if sequence == self.last:
            return self.bytes_before + self.event_bytes
        lengths = self.load().events["event_length"][: sequence - self.first + 1]
        return self.bytes_before + int(lengths.sum(dtype=np.int64))


@dataclass(slots=True, eq=False)
class HeldEntry(Entry):
    """An entry whose slice is in the process."""

    part: EventSlice
    is_held: ClassVar[bool] = True

    def load(self) -> EventSlice:
        return self.part


class Keeper(Protocol):
    """Where a ring's entries are kept. Every call comes under the ring's lock."""

    def open(self) -> None:
        """The store starts, empty."""

    def close(self) -> None:
        """The store stops; everything is dropped."""

    def clean(self) -> None:
        """Everything is dropped, the store goes on."""

    def has_room(self, events: int, event_bytes: int, /) -> bool:
        """Whether a list of this size may come now; True where nothing is held."""

    def keep(self, entries: list[HeldEntry], /) -> Sequence[Entry]:
        """Keep all of these entries or, with an error, none of them; what stands for them from now on."""

    def forget(self, entry: Entry, /) -> None:
        """All events of the entry are released."""

    def released(self, sequence: int, /) -> None:
        """Released moved here; every entry up to it was forgotten."""


def is_at(candidate: Position, wanted: Position) -> bool:
    """S9: timestamps are equal, and journal and offset where given."""
    return (
        candidate.timestamp_s == wanted.timestamp_s
        and wanted.journal in ("", candidate.journal)
        and wanted.offset in (0, candidate.offset)
    )


def row_at(part: EventSlice, wanted: Position, stop: int) -> int:
    """Row before `stop` of the slice that is at the position; -1 for none.

    Without an offset the first of several events of one second. With one the last: the events inside a payload share
    the payload's offset.
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
