"""Convert dates and times from packed integers of the wire to Arrow's counts or the server's text.

Formats (MySQL `my_time.cc`): DATE is day 5 bits, month 4, year 15. DATETIME2 packs (year * 13 +
month) << 22 | day << 17 | hour << 12 | minute << 6 | second in 40 bits with the top bit set, and
the fraction in 0 to 3 bytes after it. TIME2 packs hour << 12 | minute << 6 | second in 24 bits,
minus 0x800000, fraction likewise: the whole, fraction included, is one signed number.

MariaDB's old types with a fraction (mysql56_temporal_format=OFF, or tables from before 10.1;
verified on 10.11), all big-endian, with the fraction in units of its last digit: TIMESTAMP is
seconds in 4 bytes, then the fraction in 0 to 3. DATETIME and TIME are one number, the seconds times
10 ** digits plus the fraction; the seconds of a DATETIME are (((year * 13 + month) * 32 + day) * 24
+ hour) * 60 and so on, those of a TIME count from 839 hours below zero.
"""

from __future__ import annotations

import numpy as np

from cdc_pipeline.binlog.kernels.numbers import INVALID, POWERS, VALID, put_digits
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

DAY_US = np.int64(86_400_000_000)
SECOND_US = np.int64(1_000_000)
NO_TIME = np.int64(-(1 << 63))  # not a calendar time
_ZERO_SECONDS = 838 * 3600 + 59 * 60 + 59 + 1  # the stored value of a zero TIME with a fraction
_FRACTION_DIGITS_MAX = 6

_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


@helper
def is_date(year: Integer, month: Integer, day: Integer) -> Integer:
    """Whether this is a date of the proleptic Gregorian calendar, years 1 to 9999."""
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return False
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return day <= 29
    return day <= _MONTH_DAYS[month]


@helper
def days_since_1970(year: Integer, month: Integer, day: Integer) -> Integer:
    """The days since 1970 of a valid date; the calculation uses years that begin in March."""
    if month <= 2:
        year -= 1
        month += 12
    return (
        365 * year
        + year // 4
        - year // 100
        + year // 400
        + (153 * (month - 3) + 2) // 5
        + day
        - 719_469
    )


@helper
def date_days(value: Integer) -> Integer:
    year, month, day = value >> 9, (value >> 5) & 15, value & 31
    return days_since_1970(year, month, day) if is_date(year, month, day) else NO_TIME


@helper
def fraction_unit_us(fraction_bytes: Integer) -> Integer:
    """The microseconds of one unit of a fraction in so many bytes."""
    return (
        np.int64(1)
        if fraction_bytes == 3
        else (np.int64(100) if fraction_bytes == 2 else np.int64(10_000))
    )


@helper
def datetime_us(packed: Integer, fraction_bytes: Integer) -> Integer:
    """The microseconds since 1970 of the big-endian bits of a DATETIME2, or NO_TIME."""
    bits = np.int64(8 * fraction_bytes)
    value = packed ^ np.int64(1) << (np.int64(39) + bits)
    fraction_us = (value & ((np.int64(1) << bits) - 1)) * fraction_unit_us(fraction_bytes)
    value >>= bits
    months = value >> 22
    hour, minute, second = (value >> 12) & 31, (value >> 6) & 63, value & 63
    year, month, day = months // 13, months % 13, (value >> 17) & 31
    if (
        value < 0
        or not is_date(year, month, day)
        or hour > 23
        or minute > 59
        or second > 59
        or fraction_us >= SECOND_US
    ):
        return NO_TIME
    seconds = hour * 3600 + minute * 60 + second
    return days_since_1970(year, month, day) * DAY_US + seconds * SECOND_US + fraction_us


@helper
def timestamp_us(packed: Integer, fraction_bytes: Integer) -> Integer:
    """The microseconds since 1970 of the bits of a TIMESTAMP2, or NO_TIME; 0 is the zero date, and
    MariaDB also has fractions of second 0."""
    bits = np.int64(8 * fraction_bytes)
    seconds = packed >> bits
    fraction_us = (packed & ((np.int64(1) << bits) - 1)) * fraction_unit_us(fraction_bytes)
    return NO_TIME if packed == 0 or fraction_us >= SECOND_US else seconds * SECOND_US + fraction_us


@kernel
def old_datetimes(packed: Int64s, out: Int64s, state: Bytes) -> None:
    """Convert DATETIME of type 12 (YYYYMMDDhhmmss) to microseconds since 1970, wall clock."""
    for row in range(packed.shape[0]):
        out[row] = 0
        if state[row] != VALID:
            continue
        date, time = packed[row] // 1_000_000, packed[row] % 1_000_000
        year, month, day = date // 10_000, date // 100 % 100, date % 100
        hour, minute, second = time // 10_000, time // 100 % 100, time % 100
        if (
            packed[row] < 0
            or not is_date(year, month, day)
            or hour > 23
            or minute > 59
            or second > 59
        ):
            state[row] = INVALID
            continue
        seconds = hour * 3600 + minute * 60 + second
        out[row] = days_since_1970(year, month, day) * DAY_US + seconds * SECOND_US


