"""Second pass: gather values of fixed width into arrays.

Formats: integers little-endian; BIT and the "2" temporal types big-endian; NEWDECIMAL as groups of
nine decimal digits (MySQL `decimal2bin`): the first bit is flipped, and every byte of a negative
number is inverted.
"""

from __future__ import annotations

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

NULL = 0
VALID = 1
INVALID = 2

GROUP_DIGITS = 9
# Bytes that hold 0 to 9 decimal digits.
DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], dtype=np.int64)
POWERS = np.array([10**n for n in range(19)], dtype=np.int64)

_LOW_32 = np.uint64(0xFFFFFFFF)
_BITS_32 = np.uint64(32)
_ONE = np.uint64(1)


@helper
def integer_at(data: Bytes, p: Integer, width: Integer, big_endian: bool) -> Integer:
    """Read an unsigned integer of `width` bytes (1 to 8) as an int64 bit pattern."""
    # The usual widths are spelled out so that the compiler joins their bytes into one load.
    if width == 4:
        if big_endian:
            return (
                byte_at(data, p) << 24
                | byte_at(data, p + 1) << 16
                | byte_at(data, p + 2) << 8
                | byte_at(data, p + 3)
            )
        return (
            byte_at(data, p)
            | byte_at(data, p + 1) << 8
            | byte_at(data, p + 2) << 16
            | byte_at(data, p + 3) << 24
        )
    if width == 1:
        return byte_at(data, p)
    if width == 8 and not big_endian:
        return (
            byte_at(data, p)
            | byte_at(data, p + 1) << 8
            | byte_at(data, p + 2) << 16
            | byte_at(data, p + 3) << 24
            | byte_at(data, p + 4) << 32
            | byte_at(data, p + 5) << 40
            | byte_at(data, p + 6) << 48
            | byte_at(data, p + 7) << 56
        )
    value = np.int64(0)
    if big_endian:
        for index in range(width):
            value = value << 8 | byte_at(data, p + index)
    else:
        for index in range(width):
            value |= byte_at(data, p + index) << (8 * index)
    return value


@kernel
def gather_integers(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    width: Integer,
    big_endian: bool,
    signed: bool,
    out: Int64s,
    state: Bytes,
) -> None:
    """Gather integers of `width` bytes (1 to 8) as int64 bit patterns; 0 if there is no value.

    Args:
        base: int64 (rows,); relative: int32 (rows,): from `walk_rows`.
        out: int64 (rows,). state: uint8 (rows,): NULL or VALID.
    """
    shift = np.int64(64 - 8 * width)
    for row in range(base.shape[0]):
        if relative[row] < 0:
            out[row] = 0
            state[row] = NULL
            continue
        value = integer_at(data, base[row] + relative[row], width, big_endian)
        if signed:
            value = (value << shift) >> shift
        out[row] = value
        state[row] = VALID


@helper
def _times_plus(
    high: Integer, low: Integer, factor: Integer, addend: Integer
) -> tuple[Integer, Integer]:
    """high:low * factor + addend in 128 bits; factor and addend are below 2**32."""
    a = (low & _LOW_32) * factor + addend
    b = (low >> _BITS_32) * factor + (a >> _BITS_32)
    return high * factor + (b >> _BITS_32), (b << _BITS_32) | (a & _LOW_32)


@helper
def _decimal_group(
    data: Bytes, position: Integer, byte_count: Integer, first: Integer, flip: Integer
) -> Integer:
    """Read one big-endian group of digits.
    `first` is the number's first byte, `flip` 0xFF if negative.
    """
    value = np.int64(0)
    for index in range(position, position + byte_count):
        byte = byte_at(data, index) ^ flip
        if index == first:
            byte ^= 0x80
        value = value << 8 | byte
    return value


