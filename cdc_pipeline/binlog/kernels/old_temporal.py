"""MariaDB's old temporal types with a fraction (mysql56_temporal_format=OFF, or tables from before
10.1).

Formats (verified on MariaDB 10.11), all big-endian, with the fraction in units of its last digit:
TIMESTAMP is seconds in 4 bytes, then the fraction in 1 to 3. DATETIME and TIME are one number, the
seconds times 10 ** digits plus the fraction; the seconds of a DATETIME are (((year * 13 + month) *
32 + day) * 24 + hour) * 60 and so on, those of a TIME count from 839 hours below zero.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.numbers import INVALID, POWERS, VALID
from cdc_pipeline.binlog.kernels.temporal import (
    DAY_US,
    SECOND_US,
    days_since_1970,
    is_date,
    put_time,
)
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, kernel

_ZERO_SECONDS: Final = 838 * 3600 + 59 * 60 + 59 + 1  # the stored value of a zero TIME
_FRACTION_DIGITS_MAX: Final = 6


@kernel
def fractional_timestamps(packed: Int64s, digits: Integer, out: Int64s, state: Bytes) -> None:
    """Convert TIMESTAMP to microseconds since 1970, UTC; 0 is the zero date. digits: 1 to 6."""
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
    """Convert DATETIME to microseconds since 1970, wall clock. digits: 1 to 6."""
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
    """Write TIME as text. Returns the bytes written. digits: 1 to 6; out: 20 bytes a row."""
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
