"""Read GTID events, compiled: commit times for the transaction pass, numbers for the executed set.

Source: MySQL `Gtid_event` (types 33, 34: 42 fixed bytes, then timestamps of 7 bytes) and
`mysql::serialization` (type 42), MariaDB "GTID_EVENT" (type 162).

Type 42 is a message of varlen integers: version, size, last field that may not be ignored, then
pairs of field id and field, ids ascending. A varlen integer of n bytes has n - 1 low one bits and a
zero bit before its value, little endian; 0xff is followed by 8 bytes. Signed values keep their sign
in the lowest bit. A byte array is one such integer per byte.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.native.arrays import Bytes, Int64s, Words
from cdc_pipeline.binlog.native.compiling import kernel, routine

GTID: Final = 33
ANONYMOUS: Final = 34
TAGGED: Final = 42
MARIADB: Final = 162

NO_TIME: Final = -2
_COMMIT_US_MAX: Final = 1 << 56  # the 7 bytes of types 33 and 34, which end in the year 4253

# Flags 1, source id 16, number 8, type of logical timestamps 1, two of them 16.
FIXED_BYTES: Final = 42
LOGICAL_TIMESTAMPS: Final = 2

# Field ids of type 42.
FIELD_SOURCE_ID: Final = 1
FIELD_NUMBER: Final = 2
FIELD_TAG: Final = 3
FIELD_IMMEDIATE_US: Final = 6
FIELD_ORIGINAL_US: Final = 7
FIELD_GROUP_TICKET: Final = 11
_SOURCE_ID_BYTES: Final = 16


@routine
def _unsigned(data: Bytes, at: int, count: int) -> Any:
    value = np.uint64(0)
    for index in range(count):
        value |= np.uint64(data[np.uint64(at + index)]) << np.uint64(8 * index)
    return value


@routine
def varlen(data: Bytes, at: int, stop: int) -> tuple[Any, int]:
    """Read an unsigned varlen integer: (uint64 value, index after it,
    or -1 if it does not end before `stop`).
    """
    if at < 0 or at >= stop:
        return np.uint64(0), -1
    first = np.int64(data[at])
    size = 1
    while size < 9 and first >> (size - 1) & 1:
        size += 1
    if at + size > stop:
        return np.uint64(0), -1
    if size == 9:
        return _unsigned(data, at + 1, 8), at + 9
    return _unsigned(data, at, size) >> np.uint64(size), at + size


@routine
def _tagged_commit_us(data: Bytes, first: int, stop: int) -> Any:
    at: Any = first
    for _ in range(3):
        _, at = varlen(data, at, stop)
    immediate = np.int64(-1)
    while 0 <= at < stop:
        field, at = varlen(data, at, stop)
        if at < 0 or field > np.uint64(FIELD_ORIGINAL_US):
            break
        if field == np.uint64(FIELD_SOURCE_ID):
            for _ in range(_SOURCE_ID_BYTES):
                _, at = varlen(data, at, stop)
            continue
        value, at = varlen(data, at, stop)
        if at < 0:
            break
        if field == np.uint64(FIELD_TAG):
            if value > np.uint64(stop - at):
                break
            at += np.int64(value)
        elif field == np.uint64(FIELD_IMMEDIATE_US) or field == np.uint64(FIELD_ORIGINAL_US):
            if value >= np.uint64(_COMMIT_US_MAX):
                return np.int64(NO_TIME)
            immediate = np.int64(value)
            if field == np.uint64(FIELD_ORIGINAL_US):
                return immediate
    return immediate


@kernel
def gtid_commit_us(data: Bytes, body_start: int, body_len: int, event_type: int) -> Any:
    """The commit time of a transaction at its origin, from its MySQL GTID event. Returns
    microseconds since 1970 UTC: the original commit timestamp, else the immediate one, which is
    the same on the server of the first commit; -1 for none, NO_TIME for an impossible one.

    Args:
        data: uint8 (n,).
        body_start: index of the first byte after the event's header.
        body_len: bytes of the body without the checksum; the caller has checked that they exist.
        event_type: of the event; 33, 34 and 42 have commit times since MySQL 8.0.1.
    """
    if event_type == TAGGED:
        return _tagged_commit_us(data, body_start, body_start + body_len)
    if event_type not in (GTID, ANONYMOUS) or body_len < FIXED_BYTES + 7:
        return -1
    if data[body_start + 25] != LOGICAL_TIMESTAMPS:
        return -1
    at = body_start + FIXED_BYTES
    value = np.int64(_unsigned(data, at, 7))
    if value >> 55 & 1:
        if body_len < FIXED_BYTES + 14:
            return -1
        return np.int64(_unsigned(data, at + 7, 7))
    return value


@kernel
def executed_numbers(
    data: Bytes,
    events: Any,
    checksum_bytes: int,
    rows: Int64s,
    high: Words,
    low: Words,
    numbers: Int64s,
) -> tuple[int, int]:
    """Read the numbers of the GTID events among `events`. `rows`, `high`, `low`, `numbers`: outputs
    with room for all events: index of the event; for MySQL the source id as two big-endian
    words, for MariaDB domain and server id; transaction number, or -1 for type 42, which the
    caller reads. Returns (count of outputs, -1), or (count, index of the event that is too
    short).
    """
    count = 0
    for index in range(len(events)):
        event = events[index]
        event_type = event["event_type"]
        if event_type not in (GTID, TAGGED, MARIADB):
            continue
        body = event["start"] + 19
        size = np.int64(event["event_length"]) - 19 - checksum_bytes
        rows[count] = index
        high[count] = 0
        low[count] = 0
        numbers[count] = -1
        if event_type == GTID:
            if size < 25:
                return count, index
            for byte in range(8):
                high[count] = high[count] << np.uint64(8) | np.uint64(data[body + 1 + byte])
                low[count] = low[count] << np.uint64(8) | np.uint64(data[body + 9 + byte])
            numbers[count] = np.int64(_unsigned(data, body + 17, 8))
        elif event_type == MARIADB:
            if size < 13:
                return count, index
            numbers[count] = np.int64(_unsigned(data, body, 8))
            high[count] = _unsigned(data, body + 8, 4)
            low[count] = np.uint64(event["server_id"])
        count += 1
    return count, -1
