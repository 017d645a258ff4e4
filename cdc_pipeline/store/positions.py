"""Positions of stored events (SPEC S8, S14).

Rules:
- The position of an event is that of its first byte, as in the articles: `Position.offset` is the event's own offset.
  It names the event for `ack`. Where reading goes on after an event is its `next_offset`: `PositionRange.resume`.
- `gtid_set` of such a position is the text of the one GTID of the event's transaction; it is read from the bytes only
  when a position is made, never for every event.
- A cursor may stand on the last event of a transaction, a single statement and an XA PREPARE included, and on a BEGIN
  of a log without GTIDs. It may not stand on a GTID event: that GTID would count as executed and its transaction would
  be skipped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdc_pipeline.binlog import gtid
from cdc_pipeline.binlog.chunk import Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.position.position import Position

_GTID_TYPES = (EventType.GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID)
# Plain numbers: a member of an enum is looked up far more slowly, and this runs for every batch.
_BEGIN, _END, _ROLLBACK, _STATEMENT, _PREPARE = map(
    int, (Role.TRANSACTIONBEGIN, Role.TRANSACTIONEND, Role.ROLLBACK, Role.STATEMENT, Role.XA_PREPARE)
)
_QUERY = int(EventType.QUERY)


def gtid_text(chunk: Chunk, row: int) -> str:
    """GTID of the transaction of event `row`; "" where there is none, or where its GTID event is in another chunk."""
    event = chunk.events[row]
    if event["tx_offset"] < 0:
        return ""
    first = int(np.searchsorted(chunk.events["offset"][: row + 1], event["tx_offset"]))
    begin = chunk.events[first]
    event_type = int(begin["event_type"])
    if begin["offset"] != event["tx_offset"] or event_type not in _GTID_TYPES:
        return ""
    body, offset = chunk.body(first), int(begin["offset"])
    if event_type == EventType.MARIADB_GTID:
        return str(gtid.parse_mariadb(body, int(begin["server_id"]), journal=chunk.journal, offset=offset))
    return str(gtid.parse(body, event_type, journal=chunk.journal, offset=offset))


def event_position(part: EventSlice, row: int, *, open_gtid: str = "") -> Position:
    """Position of the event at `row` of the slice.

    `open_gtid` is the GTID of the transaction that the slice continues, whose GTID event is in an earlier chunk.
    """
    event = part.events[row]
    return Position(
        journal=part.chunk.journal,
        offset=int(event["offset"]),
        timestamp_s=int(event["timestamp_s"]),
        server_id=int(event["server_id"]),
        gtid_set=gtid_text(part.chunk, part.first + row) or (open_gtid if event["tx_offset"] >= 0 else ""),
        included=False,
    )


def resume_position(part: EventSlice, row: int, *, open_gtid: str = "") -> Position:
    """Where reading goes on after the event at `row` of the slice; for a transaction's begin, at the begin itself."""
    position = event_position(part, row, open_gtid=open_gtid)
    is_begin = int(part.events["role"][row]) == Role.TRANSACTIONBEGIN
    return replace(
        position, offset=position.offset if is_begin else int(part.events["next_offset"][row]), included=True
    )


def last_ackable_row(part: EventSlice) -> int:
    """Row of the last event of the slice that a cursor may stand on, scanning backward (SPEC S8); -1 for none."""
    roles = part.events["role"]
    ends = (roles == _END) | (roles == _ROLLBACK) | (roles == _PREPARE)
    begins = (roles == _BEGIN) & (part.events["event_type"] == _QUERY)
    rows = np.flatnonzero(ends | begins | ((roles == _STATEMENT) & _closes(part)))
    return int(rows[-1]) if len(rows) else -1


def _closes(part: EventSlice) -> np.ndarray:
    """For each event of the slice: whether the next event of its chunk belongs to another transaction, or to none."""
    own = part.events["tx_offset"]
    following = part.chunk.events["tx_offset"][part.first + 1 : part.stop + 1]
    last_of_chunk = part.stop == len(part.chunk.events)
    if last_of_chunk:
        following = np.append(following, own[-1:] if part.kind is SliceKind.OPEN_PIECE else [-1])
    result: np.ndarray = own != following
    return result
