"""Positions of stored events (SPEC S8, S14).

Rules:
- The position of an event is that of its first byte: `Position.offset` is the event's own offset.
  It identifies the event for `ack`. Reading continues after an event at its `next_offset`:
  `BatchRange.resume`.
- The `gtid_set` of such a position is the GTID of the event's transaction. It is read from the
  bytes only when a position is made, never for every event.
- A cursor may point to the last event of a transaction, including a single statement and an XA
  PREPARE, and to a BEGIN in a log without GTIDs. It may not point to a GTID event: that GTID would
  count as executed and its transaction would be skipped.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Final

import numpy as np

from cdc_pipeline.binlog.chunk import EVENT_DTYPE, Chunk, EventSlice, Role, SliceKind
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import gtid
from cdc_pipeline.position.position import Position

# Plain numbers, because enum members are far slower to look up and this runs for every batch.
_GTID, _GTID_TAGGED, _MARIADB_GTID = map(
    int, (EventType.GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID)
)
_BEGIN, _END, _ROLLBACK, _STATEMENT, _PREPARE = map(
    int,
    (Role.TRANSACTIONBEGIN, Role.TRANSACTIONEND, Role.ROLLBACK, Role.STATEMENT, Role.XA_PREPARE),
)
_QUERY = int(EventType.QUERY)
_NAMES: Final = EVENT_DTYPE.names or ()
(
    _OFFSET,
    _NEXT_OFFSET,
    _TX_OFFSET,
    _TX_ORDINAL,
    _TIMESTAMP,
    _SERVER_ID,
    _START,
    _LENGTH,
    _TYPE,
    _ROLE,
) = map(
    _NAMES.index,
    (
        "offset",
        "next_offset",
        "tx_offset",
        "tx_ordinal",
        "timestamp_s",
        "server_id",
        "start",
        "event_length",
        "event_type",
        "role",
    ),
)
_SOURCE_ID_AT: Final = 19 + 1  # in a GTID event: after its header and flags; the number follows


def gtid_text(chunk: Chunk, row: int) -> str:
    """The GTID of the transaction of event `row`; "" if it has none or it is in another chunk."""
    event = chunk.events[row].item()
    tx_offset = event[_TX_OFFSET]
    if tx_offset < 0:
        return ""
    first = row - event[_TX_ORDINAL]  # the events of a transaction are consecutive
    if first < 0:
        return ""
    begin = event if first == row else chunk.events[first].item()
    event_type = begin[_TYPE]
    if begin[_OFFSET] != tx_offset or event_type not in (_GTID, _GTID_TAGGED, _MARIADB_GTID):
        return ""
    if event_type == _GTID:
        at = begin[_START] + _SOURCE_ID_AT
        if begin[_LENGTH] >= _SOURCE_ID_AT + 24 + chunk.journal_format.checksum_bytes:
            raw = chunk.data[at : at + 24].tobytes()
            return f"{_uuid_text(raw[:16])}:{int.from_bytes(raw[16:], 'little', signed=True)}"
    body, offset = chunk.body(first), begin[_OFFSET]
    if event_type == _MARIADB_GTID:
        return str(
            gtid.parse_mariadb(body, begin[_SERVER_ID], journal=chunk.journal, offset=offset)
        )
    return str(gtid.parse(body, event_type, journal=chunk.journal, offset=offset))


@lru_cache(maxsize=64)
def _uuid_text(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def event_position(part: EventSlice, row: int, *, open_gtid: str = "") -> Position:
    """`open_gtid`: of the transaction that the slice continues, whose GTID event is in an earlier
    chunk.
    """
    chunk = part.chunk
    event = chunk.events[part.first + row].item()
    gtid_set = ""
    if event[_TX_OFFSET] >= 0:
        gtid_set = gtid_text(chunk, part.first + row) or open_gtid
    return Position(
        chunk.journal, event[_OFFSET], event[_TIMESTAMP], event[_SERVER_ID], gtid_set, False
    )


def resume_after(position: Position, part: EventSlice, row: int) -> Position:
    """Where reading continues: after the event; for a transaction's begin, at the begin itself."""
    event = part.chunk.events[part.first + row].item()
    offset = event[_OFFSET] if event[_ROLE] == _BEGIN else event[_NEXT_OFFSET]
    return Position(
        position.journal, offset, position.timestamp_s, position.server_id, position.gtid_set, True
    )


def last_ackable_row(part: EventSlice, first: int, stop: int) -> int:
    """The last of [first, stop) that a cursor may point to (SPEC S8); -1 if there is none."""
    if part.chunk.events["role"][part.first + stop - 1] in (_END, _ROLLBACK, _PREPARE):
        return stop - 1
    events = part.events[first:stop]
    roles = events["role"]
    ends = (roles == _END) | (roles == _ROLLBACK) | (roles == _PREPARE)
    begins = (roles == _BEGIN) & (events["event_type"] == _QUERY)
    statements = roles == _STATEMENT
    if statements.any():
        statements &= _closes(part, first, stop)
    rows = np.flatnonzero(ends | begins | statements)
    return first + int(rows[-1]) if len(rows) else -1


def _closes(part: EventSlice, first: int, stop: int) -> np.ndarray:
    """Whether the next event belongs to another transaction or to none."""
    transactions = part.chunk.events["tx_offset"]
    own = transactions[part.first + first : part.first + stop]
    following = transactions[part.first + first + 1 : part.first + stop + 1]
    last_of_chunk = part.first + stop == len(transactions)
    if last_of_chunk:
        following = np.append(following, own[-1:] if part.kind is SliceKind.OPEN_PIECE else [-1])
    result: np.ndarray = own != following
    return result
