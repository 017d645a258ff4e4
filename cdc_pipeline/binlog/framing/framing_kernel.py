"""The compiled pass of framing: write event headers to rows of EVENT_DTYPE and verify checksums.

Rules:
- It stops at the first event that is not plainly good and returns where and why; the rows before it
  are valid.
- Marks (format descriptions; in a dump also artificial events and heartbeats) are rare and left to
  Python.
- Lengths are checked before anything after them is read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.event_types import (
    FLAG_ARTIFICIAL,
    FLAG_IGNORABLE,
    HANDLED,
    HARMLESS,
    HEADER_BYTES,
    PACKED_TYPES,
    ROWS_TYPES,
    STOP_REASONS,
    EventType,
)
from cdc_pipeline.binlog.kernels.memory import unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.checksum import crc32_of
from cdc_pipeline.binlog.native.compiling import kernel

# A value and a packet of a dump have at most 1 GiB (max_allowed_packet), but both images of an
# update are in one event of the file. The decoder's offsets inside an event are signed 32-bit
# numbers.
EVENT_BYTES_MAX: Final = (1 << 31) - 1

# Before an event that is still in its packet, once the packet is complete: its length including the
# last of these bytes (4 bytes, little-endian), and CHECKED if the event ends with its correct
# CRC32, else 0.
PREFIX_BYTES: Final = 5
CHECKED: Final = 1


class Status(IntEnum):
    """Why the pass stopped."""

    DONE = 0  # all bytes framed
    INCOMPLETE = 1  # the last event is incomplete
    MARK = 2  # an event for Python
    BAD_LENGTH = 3
    BAD_CHECKSUM = 4
    BAD_POSITION = 5  # the header's end position contradicts the computed one
    UNKNOWN_TYPE = 6
    STOP_TYPE = 7
    FULL = 8  # no row is left: continue with more


class EventClass(IntEnum):
    """How framing treats a type."""

    UNKNOWN = 0
    PLAIN = 1
    TABLE = 2  # the body begins with a table id
    MARK = 3
    HEARTBEAT = 4
    ROTATE = 5
    STOP = 6
    PACKED = 7  # compressed: unpacked after framing; this and above
    PACKED_TABLE = 8  # and the body begins with a table id


def _classes() -> Bytes:
    classes = np.zeros(256, dtype=np.uint8)
    for event_type in HANDLED | HARMLESS:
        classes[event_type] = EventClass.PLAIN
    for event_type in (*ROWS_TYPES, EventType.TABLE_MAP):
        classes[event_type] = EventClass.TABLE
    for event_type in PACKED_TYPES:
        is_rows = PACKED_TYPES[event_type] in ROWS_TYPES
        classes[event_type] = EventClass.PACKED_TABLE if is_rows else EventClass.PACKED
    for event_type in STOP_REASONS:
        classes[event_type] = EventClass.STOP
    for event_type in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
        classes[event_type] = EventClass.HEARTBEAT
    classes[EventType.FORMAT_DESCRIPTION] = EventClass.MARK
    classes[EventType.ROTATE] = EventClass.ROTATE
    return classes


EVENT_CLASSES: Final = _classes()

_DONE = int(Status.DONE)
_INCOMPLETE = int(Status.INCOMPLETE)
_MARK = int(Status.MARK)
_BAD_LENGTH = int(Status.BAD_LENGTH)
_BAD_CHECKSUM = int(Status.BAD_CHECKSUM)
_BAD_POSITION = int(Status.BAD_POSITION)
_UNKNOWN_TYPE = int(Status.UNKNOWN_TYPE)
_STOP_TYPE = int(Status.STOP_TYPE)
_FULL = int(Status.FULL)
_CLASS_UNKNOWN = int(EventClass.UNKNOWN)
_CLASS_TABLE = int(EventClass.TABLE)
_CLASS_MARK = int(EventClass.MARK)
_CLASS_HEARTBEAT = int(EventClass.HEARTBEAT)
_CLASS_ROTATE = int(EventClass.ROTATE)
_CLASS_STOP = int(EventClass.STOP)
_CLASS_PACKED = int(EventClass.PACKED)
_CLASS_PACKED_TABLE = int(EventClass.PACKED_TABLE)
_MASK32 = 0xFFFFFFFF

# Fields of the state array of `frame_ahead`.
AHEAD_STATUS: Final = 0  # a Status; it frames only as long as this is DONE
AHEAD_POSITION: Final = 1  # index in the unconsumed bytes of the next prefix
AHEAD_ROW: Final = 2  # next free row
AHEAD_OFFSET: Final = 3  # journal offset of the next event
AHEAD_CHECKSUM_BYTES: Final = 4
AHEAD_TABLE_ID_BYTES: Final = 5
AHEAD_IGNORED: Final = 6  # unknown but ignorable events so far
AHEAD_PACKED: Final = 7  # compressed events so far
AHEAD_ROWS_GOAL: Final = 8  # receiving ends with so many rows
AHEAD_FIELDS: Final = 9
FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)


@kernel
def walk_lengths(data: Bytes, target: int) -> int:
    """The first event boundary at or after `target`, or the last one whose header is not in `data`.

    `data` begins with a header. 0 if the first length is impossible. The result may be past the end
    of `data`.
    """
    position = 0
    size = len(data)
    while position < target and size - position >= HEADER_BYTES:
        length = unsigned_at(data, position + 9, 4)
        if length < HEADER_BYTES or length > EVENT_BYTES_MAX:
            break
        position += length
    return position


@kernel
def frame(
    data: Bytes,
    first: int,
    events: Any,
    row: int,
    offset: int,
    checksum_bytes: int,
    table_id_bytes: int,
    dump: bool,
    prefix_bytes: int,
    known_mark: int,
    classes: Bytes,
) -> tuple[int, int, int, int, int, int]:
    """Frame ``data[first:]`` into rows `row` and up of `events`. Returns (status, index in `data`
    where it stopped, next free row, journal offset there, unknown but ignorable events,
    compressed events).

    Args:
        data: uint8 (n,), contiguous events from `first` on; the last may be incomplete.
        first: index of a header or of the prefix before it.
        events: array of EVENT_DTYPE; FULL if it has no room for an event that may be complete.
        row: next free row.
        offset: journal offset of the event at `first`.
        checksum_bytes: 4 or 0; -1 while the format is unknown, which makes every event a mark.
        table_id_bytes: 6, or 4 in journals from before MySQL 5.1.4.
        dump: events come from a server: artificial ones are marks, and skipped ones make the offset
            jump forward.
        prefix_bytes: 0, or PREFIX_BYTES if each event has a prefix
            (`cdc_pipeline.binlog.framing.packets`).
        known_mark: index of a format description that Python has verified and that becomes a row;
            or -1.
        classes: EVENT_CLASSES.
    """
    begin = first
    size = len(data)
    ignored = 0
    packed = 0
    while begin < size:
        position = begin + prefix_bytes
        left = size - position
        if left < HEADER_BYTES:
            # Packets are complete: missing bytes will not come.
            return (
                _INCOMPLETE if prefix_bytes == 0 else _BAD_LENGTH,
                begin,
                row,
                offset,
                ignored,
                packed,
            )
        if row == len(events):
            return _FULL, begin, row, offset, ignored, packed
        length = unsigned_at(data, position + 9, 4)
        event_type = data[position + 4]
        event_class = np.int64(classes[event_type])
        if checksum_bytes < 0 and not dump and event_type != FORMAT_DESCRIPTION:
            return _MARK, begin, row, offset, ignored, packed
        if length < HEADER_BYTES or length > EVENT_BYTES_MAX:
            return _BAD_LENGTH, begin, row, offset, ignored, packed
        if prefix_bytes != 0 and unsigned_at(data, begin, 4) != length + 1:
            return _BAD_LENGTH, begin, row, offset, ignored, packed
        log_position = unsigned_at(data, position + 13, 4)
        flags = unsigned_at(data, position + 17, 2)
        if dump and (
            flags & FLAG_ARTIFICIAL
            or event_class == _CLASS_HEARTBEAT
            or (log_position == 0 and event_class in (_CLASS_ROTATE, _CLASS_MARK))
        ):
            if length > left:
                return _INCOMPLETE, begin, row, offset, ignored, packed
            return _MARK, begin, row, offset, ignored, packed
        event_offset = offset
        if log_position != 0:
            jump = (log_position - length - offset) & _MASK32
            if jump != 0:
                # Check before the event is complete: a damaged length must not make the reader wait
                # forever.
                if not dump or jump >= 1 << 31:
                    return _BAD_POSITION, begin, row, offset, ignored, packed
                event_offset += jump
        if length > left:
            return _INCOMPLETE, begin, row, offset, ignored, packed
        if event_class == _CLASS_MARK or checksum_bytes < 0:
            if begin != known_mark:
                return _MARK, begin, row, offset, ignored, packed
        else:
            if length < HEADER_BYTES + checksum_bytes:
                return _BAD_LENGTH, begin, row, offset, ignored, packed
            if checksum_bytes != 0 and (prefix_bytes == 0 or data[position - 1] != CHECKED):
                stop = position + length - 4
                if np.int64(crc32_of(data, position, stop)) != unsigned_at(data, stop, 4):
                    return _BAD_CHECKSUM, begin, row, offset, ignored, packed
        if event_class == _CLASS_STOP:
            return _STOP_TYPE, begin, row, offset, ignored, packed
        if event_class == _CLASS_UNKNOWN:
            if not flags & FLAG_IGNORABLE:
                return _UNKNOWN_TYPE, begin, row, offset, ignored, packed
            ignored += 1
        if event_class >= _CLASS_PACKED:
            packed += 1
        table_id = -1
        if event_class in (_CLASS_TABLE, _CLASS_PACKED_TABLE):
            body = position + HEADER_BYTES
            if length < HEADER_BYTES + table_id_bytes + 2 + checksum_bytes:
                return _BAD_LENGTH, begin, row, offset, ignored, packed
            table_id = unsigned_at(data, body, 4)
            if table_id_bytes == 6:
                table_id |= unsigned_at(data, body + 4, 2) << 32
        event = events[row]
        event["start"] = position
        event["offset"] = event_offset
        event["next_offset"] = event_offset + length
        event["tx_offset"] = -1
        event["commit_ts_us"] = -1
        event["table_id"] = table_id
        event["timestamp_s"] = unsigned_at(data, position, 4)
        event["server_id"] = unsigned_at(data, position + 5, 4)
        event["event_length"] = length
        event["tx_ordinal"] = 0
        event["parent"] = -1
        event["flags"] = flags
        event["event_type"] = event_type
        event["role"] = 0
        row += 1
        begin = position + length
        offset = event_offset + length
    return _DONE, begin, row, offset, ignored, packed


@kernel
def frame_ahead(
    data: Bytes, first: int, stop: int, events: Any, ahead: Int64s, classes: Bytes
) -> None:
    """Frame the complete events of a dump in ``data[first:stop]`` that are not framed yet.

    Args:
        data: uint8 (n,), the block that receives.
        first: where the unconsumed bytes begin.
        stop: where the complete events end.
        events: array of EVENT_DTYPE.
        ahead: int64 (AHEAD_FIELDS,), kept from call to call.
        classes: EVENT_CLASSES.
    """
    if ahead[AHEAD_STATUS] != _DONE:
        return
    status, position, row, offset, ignored, packed = frame(
        data[first:stop],
        ahead[AHEAD_POSITION],
        events,
        ahead[AHEAD_ROW],
        ahead[AHEAD_OFFSET],
        ahead[AHEAD_CHECKSUM_BYTES],
        ahead[AHEAD_TABLE_ID_BYTES],
        True,
        PREFIX_BYTES,
        -1,
        classes,
    )
    ahead[AHEAD_STATUS] = status
    ahead[AHEAD_POSITION] = position
    ahead[AHEAD_ROW] = row
    ahead[AHEAD_OFFSET] = offset
    ahead[AHEAD_IGNORED] += ignored
    ahead[AHEAD_PACKED] += packed
