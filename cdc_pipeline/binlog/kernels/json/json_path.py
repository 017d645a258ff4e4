"""Parse SQL's JSON paths in differences:
``.key``, ``."key"``, ``[n]``, ``[last]``, ``[last-n]``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.json.jsonb_scalars import BAD
from cdc_pipeline.binlog.kernels.memory import byte_at
from cdc_pipeline.binlog.kernels.text.text import put_character
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, routine

NO_SCRATCH: Final = -3  # scratch arrays are too small
NAMES: Final = 2  # column of the array of used scratch: bytes of names

MEMBER: Final = 1
CELL: Final = 2

_QUOTE, _BACKSLASH, _POINT, _OPEN, _CLOSE, _SPACE = 34, 92, 46, 91, 93, 32
_LAST = np.frombuffer(b"last", np.uint8)
# The meaning of the letter after a backslash; 0 if it has none.
_UNESCAPED = np.zeros(256, np.uint8)
_UNESCAPED[list(b'"\\/bfnrt')] = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)
_INDEX_MAX: Final = 0xFFFFFFFF


@helper
def _skip_spaces(data: Bytes, position: Integer, end: Integer) -> Integer:
    while position < end and byte_at(data, position) == _SPACE:
        position += 1
    return position


@routine
def _hex4(data: Bytes, position: Integer, end: Integer) -> Integer:
    """The number of four hex digits, or -1."""
    if position + 4 > end:
        return np.int64(-1)
    value = np.int64(0)
    for index in range(position, position + 4):
        byte = byte_at(data, index)
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= (byte | 32) <= 102:
            digit = (byte | 32) - 87
        else:
            return np.int64(-1)
        value = value << 4 | digit
    return value


@routine
def _unescape(
    data: Bytes, first: Integer, stop: Integer, names: Bytes, tops: Int64s
) -> tuple[Integer, Integer]:
    """Append an unescaped key to the names. Returns (~index, bytes) or (0, BAD or NO_SCRATCH)."""
    start = tops[NAMES]
    if start + stop - first > names.shape[0]:
        return np.int64(0), np.int64(NO_SCRATCH)
    target = np.int64(start)
    position = first
    while position < stop:
        byte = byte_at(data, position)
        position += 1
        if byte != _BACKSLASH:
            names[target] = byte
            target += 1
            continue
        if position >= stop:
            return np.int64(0), np.int64(BAD)
        byte = byte_at(data, position)
        position += 1
        if byte != 117:  # u
            if _UNESCAPED[byte] == 0:
                return np.int64(0), np.int64(BAD)
            names[target] = _UNESCAPED[byte]
            target += 1
            continue
        code = _hex4(data, position, stop)
        position += 4
        if 0xD800 <= code < 0xDC00:  # the first half of a pair
            if (
                position + 6 > stop
                or byte_at(data, position) != _BACKSLASH
                or byte_at(data, position + 1) != 117
            ):
                return np.int64(0), np.int64(BAD)
            low = _hex4(data, position + 2, stop)
            position += 6
            code = (
                0x10000 + ((code & 0x3FF) << 10 | low & 0x3FF)
                if 0xDC00 <= low < 0xE000
                else np.int64(-1)
            )
        if code < 0 or 0xDC00 <= code < 0xE000:
            return np.int64(0), np.int64(BAD)
        target = np.int64(put_character(names, target, code))  # never longer than its escape
    tops[NAMES] = target
    return ~np.int64(start), target - start


@routine
def _cell(data: Bytes, position: Integer, end: Integer) -> tuple[Integer, Integer, Integer]:
    """Parse the rest after ``[``: (position after the bracket, index, 1 if counted from the end);
    position BAD.
    """
    position = _skip_spaces(data, position, end)
    from_end = np.int64(0)
    need_digits = True
    if position + 4 <= end and byte_at(data, position) == _LAST[0]:
        for index in range(4):
            if byte_at(data, position + index) != _LAST[index]:
                return np.int64(BAD), np.int64(0), np.int64(0)
        position = _skip_spaces(data, position + 4, end)
        from_end = np.int64(1)
        need_digits = position < end and byte_at(data, position) == 45
        if need_digits:
            position = _skip_spaces(data, position + 1, end)
    value = np.int64(0)
    if need_digits:
        first = position
        while position < end and 48 <= byte_at(data, position) <= 57 and value <= _INDEX_MAX:
            value = 10 * value + byte_at(data, position) - 48
            position += 1
        if position == first or value > _INDEX_MAX:
            return np.int64(BAD), np.int64(0), np.int64(0)
        position = _skip_spaces(data, position, end)
    if position >= end or byte_at(data, position) != _CLOSE:
        return np.int64(BAD), np.int64(0), np.int64(0)
    return np.int64(position + 1), value, from_end


@routine
def next_leg(
    data: Bytes, position: Integer, end: Integer, names: Bytes, tops: Int64s
) -> tuple[Integer, Integer, Integer, Integer]:
    """Parse the leg at `position`. Returns (position after it, MEMBER, index of the key in `data`
    or ~index in `names`, bytes of the key), or (position after it, CELL, index, 1 if it counts
    from the end), or (BAD or NO_SCRATCH, 0, 0, 0).
    """
    start = byte_at(data, position)
    position = np.int64(position + 1)
    zero = np.int64(0)
    if start == _OPEN:
        position, index, from_end = _cell(data, position, end)
        if position < 0:
            return np.int64(BAD), zero, zero, zero
        return np.int64(_skip_spaces(data, position, end)), np.int64(CELL), index, from_end
    if start != _POINT:
        return np.int64(BAD), zero, zero, zero
    position = np.int64(_skip_spaces(data, position, end))
    quoted = position < end and byte_at(data, position) == _QUOTE
    if quoted:
        position += 1
    first = position
    escaped = False
    while position < end:
        byte = byte_at(data, position)
        if byte == _BACKSLASH:
            escaped = True
            position += 1
        elif (quoted and byte == _QUOTE) or (not quoted and byte in (_POINT, _OPEN, _SPACE)):
            break
        position += 1
    stop = min(position, end)
    if quoted:
        if position >= end:
            return np.int64(BAD), zero, zero, zero
        position += 1
    elif stop == first:
        return np.int64(BAD), zero, zero, zero
    key, key_bytes = first, stop - first
    if escaped:
        key, key_bytes = _unescape(data, first, stop, names, tops)
        if key_bytes < 0:
            return key_bytes, zero, zero, zero
    return np.int64(_skip_spaces(data, min(position, end), end)), np.int64(MEMBER), key, key_bytes
