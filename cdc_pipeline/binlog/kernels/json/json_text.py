"""Append numbers, dates and decimals of one Arrow column to a buffer as JSON.

Rules:
- Every kernel writes the texts of its rows one after the other from `position` and sets start and
  end of each. A row that is not `valid` gets the text in out[:NULL_BYTES], ``null``.
- The caller provides room for the longest text of every row (the _BYTES_MAX here and in
  `json_strings`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.json.json_escapes import QUOTE
from cdc_pipeline.binlog.kernels.numbers import put_digits
from cdc_pipeline.binlog.kernels.text.shortest import (
    DOUBLE_TEXT_BYTES_MAX,
    digit_count,
    put_double,
    put_float,
    put_unsigned,
)
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

NULL_BYTES: Final = 4
INTEGER_BYTES_MAX: Final = 20
DECIMAL_BYTES_MAX: Final = 100
DATETIME_BYTES_MAX: Final = 30
REAL_BYTES_MAX: Final = DOUBLE_TEXT_BYTES_MAX

_POINT = 46
_MINUS = 45
_DAY_US: Final = 86_400_000_000
_SECOND_US: Final = 1_000_000
_DECIMAL_DIGITS: Final = 45  # five groups of nine hold 2**127
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TEN = np.uint64(10)
_GROUP = np.uint64(1_000_000_000)
_LOW_32 = np.uint64(0xFFFFFFFF)
_BITS_32 = np.uint64(32)
_ASCII_ZERO = np.uint64(48)


@helper
def put_null(row: Integer, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Point the row to the text at the front of the buffer."""
    starts[row] = 0
    ends[row] = NULL_BYTES


