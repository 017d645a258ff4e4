"""The compiled pass over the events inside payloads: write their headers to rows of EVENT_DTYPE.

Rules:
- They have no checksum and no position; their journal position is that of the payload event.
- Complete events of the kinds between a GTID event and the transaction's end fill a payload
  exactly.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.event_types import FLAG_IGNORABLE, HEADER_BYTES, EventType
from cdc_pipeline.binlog.framing.framing_kernel import (
    EVENT_BYTES_MAX,
    EVENT_CLASSES,
    EventClass,
    Status,
)
from cdc_pipeline.binlog.kernels.memory import unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.compiling import kernel, routine

_T = EventType


def _child_classes() -> Bytes:
    classes = EVENT_CLASSES.copy()
    classes[classes >= EventClass.PACKED] = EventClass.MARK
    for event_type in (
        _T.ROTATE,
        _T.STOP,
        _T.HEARTBEAT,
        _T.HEARTBEAT_V2,
        _T.PREVIOUS_GTIDS,
        _T.GTID,
        _T.ANONYMOUS_GTID,
        _T.GTID_TAGGED,
        _T.MARIADB_GTID,
        _T.MARIADB_GTID_LIST,
        _T.MARIADB_BINLOG_CHECKPOINT,
    ):
        classes[event_type] = EventClass.MARK
    return classes


CHILD_CLASSES: Final = _child_classes()  # MARK: cannot be inside a payload

_DONE = int(Status.DONE)
_MARK = int(Status.MARK)
_BAD_LENGTH = int(Status.BAD_LENGTH)
_UNKNOWN_TYPE = int(Status.UNKNOWN_TYPE)
_STOP_TYPE = int(Status.STOP_TYPE)
_CLASS_UNKNOWN = int(EventClass.UNKNOWN)
_CLASS_TABLE = int(EventClass.TABLE)
_CLASS_MARK = int(EventClass.MARK)
_CLASS_STOP = int(EventClass.STOP)


@kernel
def count_children(data: Bytes, firsts: Int64s, stops: Int64s, counts: Int64s) -> None:
    """Write to `counts`, int64 (k,), upper bounds of the events in each ``data[first:stop]``,
    by the lengths alone.
    """
    for k in range(len(firsts)):
        first, stop = firsts[k], stops[k]
        count = 0
        while stop - first >= HEADER_BYTES:
            length = unsigned_at(data, first + 9, 4)
            if length < HEADER_BYTES or length > stop - first:
                break
            first += length
            count += 1
        counts[k] = count


@kernel
def frame_children(
    data: Bytes,
    firsts: Int64s,
    stops: Int64s,
    parents: Int64s,
    events: Any,
    table_id_bytes: int,
    classes: Bytes,
) -> tuple[int, int, int]:
    """Frame the events inside payloads into the rows after the payload events. Returns (payloads
    done, Status, index in `data` where it stopped). MARK: a type that cannot be inside a
    payload.

    Args:
        data: uint8 (n,), the enlarged buffer of a chunk.
        firsts, stops: int64 (k,): each payload's events are in ``data[first:stop]``.
        parents: int64 (k,): rows of the payload events in `events`.
        events: array of EVENT_DTYPE with room for `count_children` rows after each parent.
        table_id_bytes: 6 or 4.
        classes: CHILD_CLASSES.
    """
    for k in range(len(firsts)):
        status, at = _frame_payload(
            data, firsts[k], stops[k], events, parents[k], table_id_bytes, classes
        )
        if status != _DONE:
            return k, status, at
    return len(firsts), _DONE, 0


@routine
def _frame_payload(
    data: Bytes,
    first: Any,
    stop: Any,
    events: Any,
    parent: Any,
    table_id_bytes: int,
    classes: Bytes,
) -> tuple[int, int]:
    row = parent + 1
    payload = events[parent]
    position = first
    while position < stop:
        if stop - position < HEADER_BYTES:
            return _BAD_LENGTH, position
        length = unsigned_at(data, position + 9, 4)
        if length < HEADER_BYTES or length > stop - position or length > EVENT_BYTES_MAX:
            return _BAD_LENGTH, position
        event_type = data[position + 4]
        event_class = np.int64(classes[event_type])
        flags = unsigned_at(data, position + 17, 2)
        if event_class == _CLASS_MARK:
            return _MARK, position
        if event_class == _CLASS_STOP:
            return _STOP_TYPE, position
        if event_class == _CLASS_UNKNOWN and not flags & FLAG_IGNORABLE:
            return _UNKNOWN_TYPE, position
        table_id = np.int64(-1)
        if event_class == _CLASS_TABLE:
            body = position + HEADER_BYTES
            if length < HEADER_BYTES + table_id_bytes + 2:
                return _BAD_LENGTH, position
            table_id = unsigned_at(data, body, 4)
            if table_id_bytes == 6:
                table_id |= unsigned_at(data, body + 4, 2) << 32
        event = events[row]
        event["start"] = position
        event["offset"] = payload["offset"]
        event["next_offset"] = payload["next_offset"]
        event["tx_offset"] = -1
        event["commit_ts_us"] = -1
        event["table_id"] = table_id
        event["timestamp_s"] = unsigned_at(data, position, 4)
        event["server_id"] = unsigned_at(data, position + 5, 4)
        event["event_length"] = length
        event["tx_ordinal"] = 0
        event["parent"] = parent
        event["flags"] = flags
        event["event_type"] = event_type
        event["role"] = 0
        row += 1
        position += length
    return _DONE, position