@helper
def decimal_words(
    data: Bytes, first: Integer, precision: Integer, scale: Integer
) -> tuple[Integer, Integer, bool]:
    """A NEWDECIMAL of at most 38 digits: high and low word, and whether all groups are digits."""
    whole = precision - scale
    head = whole % GROUP_DIGITS
    tail = scale % GROUP_DIGITS
    negative = byte_at(data, first) & 0x80 == 0
    flip = np.int64(0xFF) if negative else np.int64(0)
    position = first
    high = np.uint64(0)
    low = np.uint64(0)
    good = True
    if head:
        group = _decimal_group(data, position, DIGIT_BYTES[head], first, flip)
        good = group < POWERS[head]
        low = np.uint64(group)
        position += DIGIT_BYTES[head]
    for _ in range(whole // GROUP_DIGITS + scale // GROUP_DIGITS):
        group = _decimal_group(data, position, 4, first, flip)
        good = good and group < POWERS[GROUP_DIGITS]
        high, low = _times_plus(high, low, np.uint64(POWERS[GROUP_DIGITS]), np.uint64(group))
        position += 4
    if tail:
        group = _decimal_group(data, position, DIGIT_BYTES[tail], first, flip)
        good = good and group < POWERS[tail]
        high, low = _times_plus(high, low, np.uint64(POWERS[tail]), np.uint64(group))
    if negative:
        high = ~high
        low = ~low
        if low == ~np.uint64(0):
            low = np.uint64(0)
            high = high + _ONE
        else:
            low = low + _ONE
    return high, low, good


@helper
def put_digits(out: Bytes, position: Integer, value: Integer, digits: Integer) -> Integer:
    for index in range(position + digits - 1, position - 1, -1):
        out[index] = 48 + value % 10
        value //= 10
    return position + digits


@routine
def put_decimal(
    data: Bytes, first: Integer, precision: Integer, scale: Integer, out: Bytes, position: Integer
) -> Integer:
    """Write a NEWDECIMAL as the server prints it. Returns the position after it, or -1 if it is not
    a number.

    Writes at most precision + 3 bytes.
    """
    whole = precision - scale
    flip = np.int64(0)
    if byte_at(data, first) & 0x80 == 0:
        flip = np.int64(0xFF)
        out[position] = 45
        position += 1
    start = position
    source = first
    head = whole % GROUP_DIGITS
    for group in range(-1, whole // GROUP_DIGITS):
        digits = head if group < 0 else GROUP_DIGITS
        if digits:
            value = _decimal_group(data, source, DIGIT_BYTES[digits], first, flip)
            if value >= POWERS[digits]:
                return np.int64(-1)
            source += DIGIT_BYTES[digits]
            if position > start or value:
                if position == start:  # no leading zeros
                    digits = 1
                    while value >= POWERS[digits]:
                        digits += 1
                position = put_digits(out, position, value, digits)
    if position == start:
        out[position] = 48
        position += 1
    if scale:
        out[position] = 46
        position += 1
        remaining = scale
        while remaining:
            digits = min(remaining, GROUP_DIGITS)
            value = _decimal_group(data, source, DIGIT_BYTES[digits], first, flip)
            if value >= POWERS[digits]:
                return np.int64(-1)
            source += DIGIT_BYTES[digits]
            position = put_digits(out, position, value, digits)
            remaining -= digits
    return np.int64(position)


@kernel
def gather_decimal_text(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    precision: Integer,
    scale: Integer,
    out: Bytes,
    position: Integer,
    offsets: Int32s,
    state: Bytes,
) -> Integer:
    """Append NEWDECIMAL of more than 38 digits as plain text to `out` from `position`. Returns the
    end.

    offsets: int32 (rows + 1,), of which [1:] are written; out has room for precision + 3 bytes a
    row.
    """
    for row in range(base.shape[0]):
        state[row] = NULL
        if relative[row] >= 0:
            end = put_decimal(data, base[row] + relative[row], precision, scale, out, position)
            state[row] = INVALID if end < 0 else VALID
            if end >= 0:
                position = end
        offsets[row + 1] = position
    return position
