"""Cut a slice into parts of the right kinds (K9: a transaction may pass the ring in pieces).

Rules:
- A part that ends inside a transaction ends with an OPEN_PIECE. The next part begins with a piece
  of the same transaction, whose last piece is a LAST_PIECE.
- A statement is never cut.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind


def _is_inside(events: np.ndarray, row: int) -> bool:
    """Whether a transaction that began before `row`, of whole transactions, includes it."""
    if not 0 < row < len(events):
        return False
    members = np.flatnonzero(events["tx_offset"][row:] >= 0)
    return bool(len(members)) and int(events["tx_ordinal"][row + members[0]]) > 0


def cut(part: EventSlice, first: int, stop: int) -> list[EventSlice]:
    """Rows [first, stop) of `part`, counted from its first row, as slices of the right kinds."""
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


def _end_of(events: np.ndarray, row: int) -> int:
    members = np.flatnonzero(events["tx_offset"][row:] >= 0)
    offset = events["tx_offset"][row + members[0]]
    return row + int(np.flatnonzero(events["tx_offset"][row:] == offset)[-1]) + 1
