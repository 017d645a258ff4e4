"""What the ring keeps: slices with their sequences, and the ranges of batches that were got."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.position.position import Position
from cdc_pipeline.store.contract import PositionRange


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored slice.

    Attributes:
        first: sequence of its first event.
        part: the slice.
        bytes_before: bytes put before it, over the store's life.
        open_gtid: GTID of the transaction that the slice continues or begins and leaves open; "" for others.
    """

    first: int
    part: EventSlice
    bytes_before: int
    open_gtid: str

    @property
    def last(self) -> int:
        return self.first + self.part.event_count - 1

    def bytes_until(self, sequence: int) -> int:
        """Bytes put up to and with `sequence`, over the store's life."""
        if sequence == self.last:
            return self.bytes_before + self.part.event_bytes
        lengths = self.part.events["event_length"][: sequence - self.first + 1]
        return self.bytes_before + int(lengths.sum(dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Retained:
    """A batch that was got and not acked: its position range outlives the release of its events (K9)."""

    first: int
    last: int
    range: PositionRange
    ack_sequence: int


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
