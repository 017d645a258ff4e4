"""Write scalar values of binary JSON as the text that the server prints.

Rules:
- A writer writes nothing at or after `limit`, and leaves MARGIN_BYTES before it that a caller may
  use without a check. If that is impossible, it returns NO_ROOM.
- Numbers and temporal values write at most _SCALAR_BYTES_MAX bytes, for which the caller ensures
  room.
- A malformed value returns BAD. Positions are never negative, so they cannot be confused with the
  codes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at, copy_plain, unsigned_at
from cdc_pipeline.binlog.kernels.numbers import DIGIT_BYTES, GROUP_DIGITS, put_decimal, put_digits
from cdc_pipeline.binlog.kernels.temporal import put_time
from cdc_pipeline.binlog.kernels.text.shortest import put_double, put_unsigned
from cdc_pipeline.binlog.kernels.text.text import valid_utf8
from cdc_pipeline.binlog.native.arrays import Bytes, Words
from cdc_pipeline.binlog.native.compiling import Integer, helper, routine

BAD: Final = -1
NO_ROOM: Final = -2

DEPTH_MAX: Final = 128  # the server's limit is 100
_SCALAR_BYTES_MAX: Final = 128
# A scalar, the ends of all containers, and separators.
MARGIN_BYTES: Final = _SCALAR_BYTES_MAX + DEPTH_MAX + 128

LITERAL, INT16, UINT16, INT32, UINT32 = 4, 5, 6, 7, 8
INT64, UINT64, DOUBLE, STRING, OPAQUE = 9, 10, 11, 12, 15
_TYPE_TIMESTAMP, _TYPE_DATE, _TYPE_TIME, _TYPE_DATETIME, _TYPE_DECIMAL = 7, 10, 11, 12, 246

_LITERALS = np.frombuffer(b"nulltruefalse", np.uint8)
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_BASE64_LINE: Final = 76  # characters after which the server puts a line end
_OPAQUE_PREFIX = np.frombuffer(b'"base64:type', np.uint8)
# A DECIMAL inside a document may have more digits than a column can: whole groups of nine.
_DECIMAL_DIGITS_MAX: Final = 81
_SIGN_BIT_16: Final = 1 << 15
_SIGN_BIT_32: Final = 1 << 31

_QUOTE = 34
_BACKSLASH = 92
_FOUR_DIGITS = 117  # u
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def _escapes() -> Bytes:
    """By byte: 0 for itself, the letter after the backslash, or ``u`` for four hex digits."""
    table = np.zeros(256, np.uint8)
    table[:32] = _FOUR_DIGITS
    for byte, letter in (
        *zip(b"\b\t\n\f\r", b"btnfr", strict=True),
        (_QUOTE, _QUOTE),
        (_BACKSLASH, _BACKSLASH),
    ):
        table[byte] = letter
    return table


_ESCAPES = _escapes()


@routine
def _put_escaped_bytes(
    data: Bytes, first: Integer, stop: Integer, out: Bytes, position: Integer
) -> Integer:
    """Write the bytes [first, stop) escaped, at most six bytes for each.
    Returns the position after them.
    """
    for index in range(first, stop):
        byte = data[index]
        letter = _ESCAPES[byte]
        if letter == 0:
            out[position] = byte
            position += 1
            continue
        out[position] = _BACKSLASH
        out[position + 1] = letter
        position += 2
        if letter == _FOUR_DIGITS:
            out[position] = 48
            out[position + 1] = 48
            out[position + 2] = _HEX_DIGITS[byte >> 4]
            out[position + 3] = _HEX_DIGITS[byte & 15]
            position += 4
    return np.int64(position)


@helper
def _put_bytes(
    source: Bytes, first: Integer, stop: Integer, out: Bytes, position: Integer
) -> Integer:
    for index in range(first, stop):
        out[position] = source[index]
        position += 1
    return position


@routine
def _put_integer(value: Integer, out: Bytes, position: Integer) -> Integer:
    if value < 0:
        out[position] = 45
        return put_unsigned(~np.uint64(value) + np.uint64(1), out, position + 1)
    return put_unsigned(np.uint64(value), out, position)


@helper
def _word_at(data: Bytes, position: Integer) -> Integer:
    """Read eight little-endian bytes as an int64 bit pattern."""
    return unsigned_at(data, position, 4) | unsigned_at(data, position + 4, 4) << np.int64(32)


@routine
def _length_at(data: Bytes, position: Integer, stop: Integer) -> tuple[Integer, Integer]:
    """Read a length of seven bits a byte: the length and the position after it;
    -1 if it does not end.
    """
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
def _put_escaped(
    data: Bytes, first: Integer, stop: Integer, out: Bytes, position: Integer, limit: Integer
) -> Integer:
    """Write a string that is UTF-8 in quotes, escaped."""
    need = np.int64(MARGIN_BYTES)
    for index in range(first, stop):
        byte = byte_at(data, index)
        need += 6 if byte < 32 else (2 if byte == 34 or byte == 92 else 1)
    if position + need > limit:
        return np.int64(NO_ROOM)
    out[position] = 34
    position = _put_escaped_bytes(data, first, stop, out, position + 1)
    out[position] = 34
    return np.int64(position + 1)


@routine
def put_quoted(
    data: Bytes, first: Integer, stop: Integer, out: Bytes, position: Integer, limit: Integer
) -> Integer:
    """Write a string in quotes, escaped; BAD if it is not UTF-8."""
    length = stop - first
    if position + length + MARGIN_BYTES > limit:
        return np.int64(NO_ROOM)
    out[position] = 34
    target = position + 1
    if not copy_plain(data, first, length, out, target):
        if not valid_utf8(data, first, stop, 4):
            return np.int64(BAD)
        return _put_escaped(data, first, stop, out, position, limit)
    out[target + length] = 34
    return np.int64(target + length + 1)


@routine
def _put_temporal(kind: Integer, packed: Integer, out: Bytes, position: Integer) -> Integer:
    """Write a temporal value from its packed number in a document, in quotes,
    with six fraction digits.
    """
    out[position] = 34
    position += 1
    negative = packed < 0
    if negative:
        packed = -packed
    fraction = packed & 0xFFFFFF
    whole = packed >> np.int64(24)
    if kind == _TYPE_TIME:
        hour = (whole >> 12) & 0x3FF
        position = put_time(
            out, position, negative, hour, (whole >> 6) & 63, whole & 63, fraction % 1_000_000, 6
        )
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
                out,
                position + 1,
                False,
                hour,
                (whole >> 6) & 63,
                whole & 63,
                fraction % 1_000_000,
                6,
            )
    out[position] = 34
    return position + 1


@routine
def _put_opaque(
    kind: Integer,
    data: Bytes,
    first: Integer,
    stop: Integer,
    out: Bytes,
    position: Integer,
    limit: Integer,
) -> Integer:
    """Write a value of a column type that JSON does not have."""
    length = stop - first
    if kind == _TYPE_DECIMAL:
        if length < 2:
            return np.int64(BAD)
        precision, scale = byte_at(data, first), byte_at(data, first + 1)
        whole = precision - scale
        if precision < 1 or precision > _DECIMAL_DIGITS_MAX or whole < 0:
            return np.int64(BAD)
        need = 4 * (whole // GROUP_DIGITS + scale // GROUP_DIGITS)
        need += DIGIT_BYTES[whole % GROUP_DIGITS] + DIGIT_BYTES[scale % GROUP_DIGITS]
        if length != 2 + need:
            return np.int64(BAD)
        return np.int64(put_decimal(data, first + 2, precision, scale, out, position))
    if kind in (_TYPE_DATE, _TYPE_TIME, _TYPE_DATETIME, _TYPE_TIMESTAMP):
        if length != 8:
            return np.int64(BAD)
        return np.int64(_put_temporal(kind, _word_at(data, first), out, position))
    if position + 4 * (length // 3 + 1) + 2 * (length // 57 + 1) + MARGIN_BYTES > limit:
        return np.int64(NO_ROOM)
    position = _put_bytes(_OPAQUE_PREFIX, 0, _OPAQUE_PREFIX.shape[0], out, position)
    position = put_unsigned(np.uint64(kind), out, position)
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
def put_scalar(
    kind: Integer,
    data: Bytes,
    at: Integer,
    stop: Integer,
    powers: Words,
    out: Bytes,
    position: Integer,
    limit: Integer,
) -> Integer:
    """Write a scalar value in data[at:stop]. Returns the position after it, BAD or NO_ROOM."""
    left = stop - at
    if kind == STRING:
        if left > 0 and byte_at(data, at) < 0x80:
            length, first = byte_at(data, at), at + 1
        else:
            length, first = _length_at(data, at, stop)
        if length < 0 or length > stop - first:
            return np.int64(BAD)
        return put_quoted(data, first, first + length, out, position, limit)
    if kind in (INT16, UINT16):
        if left < 2:
            return np.int64(BAD)
        value = unsigned_at(data, at, 2)
        if kind == INT16 and value >= _SIGN_BIT_16:
            value -= 2 * _SIGN_BIT_16
        return np.int64(_put_integer(value, out, position))
    if kind == LITERAL:
        if left < 1 or byte_at(data, at) > 2:
            return np.int64(BAD)
        which = byte_at(data, at)
        return np.int64(
            _put_bytes(_LITERALS, 4 * which, 4 * which + (5 if which == 2 else 4), out, position)
        )
    if kind in (INT32, UINT32):
        if left < 4:
            return np.int64(BAD)
        value = unsigned_at(data, at, 4)
        if kind == INT32 and value >= _SIGN_BIT_32:
            value -= 2 * _SIGN_BIT_32
        return np.int64(_put_integer(value, out, position))
    if kind in (INT64, UINT64, DOUBLE):
        if left < 8:
            return np.int64(BAD)
        value = _word_at(data, at)
        if kind == INT64:
            return np.int64(_put_integer(value, out, position))
        if kind == UINT64:
            return np.int64(put_unsigned(np.uint64(value), out, position))
        if (value >> 52) & 0x7FF == 0x7FF:  # infinities and NaN are not JSON
            return np.int64(BAD)
        return np.int64(put_double(np.uint64(value), powers, out, position))
    if kind == OPAQUE:
        if left < 2:
            return np.int64(BAD)
        length, first = _length_at(data, at + 1, stop)
        if length < 0 or length > stop - first:
            return np.int64(BAD)
        return _put_opaque(byte_at(data, at), data, first, first + length, out, position, limit)
    return np.int64(BAD)
