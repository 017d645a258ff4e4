"""UUID, INET4 and INET6: from the server's bytes to the server's text.

Formats (verified on MariaDB 10.11): the row image has a UUID in the order of its text, whatever
order the engine stores, and addresses in network order; trailing zero bytes are stripped. The text
of an INET6 omits its longest run of zero groups, the first of equal ones, even a run of one. It is
::a.b.c.d if the first six groups are zero and the seventh is not, and ::ffff:a.b.c.d if the first
five are zero and the sixth is ffff.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at, unsigned_at
from cdc_pipeline.binlog.kernels.numbers import INVALID, NULL, VALID
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

UUID: Final = 0
INET4: Final = 1
INET6: Final = 2
TEXT_BYTES_MAX: Final = 45  # an INET6 of eight groups has 39; some are spare

_COLON: Final = 58
_DOT: Final = 46
_DASH: Final = 45


@helper
def _byte_of(data: Bytes, first: Integer, length: Integer, index: Integer) -> Integer:
    return byte_at(data, first + index) if index < length else np.int64(0)


@helper
def _hex_digit(value: Integer) -> Integer:
    return value + 48 if value < 10 else value + 87


@routine
def _put_uuid(
    data: Bytes, first: Integer, length: Integer, out: Bytes, position: Integer
) -> Integer:
    """Write 8-4-4-4-12 hex digits. Returns the position after them."""
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            out[position] = _DASH
            position += 1
        value = _byte_of(data, first, length, index)
        out[position] = _hex_digit(value >> 4)
        out[position + 1] = _hex_digit(value & 15)
        position += 2
    return position


@routine
def _put_inet4(
    data: Bytes, first: Integer, length: Integer, out: Bytes, position: Integer
) -> Integer:
    """Write four numbers with dots. Returns the position after them."""
    for index in range(4):
        if index > 0:
            out[position] = _DOT
            position += 1
        value = _byte_of(data, first, length, index)
        if value > 99:
            out[position] = 48 + value // 100
            position += 1
        if value > 9:
            out[position] = 48 + value // 10 % 10
            position += 1
        out[position] = 48 + value % 10
        position += 1
    return position


@helper
def _group(data: Bytes, first: Integer, length: Integer, index: Integer) -> Integer:
    return _byte_of(data, first, length, 2 * index) << 8 | _byte_of(
        data, first, length, 2 * index + 1
    )


@routine
def _put_inet6(
    data: Bytes, first: Integer, length: Integer, out: Bytes, position: Integer
) -> Integer:
    """Write the groups as MariaDB does. Returns the position after them."""
    best: Integer = np.int64(8)
    best_count: Integer = np.int64(0)
    count: Integer = np.int64(0)
    leading: Integer = np.int64(8)  # zero groups at the front
    for index in range(8):
        if _group(data, first, length, index) == 0:
            count += 1
            if count > best_count:
                best_count = count
                best = np.int64(index) + 1 - count
        else:
            count = np.int64(0)
            leading = min(leading, np.int64(index))
    mapped = leading == 5 and _group(data, first, length, 5) == 0xFFFF
    if leading == 6 or mapped:
        out[position] = _COLON
        out[position + 1] = _COLON
        position += 2
        if mapped:
            for _ in range(4):
                out[position] = 102  # f
                position += 1
            out[position] = _COLON
            position += 1
        return _put_inet4(data, first + 12, length - 12, out, position)
    place: Integer = np.int64(0)
    while place < 8:
        if place == best:
            out[position] = _COLON
            out[position + 1] = _COLON
            position += 2
            place += best_count
            continue
        if place > 0 and place != best + best_count:
            out[position] = _COLON
            position += 1
        value = _group(data, first, length, place)
        shift = np.int64(12)
        while shift > 0 and value >> shift == 0:
            shift -= 4
        while shift >= 0:
            out[position] = _hex_digit((value >> shift) & 15)
            position += 1
            shift -= 4
        place += 1
    return position


@kernel
def gather_addresses(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    prefix: Integer,
    form: Integer,
    out: Bytes,
    position: Integer,
    offsets: Int32s,
    state: Bytes,
) -> Integer:
    """Append the text of values to `out` from `position`. Returns the end. A value that is too long
    is INVALID.

    Args:
        prefix: count of length bytes before each value. form: UUID, INET4 or INET6.
        out: uint8 with room for TEXT_BYTES_MAX a row.
        offsets: int32 (rows + 1,), of which [1:] are written. state: uint8 (rows,).
    """
    width = 4 if form == INET4 else 16
    for row in range(base.shape[0]):
        state[row] = NULL
        if relative[row] >= 0:
            first = base[row] + relative[row]
            length = unsigned_at(data, first, prefix)
            first += prefix
            if length > width:
                state[row] = INVALID
            else:
                state[row] = VALID
                if form == UUID:
                    position = _put_uuid(data, first, length, out, position)
                elif form == INET4:
                    position = _put_inet4(data, first, length, out, position)
                else:
                    position = _put_inet6(data, first, length, out, position)
        offsets[row + 1] = position
    return position
