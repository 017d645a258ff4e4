"""MySQL's binary JSON to the text that CAST(json AS CHAR) prints.

Format (MySQL `json_binary.h`): a type byte, then the value. An object or array is its count and its size in bytes (two
bytes each, four in the large form), the key entries (offset, length 2), the value entries (type 1, offset or an inlined
value), the keys, the values. Offsets count from the container's count. Strings and opaque values begin with a length of
seven bits a byte.

Rules:
- Nothing outside the document is read: every offset is checked against its container's size.
- A document is visited once: entries that share bytes, which no server writes, cannot make the text grow without bound.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.compiling import Integer, helper, kernel, routine
from cdc_pipeline.binlog.kernels.numbers import DIGIT_BYTES, GROUP_DIGITS, INVALID, NULL, VALID, put_decimal, put_digits
from cdc_pipeline.binlog.kernels.shortest import powers_of_ten, put_double
from cdc_pipeline.binlog.kernels.temporal import put_time
from cdc_pipeline.binlog.kernels.text import valid_utf8
from cdc_pipeline.binlog.kernels.walk import byte_at, unsigned_at

__all__ = ["gather_json", "powers_of_ten"]

_BAD: Final = -1
_NO_ROOM: Final = -2
_DEPTH_MAX: Final = 128  # the server's limit is 100
_SCALAR_BYTES_MAX: Final = 128
STACK_SHAPE: Final = (_DEPTH_MAX, 6)

_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = (
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    15,
)
_TYPE_TIMESTAMP, _TYPE_DATE, _TYPE_TIME, _TYPE_DATETIME, _TYPE_DECIMAL = 7, 10, 11, 12, 246

# Columns of the stack of open containers.
_ORIGIN, _SIZE, _COUNT, _NEXT, _WIDTH, _IS_OBJECT = 0, 1, 2, 3, 4, 5

_LITERALS = np.frombuffer(b"nulltruefalse", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_BASE64_LINE = 76  # characters after which the server puts a line end
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_OPAQUE_PREFIX = np.frombuffer(b'"base64:type', np.uint8)
# Letter after the backslash by control character; 0 for those that are written as \u00xx.
_ESCAPES = np.zeros(32, np.uint8)
_ESCAPES[[8, 9, 10, 12, 13]] = np.frombuffer(b"btnfr", np.uint8)


@helper
def _put_bytes(
    source: NDArray[np.uint8], first: Integer, stop: Integer, out: NDArray[np.uint8], position: Integer
) -> Integer:
    for index in range(first, stop):
        out[position] = source[index]
        position += 1
    return position


@routine
def _put_unsigned(value: Integer, out: NDArray[np.uint8], position: Integer) -> Integer:
    """Decimal digits of a uint64."""
    count = 1
    rest = value // np.uint64(10)
    while rest:
        rest //= np.uint64(10)
        count += 1
    for index in range(position + count - 1, position - 1, -1):
        out[index] = np.uint8(np.uint64(48) + value % np.uint64(10))
        value //= np.uint64(10)
    return position + count


@routine
def _put_integer(value: Integer, out: NDArray[np.uint8], position: Integer) -> Integer:
    """Decimal digits of an int64."""
    if value < 0:
        out[position] = 45
        return _put_unsigned(~np.uint64(value) + np.uint64(1), out, position + 1)
    return _put_unsigned(np.uint64(value), out, position)


@helper
def _word_at(data: NDArray[np.uint8], position: Integer) -> Integer:
    """Eight bytes, little-endian, as an int64 bit pattern."""
    return unsigned_at(data, position, 4) | unsigned_at(data, position + 4, 4) << np.int64(32)


@helper
def _length_at(data: NDArray[np.uint8], position: Integer, stop: Integer) -> tuple[Integer, Integer]:
    """A length of seven bits a byte: the length and the position after it; -1 where it does not end."""
    length = np.int64(0)
    for index in range(5):
        if position >= stop:
            return np.int64(-1), position
        byte = byte_at(data, position)
        position += 1
        length |= (byte & 0x7F) << np.int64(7 * index)
        if byte < 0x80:
            return length, position
    return np.int64(-1), position


@routine
def _put_quoted(
    data: NDArray[np.uint8], first: Integer, stop: Integer, out: NDArray[np.uint8], position: Integer
) -> Integer:
    """A string in quotes, escaped; _BAD where it is not UTF-8, _NO_ROOM where it might not fit."""
    if position + 6 * (stop - first) + 8 > out.shape[0]:
        # Escapes are rare: count before asking for more room.
        need = np.int64(8)
        for index in range(first, stop):
            byte = byte_at(data, index)
            need += 6 if byte < 32 else (2 if byte == 34 or byte == 92 else 1)
        if position + need > out.shape[0]:
            return np.int64(_NO_ROOM)
    if not valid_utf8(data, first, stop, 4):
        return np.int64(_BAD)
    out[position] = 34
    position += 1
    for index in range(first, stop):
        byte = byte_at(data, index)
        if byte == 34 or byte == 92:
            out[position] = 92
            position += 1
        elif byte < 32:
            out[position] = 92
            if _ESCAPES[byte]:
                out[position + 1] = _ESCAPES[byte]
                position += 2
            else:
                out[position + 1] = 117
                out[position + 2] = 48
                out[position + 3] = 48
                out[position + 4] = _HEX[byte >> 4]
                out[position + 5] = _HEX[byte & 15]
                position += 6
            continue
        out[position] = byte
        position += 1
    out[position] = 34
    return np.int64(position + 1)


@routine
def _put_temporal(kind: Integer, packed: NDArray[np.int64], out: NDArray[np.uint8], position: Integer) -> Integer:
    """DATE, TIME, DATETIME or TIMESTAMP from the packed number inside a document, in quotes, with six digits."""
    out[position] = 34
    position += 1
    negative = packed < 0
    if negative:
        packed = -packed
    fraction = packed & 0xFFFFFF
    whole = packed >> np.int64(24)
    if kind == _TYPE_TIME:
        hour = (whole >> 12) & 0x3FF
        position = put_time(out, position, negative, hour, (whole >> 6) & 63, whole & 63, fraction % 1_000_000, 6)
    else:
        months = (whole >> 22) & 0x1FFFF
        position = put_digits(out, position, months // 13 % 10_000, 4)
        out[position] = 45
        position = put_digits(out, position + 1, months % 13, 2)
        out[position] = 45
        position = put_digits(out, position + 1, (whole >> 17) & 31, 2)
        if kind != _TYPE_DATE:
            out[position] = 32
            hour = (whole >> 12) & 31
            position = put_time(
                out, position + 1, False, hour, (whole >> 6) & 63, whole & 63, fraction % 1_000_000, 6
            )  # fmt: skip
    out[position] = 34
    return position + 1


@routine
def _put_opaque(
    kind: Integer, data: NDArray[np.uint8], first: Integer, stop: Integer, out: NDArray[np.uint8], position: Integer
) -> Integer:
    """A value of a column type that JSON does not have."""
    length = stop - first
    if kind == _TYPE_DECIMAL:
        if length < 2:
            return np.int64(_BAD)
        precision, scale = byte_at(data, first), byte_at(data, first + 1)
        whole = precision - scale
        if precision < 1 or precision > 65 or whole < 0:
            return np.int64(_BAD)
        need = 4 * (whole // GROUP_DIGITS + scale // GROUP_DIGITS)
        need += DIGIT_BYTES[whole % GROUP_DIGITS] + DIGIT_BYTES[scale % GROUP_DIGITS]
        if length != 2 + need:
            return np.int64(_BAD)
        return put_decimal(data, first + 2, precision, scale, out, position)
    if kind in (_TYPE_DATE, _TYPE_TIME, _TYPE_DATETIME, _TYPE_TIMESTAMP):
        if length != 8:
            return np.int64(_BAD)
        return np.int64(_put_temporal(kind, _word_at(data, first), out, position))
    if position + 2 * length + _SCALAR_BYTES_MAX > out.shape[0]:
        return np.int64(_NO_ROOM)
    position = _put_bytes(_OPAQUE_PREFIX, 0, _OPAQUE_PREFIX.shape[0], out, position)
    position = _put_unsigned(np.uint64(kind), out, position)
    out[position] = 58
    position += 1
    line = 0
    for at in range(first, stop, 3):
        if line == _BASE64_LINE:  # a line end, escaped
            out[position] = 92
            out[position + 1] = 110
            position += 2
            line = 0
        left = stop - at
        group = byte_at(data, at) << 16
        if left > 1:
            group |= byte_at(data, at + 1) << 8
        if left > 2:
            group |= byte_at(data, at + 2)
        out[position] = _BASE64[group >> 18]
        out[position + 1] = _BASE64[(group >> 12) & 63]
        out[position + 2] = _BASE64[(group >> 6) & 63] if left > 1 else 61
        out[position + 3] = _BASE64[group & 63] if left > 2 else 61
        position += 4
        line += 4
    out[position] = 34
    return np.int64(position + 1)


@helper
def _put_scalar(
    kind: Integer,
    data: NDArray[np.uint8],
    at: Integer,
    stop: Integer,
    powers: NDArray[np.uint64],
    out: NDArray[np.uint8],
    position: Integer,
) -> Integer:
    """Any value that is no container. Returns the position after it, or _BAD, or _NO_ROOM."""
    if position + _SCALAR_BYTES_MAX > out.shape[0]:
        return np.int64(_NO_ROOM)
    left = stop - at
    if kind == _LITERAL:
        if left < 1 or byte_at(data, at) > 2:
            return np.int64(_BAD)
        which = byte_at(data, at)
        return np.int64(_put_bytes(_LITERALS, 4 * which, 4 * which + (5 if which == 2 else 4), out, position))
    if kind in (_INT16, _UINT16):
        if left < 2:
            return np.int64(_BAD)
        value = unsigned_at(data, at, 2)
        if kind == _INT16 and value >= 1 << 15:
            value -= 1 << 16
        return np.int64(_put_integer(value, out, position))
    if kind in (_INT32, _UINT32):
        if left < 4:
            return np.int64(_BAD)
        value = unsigned_at(data, at, 4)
        if kind == _INT32 and value >= 1 << 31:
            value -= 1 << 32
        return np.int64(_put_integer(value, out, position))
    if kind in (_INT64, _UINT64, _DOUBLE):
        if left < 8:
            return np.int64(_BAD)
        value = _word_at(data, at)
        if kind == _INT64:
            return np.int64(_put_integer(value, out, position))
        if kind == _UINT64:
            return np.int64(_put_unsigned(np.uint64(value), out, position))
        if (value >> 52) & 0x7FF == 0x7FF:  # infinities and NaN are no JSON
            return np.int64(_BAD)
        return np.int64(put_double(np.uint64(value), powers, out, position))
    if kind == _STRING:
        length, first = _length_at(data, at, stop)
        if length < 0 or length > stop - first:
            return np.int64(_BAD)
        return _put_quoted(data, first, first + length, out, position)
    if kind == _OPAQUE:
        if left < 2:
            return np.int64(_BAD)
        length, first = _length_at(data, at + 1, stop)
        if length < 0 or length > stop - first:
            return np.int64(_BAD)
        return _put_opaque(byte_at(data, at), data, first, first + length, out, position)
    return np.int64(_BAD)


@routine
def _put_document(
    data: NDArray[np.uint8],
    first: Integer,
    stop: Integer,
    powers: NDArray[np.uint64],
    stack: NDArray[np.int64],
    out: NDArray[np.uint8],
    position: Integer,
) -> Integer:
    """One document data[first:stop]. Returns the position after its text, or _BAD, or _NO_ROOM."""
    if first == stop:  # the server reads a document of no bytes as the JSON null
        if position + _SCALAR_BYTES_MAX > out.shape[0]:
            return np.int64(_NO_ROOM)
        return np.int64(_put_bytes(_LITERALS, 0, 4, out, position))
    budget = 2 * (stop - first) + 16  # entries, and bytes of keys and strings
    depth = 0
    kind = byte_at(data, first)
    at = first + 1
    end = stop
    while True:
        if kind <= 3:
            width = 4 if kind & 1 else 2
            is_object = 1 if kind < 2 else 0
            if at + 2 * width > end or depth == _DEPTH_MAX:
                return np.int64(_BAD)
            count = unsigned_at(data, at, width)
            size = unsigned_at(data, at + width, width)
            header = 2 * width + count * (1 + width + is_object * (width + 2))
            if size > end - at or header > size:
                return np.int64(_BAD)
            if position + _SCALAR_BYTES_MAX > out.shape[0]:
                return np.int64(_NO_ROOM)
            out[position] = 123 if is_object else 91
            position += 1
            stack[depth, _ORIGIN] = at
            stack[depth, _SIZE] = size
            stack[depth, _COUNT] = count
            stack[depth, _NEXT] = 0
            stack[depth, _WIDTH] = width
            stack[depth, _IS_OBJECT] = is_object
            depth += 1
        else:
            before = position
            position = _put_scalar(kind, data, at, end, powers, out, position)
            if position < 0:
                return position
            if kind in (_STRING, _OPAQUE):
                budget -= (position - before) // 6  # an escape writes six bytes for one
        # On to the next entry of the innermost open container.
        while depth and stack[depth - 1, _NEXT] == stack[depth - 1, _COUNT]:
            depth -= 1
            if position + 1 > out.shape[0]:
                return np.int64(_NO_ROOM)
            out[position] = 125 if stack[depth, _IS_OBJECT] else 93
            position += 1
        if depth == 0:
            return np.int64(position)
        budget -= 1
        if budget < 0:
            return np.int64(_BAD)
        origin, size = stack[depth - 1, _ORIGIN], stack[depth - 1, _SIZE]
        count, index = stack[depth - 1, _COUNT], stack[depth - 1, _NEXT]
        width, is_object = stack[depth - 1, _WIDTH], stack[depth - 1, _IS_OBJECT]
        stack[depth - 1, _NEXT] = index + 1
        if position + _SCALAR_BYTES_MAX > out.shape[0]:
            return np.int64(_NO_ROOM)
        if index:
            out[position] = 44
            out[position + 1] = 32
            position += 2
        entry = origin + 2 * width
        if is_object:
            key_entry = entry + index * (width + 2)
            offset = unsigned_at(data, key_entry, width)
            length = unsigned_at(data, key_entry + width, 2)
            budget -= length
            if offset + length > size or budget < 0:
                return np.int64(_BAD)
            position = _put_quoted(data, origin + offset, origin + offset + length, out, position)
            if position < 0:
                return position
            out[position] = 58
            out[position + 1] = 32
            position += 2
            entry += count * (width + 2)
        entry += index * (1 + width)
        kind = byte_at(data, entry)
        end = origin + size
        if kind in (_LITERAL, _INT16, _UINT16) or (width == 4 and (kind in (_INT32, _UINT32))):
            at = entry + 1
        else:
            offset = unsigned_at(data, entry + 1, width)
            if offset < 2 * width or offset >= size:
                return np.int64(_BAD)
            at = origin + offset


@kernel
def gather_json(
    data: NDArray[np.uint8],
    base: NDArray[np.int64],
    relative: NDArray[np.int32],
    prefix: Integer,
    powers: NDArray[np.uint64],
    stack: NDArray[np.int64],
    out: NDArray[np.uint8],
    position: Integer,
    offsets: NDArray[np.int32],
    state: NDArray[np.uint8],
) -> tuple[Integer, Integer]:
    """Documents as text, appended to `out` from `position`.

    Args:
        prefix: count of length bytes before each document.
        powers: of `shortest.powers_of_ten`.
        stack: int64 (STACK_SHAPE), scratch.
        offsets: int32 (rows + 1,), of which [1:] are written. state: uint8 (rows,).

    Returns:
        (rows done, end): fewer rows than there are where `out` is too small for the next one.
    """
    for row in range(base.shape[0]):
        state[row] = NULL
        if relative[row] >= 0:
            first = base[row] + relative[row]
            stop = first + prefix + unsigned_at(data, first, prefix)
            end = _put_document(data, first + prefix, stop, powers, stack, out, position)
            if end == _NO_ROOM:
                return np.int64(row), np.int64(position)
            state[row] = INVALID if end < 0 else VALID
            if end >= 0:
                position = end
        offsets[row + 1] = position
    return np.int64(base.shape[0]), np.int64(position)