@kernel
def put_integers(
    values: NDArray[np.int64],
    valid: NDArray[np.uint8],
    signed: bool,
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Write integers from their 64 bits. values: int64 (rows,); valid: uint8 (rows,).
    Returns the end.
    """
    for row in range(values.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        value = np.uint64(values[row])
        if signed and values[row] < 0:
            out[position] = _MINUS
            position += 1
            value = ~value + _ONE if value != _ZERO else value
        position = put_unsigned(value, out, position)
        ends[row] = position
    return position


@helper
def _put_wide(
    out: NDArray[np.uint8], position: Integer, high: Integer, low: Integer, scale: Integer
) -> Integer:
    """Write a magnitude of 128 bits: first its digits with leading zeros,
    after the position of the text.
    """
    at = position + _DECIMAL_DIGITS + 3
    a, b = high >> _BITS_32, high & _LOW_32
    c, d = low >> _BITS_32, low & _LOW_32
    for group in range(5):
        rest = a % _GROUP
        a //= _GROUP
        part = rest << _BITS_32 | b
        b = part // _GROUP
        part = (part % _GROUP) << _BITS_32 | c
        c = part // _GROUP
        part = (part % _GROUP) << _BITS_32 | d
        d = part // _GROUP
        digits = part % _GROUP
        for index in range(at + 44 - 9 * group, at + 35 - 9 * group, -1):
            out[index] = np.uint8(_ASCII_ZERO + digits % _TEN)
            digits //= _TEN
    first = np.int64(0)
    while first < _DECIMAL_DIGITS - scale - 1 and out[at + first] == 48:
        first += 1
    for index in range(first, _DECIMAL_DIGITS):
        if index == _DECIMAL_DIGITS - scale:
            out[position] = _POINT
            position += 1
        out[position] = out[at + index]
        position += 1
    return position


@kernel
def put_decimals(
    words: NDArray[np.uint64],
    valid: NDArray[np.uint8],
    scale: Integer,
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Write decimal128 as plain text in quotes. words: uint64 (rows, 2), low word first.
    Returns the end.
    """
    for row in range(words.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = QUOTE
        position += 1
        low, high = words[row, 0], words[row, 1]
        if high >> np.uint64(63):
            out[position] = _MINUS
            position += 1
            high = ~high
            low = ~low
            if low == ~_ZERO:
                low = _ZERO
                high = high + _ONE
            else:
                low = low + _ONE
        if high == _ZERO and scale < 19:
            count = digit_count(low)
            if count <= scale:
                count = scale + 1
            end = position + count + (1 if scale else 0)
            index = end - 1
            for place in range(count):
                if place == scale and scale:
                    out[index] = _POINT
                    index -= 1
                out[index] = np.uint8(_ASCII_ZERO + low % _TEN)
                low //= _TEN
                index -= 1
            position = end
        else:
            position = _put_wide(out, position, high, low, scale)
        out[position] = QUOTE
        position += 1
        ends[row] = position
    return position


@helper
def _put_date(out: NDArray[np.uint8], position: Integer, days: Integer) -> Integer:
    """Write the date of a day since 1970 in the proleptic Gregorian calendar, years 0 to 9999."""
    shifted = days + 719_468  # since 0000-03-01: the leap day ends its year
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    position = put_digits(out, position, year, 4)
    out[position] = _MINUS
    position = put_digits(out, position + 1, month, 2)
    out[position] = _MINUS
    return put_digits(out, position + 1, day, 2)


@routine
def put_datetime(
    out: NDArray[np.uint8],
    position: Integer,
    moment_us: Integer,
    separator: Integer,
    digits: Integer,
) -> Integer:
    """Write microseconds since 1970 as date, separator and time with `digits` of the fraction."""
    days = moment_us // _DAY_US
    rest = moment_us - days * _DAY_US
    position = _put_date(out, position, days)
    out[position] = separator
    seconds = rest // _SECOND_US
    fraction = rest - seconds * _SECOND_US
    position = put_digits(out, position + 1, seconds // 3600, 2)
    out[position] = 58
    position = put_digits(out, position + 1, seconds // 60 % 60, 2)
    out[position] = 58
    position = put_digits(out, position + 1, seconds % 60, 2)
    if digits:
        out[position] = _POINT
        for _ in range(6 - digits):
            fraction //= 10
        position = put_digits(out, position + 1, fraction, digits)
    return position


@kernel
def put_dates(
    days: NDArray[np.int32],
    valid: NDArray[np.uint8],
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Write date32 in quotes. days: int32 (rows,) since 1970. Returns the end."""
    for row in range(days.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = QUOTE
        position = _put_date(out, position + 1, np.int64(days[row]))
        out[position] = QUOTE
        position += 1
        ends[row] = position
    return position


@kernel
def put_datetimes(
    moments_us: NDArray[np.int64],
    valid: NDArray[np.uint8],
    digits: Integer,
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Write timestamps in quotes as the server prints them, with `digits` of the fraction.
    Returns the end.
    """
    for row in range(moments_us.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = QUOTE
        position = put_datetime(out, position + 1, moments_us[row], 32, digits)
        out[position] = QUOTE
        position += 1
        ends[row] = position
    return position


@helper
def _put_no_number(
    out: NDArray[np.uint8], position: Integer, negative: bool, fraction: Integer
) -> Integer:
    """Write "NaN", "inf" or "-inf" in quotes:
    no server stores them, but bytes may, and JSON has no number.
    """
    out[position] = QUOTE
    position += 1
    if fraction:
        out[position], out[position + 1], out[position + 2] = 78, 97, 78
    else:
        if negative:
            out[position] = _MINUS
            position += 1
        out[position], out[position + 1], out[position + 2] = 105, 110, 102
    out[position + 3] = QUOTE
    return position + 4


@helper
def _put_real(
    bits: Integer,
    single: bool,
    powers: NDArray[np.uint64],
    out: NDArray[np.uint8],
    position: Integer,
) -> Integer:
    """Write a float or double from its bits."""
    if single:
        if bits & np.uint64(0x7F800000) == np.uint64(0x7F800000):
            return _put_no_number(
                out, position, bits >> np.uint64(31) != _ZERO, bits & np.uint64(0x7FFFFF)
            )
        return put_float(bits, powers, out, position)
    if bits & np.uint64(0x7FF0000000000000) == np.uint64(0x7FF0000000000000):
        return _put_no_number(
            out, position, bits >> np.uint64(63) != _ZERO, bits & np.uint64(0xFFFFFFFFFFFFF)
        )
    return put_double(bits, powers, out, position)


@kernel
def put_reals(
    bits: NDArray[np.uint64],
    valid: NDArray[np.uint8],
    single: bool,
    powers: NDArray[np.uint64],
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Write doubles, or floats of 32 bits if `single`, from their bits (uint64).
    Returns the end.
    """
    for row in range(bits.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        position = _put_real(bits[row], single, powers, out, position)
        ends[row] = position
    return position


@kernel
def put_vectors(
    offsets: NDArray[np.int32],
    bits: NDArray[np.uint32],
    valid: NDArray[np.uint8],
    powers: NDArray[np.uint64],
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Write lists of floats. offsets: int32 (rows + 1,) into `bits`. Returns the end."""
    for row in range(valid.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = 91
        position += 1
        for index in range(offsets[row], offsets[row + 1]):
            if index > offsets[row]:
                out[position] = 44
                position += 1
            position = _put_real(np.uint64(bits[index]), True, powers, out, position)
        out[position] = 93
        position += 1
        ends[row] = position
    return position
