"""Rewrite rows of a binary-protocol result set as row images of the binlog.

A row of the binlog and the same row of a SELECT have the same values in other bytes. So the rows of
a result are rewritten once, value by value, to the form of rows events. Everything after that
(Arrow builders, charsets, labels, invalid values and their text) is the decoder of the log itself,
so the two cannot differ.

Formats: MySQL client/server protocol, "Binary Protocol Resultset Row" and "Binary Protocol Value":
a byte 0x00, a null bitmap whose first two bits are unused, then the values: numbers little-endian;
text, bytes, BIT and DECIMAL after their length (one byte below 251, else 252, 253 or 254 and two,
three or eight bytes); DATE, DATETIME and TIMESTAMP as a length of 0, 4, 7 or 11 and so many bytes
of year (2), month, day, hour, minute, second, microseconds (4); TIME as a length of 0, 8 or 12 and
sign, days (4), hour, minute, second, microseconds (4). `numbers` and `temporal` describe the target
forms.

Rules:
- No byte outside a packet is read, and none outside the requested room is written.
- A value that does not fit its column (a longer text, more digits, another length) stops with that
  column: the table no longer matches the schema.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at, copy_bytes, length_encoded_at, unsigned_at
from cdc_pipeline.binlog.kernels.numbers import DIGIT_BYTES, GROUP_DIGITS
from cdc_pipeline.binlog.kernels.temporal import days_since_1970, fraction_unit_us, is_date
from cdc_pipeline.binlog.kernels.walk import NO_VALUE
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel

# How a column is converted: values of OP.
FIXED: Final = 0  # WIDTH bytes, of which the first SIZE are kept
COUNTED: Final = 1  # bytes after their length, which becomes WIDTH bytes
BITS: Final = 2  # the same, of exactly SIZE bytes, without a length
YEAR: Final = 3  # two bytes; one, years since 1900
DATE: Final = 4
DATETIME: Final = 5  # WIDTH: bytes of the fraction
TIMESTAMP: Final = 6
TIME: Final = 7
DECIMAL: Final = 8  # text; WIDTH digits, SIZE of them after the point

# Fields of a program, one row per column.
OP: Final = 0
WIDTH: Final = 1
SIZE: Final = 2
FIELDS: Final = 3

# Why the kernel stopped.
NEED: Final = 0  # the rest of a packet is not received yet
FULL: Final = 1  # as many rows as there is room for
ROOM: Final = 2  # the next row may need state[S_ROOM] bytes of `out` after state[S_OUT]
END: Final = 3  # a packet that is not a row: the end or an error
LONG: Final = 4  # a row in more than one packet
SEQUENCE: Final = 5  # a packet out of order; state[S_GOT] is its number
# Values exceed the row's end, or do not fill it; state[S_COLUMN], -1 for the row itself.
OVERRUN: Final = 6
UNFIT: Final = 7  # a value that does not fit the type of column state[S_COLUMN]

# Indexes into the state, int64.
S_POSITION: Final = 0  # index in data of the next packet
S_SEQUENCE: Final = 1  # its number
S_OUT: Final = 2  # index in out of the next row
S_ROWS: Final = 3  # rows written so far
S_COLUMN: Final = 4
S_ROOM: Final = 5
S_GOT: Final = 6
STATE_WORDS: Final = 7

HEADER_BYTES: Final = 4
PACKET_BYTES_MAX: Final = 0xFFFFFF
VALUE_BYTES_MORE: Final = 32  # a value grows by no more than this: the longest DECIMAL has 30 bytes


@helper
def _put_big_endian(out: Bytes, position: Integer, value: Integer, width: Integer) -> Integer:
    for index in range(width):
        out[position + index] = np.uint8((value >> (8 * (width - 1 - index))) & 0xFF)
    return position + width


@helper
def _put_fraction(out: Bytes, position: Integer, micros: Integer, width: Integer) -> Integer:
    if width == 0:
        return position
    return _put_big_endian(out, position, micros // fraction_unit_us(width), width)


@helper
def _micros_at(data: Bytes, position: Integer, length: Integer, full: Integer) -> Integer:
    return unsigned_at(data, position + full - 4, 4) if length == full else np.int64(0)


@helper
def _put_moment(
    data: Bytes,
    position: Integer,
    length: Integer,
    op: Integer,
    width: Integer,
    out: Bytes,
    target: Integer,
) -> Integer:
    """Write a DATE, DATETIME or TIMESTAMP as the log packs it.
    Returns the position after it, or -1 if invalid.
    """
    year = np.int64(0)
    month = np.int64(0)
    day = np.int64(0)
    hour = np.int64(0)
    minute = np.int64(0)
    second = np.int64(0)
    if length >= 4:
        year = unsigned_at(data, position, 2)
        month = byte_at(data, position + 2)
        day = byte_at(data, position + 3)
    if length >= 7:
        hour = byte_at(data, position + 4)
        minute = byte_at(data, position + 5)
        second = byte_at(data, position + 6)
    micros = _micros_at(data, position, length, 11)
    if (
        year > 9999
        or month > 12
        or day > 31
        or hour > 23
        or minute > 59
        or second > 59
        or micros > 999_999
    ):
        return np.int64(-1)
    if op == DATE:
        packed = year << 9 | month << 5 | day
        out[target] = np.uint8(packed & 0xFF)
        out[target + 1] = np.uint8((packed >> 8) & 0xFF)
        out[target + 2] = np.uint8(packed >> 16)
        return target + 3
    if op == DATETIME:
        packed = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
        target = _put_big_endian(out, target, packed | np.int64(1) << 39, 5)
        return _put_fraction(out, target, micros, width)
    seconds = np.int64(0)
    if year != 0:
        if not is_date(year, month, day):
            return np.int64(-1)
        seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
        if seconds < 0 or seconds >> 32 != 0:
            return np.int64(-1)
    target = _put_big_endian(out, target, seconds, 4)
    return _put_fraction(out, target, micros, width)


@helper
def _put_time(
    data: Bytes, position: Integer, length: Integer, width: Integer, out: Bytes, target: Integer
) -> Integer:
    """Write a TIME as the log packs it. Returns the position after it, or -1 if invalid."""
    negative = False
    hours = np.int64(0)
    minute = np.int64(0)
    second = np.int64(0)
    if length >= 8:
        negative = byte_at(data, position) != 0
        hours = unsigned_at(data, position + 1, 4) * 24 + byte_at(data, position + 5)
        minute = byte_at(data, position + 6)
        second = byte_at(data, position + 7)
    micros = _micros_at(data, position, length, 12)
    if hours > 838 or minute > 59 or second > 59 or micros > 999_999:
        return np.int64(-1)
    bits = np.int64(8 * width)
    packed = (hours << 12 | minute << 6 | second) << bits
    if width:
        packed |= micros // fraction_unit_us(width)
    if negative:
        packed = -packed
    return _put_big_endian(out, target, packed + (np.int64(0x800000) << bits), 3 + width)


@helper
def _digit_at(data: Bytes, position: Integer, place: Integer, count: Integer) -> Integer:
    """Digit `place` of `count` digits at `position`; 0 before the first and after the last."""
    return byte_at(data, position + place) - 48 if 0 <= place < count else np.int64(0)


@helper
def _put_decimal(
    data: Bytes,
    position: Integer,
    end: Integer,
    precision: Integer,
    scale: Integer,
    out: Bytes,
    target: Integer,
) -> Integer:
    """Write plain decimal text as NEWDECIMAL.
    Returns the position after it, or -1 if it does not fit.
    """
    flip = np.int64(0)
    if position < end and byte_at(data, position) == 45:
        flip = np.int64(0xFF)
        position += 1
    point = position
    while point < end and byte_at(data, point) != 46:
        point += 1
    digits = point - position
    decimals = end - point - 1 if point < end else np.int64(0)
    if decimals > scale or digits + decimals == 0:
        return np.int64(-1)
    for index in range(position, end):
        if index != point and (byte_at(data, index) < 48 or byte_at(data, index) > 57):
            return np.int64(-1)
    whole = precision - scale
    while digits > whole:  # of ZEROFILL
        if byte_at(data, position) != 48:
            return np.int64(-1)
        position += 1
        digits -= 1
    first = target
    place = digits - whole  # of the next digit before the point; below 0: a leading zero
    size = whole % GROUP_DIGITS
    while place < digits:
        if size == 0:
            size = GROUP_DIGITS
        group = np.int64(0)
        for _ in range(size):
            group = group * 10 + _digit_at(data, position, place, digits)
            place += 1
        target = _put_big_endian(out, target, group, DIGIT_BYTES[size])
        size = np.int64(GROUP_DIGITS)
    place = np.int64(0)
    while place < scale:
        size = min(scale - place, np.int64(GROUP_DIGITS))
        group = np.int64(0)
        for _ in range(size):
            group = group * 10 + _digit_at(data, point + 1, place, decimals)
            place += 1
        target = _put_big_endian(out, target, group, DIGIT_BYTES[size])
    if flip:
        for index in range(first, target):
            out[index] ^= np.uint8(0xFF)
    out[first] ^= np.uint8(0x80)
    return target


@kernel
def rewrite_rows(
    data: Bytes,
    stop: Integer,
    bare: bool,
    rows_max: Integer,
    program: Int64s,
    state: Int64s,
    out: Bytes,
    base: Int64s,
    relative: Int32s,
    value_bytes: Int64s,
    nulls: Int64s,
) -> Integer:
    """Rewrite rows until the bytes or the room end, or another packet comes. Returns NEED, FULL,
    ROOM, END, LONG, SEQUENCE, OVERRUN or UNFIT; the rows before are complete.

    Args:
        data: uint8; the stream's bytes are data[state[S_POSITION] : stop].
        bare: the bytes are one row without packets around it.
        rows_max: maximum number of rows in the output.
        program: int64 (columns, FIELDS).
        state: int64 (STATE_WORDS,), kept from call to call.
        out: uint8, written: the row images (without null bitmaps).
        base: int64 (>= rows_max,): index in out of each row.
        relative: int32 (columns, >= rows_max): offset of each value from `base`, at its length
            bytes if it has them; NO_VALUE for NULL. value_bytes, nulls: int64 (columns,), counted
            up: as `walk.walk_rows` does.
    """
    columns = program.shape[0]
    bitmap_bytes = (columns + 9) >> 3
    more_bytes = VALUE_BYTES_MORE * columns
    position = state[S_POSITION]
    target = state[S_OUT]
    row = state[S_ROWS]
    sequence = state[S_SEQUENCE]
    status = np.int64(NEED)
    while True:
        state[S_POSITION] = position
        state[S_OUT] = target
        state[S_ROWS] = row
        state[S_SEQUENCE] = sequence
        start = position
        if bare:
            if position >= stop:
                break
            end = np.int64(stop)
        else:
            if position + HEADER_BYTES > stop:
                break
            length = unsigned_at(data, position, 3)
            if byte_at(data, position + 3) != sequence:
                state[S_GOT] = byte_at(data, position + 3)
                status = np.int64(SEQUENCE)
                break
            if length == PACKET_BYTES_MAX:
                status = np.int64(LONG)
                break
            start += HEADER_BYTES
            end = start + length
            if end > stop:
                break
        if end == start or byte_at(data, start) != 0:
            status = np.int64(END)
            break
        if row >= rows_max:
            status = np.int64(FULL)
            break
        if target + (end - start) + more_bytes > out.shape[0]:
            state[S_ROOM] = end - start + more_bytes
            status = np.int64(ROOM)
            break
        state[S_COLUMN] = -1
        at = start + 1 + bitmap_bytes
        if at > end:
            status = np.int64(OVERRUN)
            break
        base[row] = target
        first = target
        null_bits = byte_at(data, start + 1) >> 2
        for column in range(columns):
            place = column + 2
            if place & 7 == 0:
                null_bits = byte_at(data, start + 1 + (place >> 3))
            is_null = null_bits & 1
            null_bits >>= 1
            if is_null:
                relative[column, row] = NO_VALUE
                nulls[column] += 1
                continue
            op = program[column, OP]
            width = program[column, WIDTH]
            size = program[column, SIZE]
            relative[column, row] = target - first
            if op == FIXED:
                if at + width > end:
                    state[S_COLUMN] = column
                    status = np.int64(OVERRUN)
                    break
                if size == 4:
                    out[target] = data[np.uint64(at)]
                    out[target + 1] = data[np.uint64(at + 1)]
                    out[target + 2] = data[np.uint64(at + 2)]
                    out[target + 3] = data[np.uint64(at + 3)]
                else:
                    copy_bytes(data, at, size, out, target)
                at += width
                target += size
                continue
            if op == YEAR:
                if at + 2 > end:
                    state[S_COLUMN] = column
                    status = np.int64(OVERRUN)
                    break
                value = unsigned_at(data, at, 2)
                at += 2
                value = max(value - 1900, 0)
                if value > 255:
                    state[S_COLUMN] = column
                    status = np.int64(UNFIT)
                    break
                out[target] = np.uint8(value)
                target += 1
                continue
            # All others begin with a length.
            if at >= end:
                state[S_COLUMN] = column
                status = np.int64(OVERRUN)
                break
            count = byte_at(data, at)
            at += 1
            if count > 250:
                count, at = length_encoded_at(data, at - 1, end)
            if count < 0 or count > end - at:
                state[S_COLUMN] = column
                status = np.int64(OVERRUN)
                break
            if op == COUNTED:
                if count >> (8 * width) != 0:
                    state[S_COLUMN] = column
                    status = np.int64(UNFIT)
                    break
                for index in range(width):
                    out[target + index] = np.uint8((count >> (8 * index)) & 0xFF)
                target += width
                copy_bytes(data, at, count, out, target)
                target += count
                value_bytes[column] += count
            else:
                after = np.int64(-1)
                if op == BITS:
                    if count == size:
                        copy_bytes(data, at, count, out, target)
                        after = target + count
                elif op == DECIMAL:
                    after = _put_decimal(data, at, at + count, width, size, out, target)
                elif op == TIME:
                    if count == 0 or count == 8 or count == 12:
                        after = _put_time(data, at, count, width, out, target)
                elif count == 0 or count == 4 or count == 7 or count == 11:
                    after = _put_moment(data, at, count, op, width, out, target)
                if after < 0:
                    state[S_COLUMN] = column
                    status = np.int64(UNFIT)
                    break
                target = after
            at += count
        if status != NEED:
            break
        if at != end:
            state[S_COLUMN] = -1
            status = np.int64(OVERRUN)
            break
        position = end
        row += 1
        sequence = (sequence + 1) & 0xFF
    return status