@routine
def put_time(
    out: Bytes,
    position: Integer,
    negative: bool,
    hour: Integer,
    minute: Integer,
    second: Integer,
    fraction: Integer,
    digits: Integer,
) -> Integer:
    """Write [-]HH:MM:SS[.fraction]. Returns the position after it."""
    if negative:
        out[position] = 45
        position += 1
    position = put_digits(out, position, hour, 2 if hour < 100 else (3 if hour < 1000 else 4))
    out[position] = 58
    position = put_digits(out, position + 1, minute, 2)
    out[position] = 58
    position = put_digits(out, position + 1, second, 2)
    if digits:
        out[position] = 46
        position = put_digits(out, position + 1, fraction, digits)
    return position


@kernel
def times(
    packed: Int64s,
    fraction_bytes: Integer,
    digits: Integer,
    old: bool,
    out: Bytes,
    offsets: Int32s,
    state: Bytes,
) -> Integer:
    """Write TIME2 (or the old type 11: a number hhmmss) as text. Returns the count of bytes
    written.

    packed: int64; out: uint8 with room for 20 bytes a row; offsets: int32 (rows + 1,).
    """
    top = np.int64(1) << np.int64(23 + 8 * fraction_bytes)
    mask = (np.int64(1) << np.int64(8 * fraction_bytes)) - 1
    position = np.int64(0)
    offsets[0] = 0
    for row in range(packed.shape[0]):
        if state[row] == VALID:
            if old:
                negative = packed[row] < 0
                value = abs(packed[row])
                hour, minute, second, fraction = (
                    value // 10_000,
                    value // 100 % 100,
                    value % 100,
                    np.int64(0),
                )
            else:
                value = packed[row] - top
                negative = value < 0
                value = abs(value)
                # In units of 1/100, 1/10_000 or 1/1_000_000, cut to the declared digits.
                fraction = (value & mask) // POWERS[2 * fraction_bytes - digits]
                value >>= np.int64(8 * fraction_bytes)
                hour, minute, second = value >> 12, (value >> 6) & 63, value & 63
            if hour > 838 or minute > 59 or second > 59 or fraction >= POWERS[digits]:
                state[row] = INVALID
            else:
                position = put_time(out, position, negative, hour, minute, second, fraction, digits)
        offsets[row + 1] = position
    return position


@kernel
def old_timestamps(packed: Int64s, digits: Integer, out: Int64s, state: Bytes) -> None:
    """Convert TIMESTAMP of type 7 to microseconds since 1970, UTC; 0 is the zero date."""
    shift = np.int64(8 * ((digits + 1) // 2))
    mask = (np.int64(1) << shift) - 1
    for row in range(packed.shape[0]):
        out[row] = 0
        if state[row] == VALID:
            fraction = packed[row] & mask
            if packed[row] == 0 or fraction >= POWERS[digits]:
                state[row] = INVALID
            else:
                out[row] = (packed[row] >> shift) * SECOND_US + fraction * POWERS[
                    _FRACTION_DIGITS_MAX - digits
                ]


@kernel
def fractional_datetimes(packed: Int64s, digits: Integer, out: Int64s, state: Bytes) -> None:
    """Convert DATETIME of type 12 with a fraction to microseconds since 1970, wall clock."""
    for row in range(packed.shape[0]):
        out[row] = 0
        if state[row] != VALID:
            continue
        fraction = packed[row] % POWERS[digits]
        seconds = packed[row] // POWERS[digits]
        days = seconds // 86_400
        months = days // 32
        if packed[row] < 0 or not is_date(months // 13, months % 13, days % 32):
            state[row] = INVALID
            continue
        day = days_since_1970(months // 13, months % 13, days % 32)
        fraction_us = fraction * POWERS[_FRACTION_DIGITS_MAX - digits]
        out[row] = day * DAY_US + seconds % 86_400 * SECOND_US + fraction_us


@kernel
def fractional_times(
    packed: Int64s, digits: Integer, out: Bytes, offsets: Int32s, state: Bytes
) -> Integer:
    """Write TIME of type 11 with a fraction as text; see `times`."""
    zero = np.int64(_ZERO_SECONDS) * POWERS[digits]
    position = np.int64(0)
    offsets[0] = 0
    for row in range(packed.shape[0]):
        if state[row] == VALID:
            value = packed[row] - zero
            negative = value < 0
            value = abs(value)
            seconds = value // POWERS[digits]
            if seconds >= _ZERO_SECONDS:
                state[row] = INVALID
            else:
                position = put_time(
                    out,
                    position,
                    negative,
                    seconds // 3600,
                    seconds // 60 % 60,
                    seconds % 60,
                    value % POWERS[digits],
                    digits,
                )
        offsets[row + 1] = position
    return position
