"""Convert doubles to the shortest text that reads back, in the server's layout.

Algorithm: Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2020): of all decimals in
the rounding interval of the double the shortest, and of those the closest. It needs no
floating-point operation. Short numbers are found by one division before it.

Layout (MySQL `my_gcvt`): plain if the decimal point is -14 to 15 digits from the front, or between
two digits (16 of 17 before it), otherwise d.ddde[-]x; a number without point and exponent gets
".0", as JSON text does.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from cdc_pipeline.binlog.native.arrays import Bytes, Words
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

_POWER_MIN: Final = -292
_POWER_MAX: Final = 324
_DIGITS_BEFORE_POINT_MAX: Final = 15
_DIGITS_BEFORE_POINT_MIN: Final = -14

_LOW_32 = np.uint64(0xFFFFFFFF)
_BITS_32 = np.uint64(32)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_TEN = np.uint64(10)
_HUNDRED = np.uint64(100)
_ZERO = np.uint64(0)
_MAGNITUDE = np.uint64((1 << 63) - 1)
_POWERS = np.array([10**n for n in range(20)], np.uint64)
_PAIRS = np.frombuffer(b"".join(b"%02d" % n for n in range(100)), np.uint8)

DOUBLE_TEXT_BYTES_MAX: Final = 40


@cache
def powers_of_ten() -> Words:
    """10**k for k = -292 to 324 as 128-bit integers with the top bit set, rounded up. Returns
    uint64 (617, 2), high word first.
    """
    words = np.empty((_POWER_MAX - _POWER_MIN + 1, 2), np.uint64)
    for index, power in enumerate(range(_POWER_MIN, _POWER_MAX + 1)):
        value = 10 ** abs(power)
        bits = value.bit_length()
        if power < 0:
            scaled = -(-(1 << bits + 127) // value)
        elif bits <= 128:
            scaled = value << 128 - bits
        else:
            scaled = -(-value >> bits - 128)
        words[index] = scaled >> 64, scaled & (1 << 64) - 1
    return words


@helper
def _product(a: Integer, b: Integer) -> tuple[Integer, Integer]:
    a_low, a_high = a & _LOW_32, a >> _BITS_32
    b_low, b_high = b & _LOW_32, b >> _BITS_32
    low = a_low * b_low
    middle = a_high * b_low + (low >> _BITS_32)
    other = a_low * b_high + (middle & _LOW_32)
    return a_high * b_high + (middle >> _BITS_32) + (other >> _BITS_32), (other << _BITS_32) | (
        low & _LOW_32
    )


@routine
def _rounded_to_odd(high: Integer, low: Integer, factor: Integer) -> Integer:
    """The top word of the 192-bit product, with its last bit set if anything below was lost."""
    carried, _ = _product(low, factor)
    top, rest = _product(high, factor)
    missing = ~rest
    if carried > missing:  # rest + carried overflows
        top += _ONE
        rest = carried - missing - _ONE
    else:
        rest += carried
    return top | _ONE if rest > _ONE else top


@kernel
def _shortest_decimal(bits: Integer, powers: Words) -> tuple[Integer, Integer]:
    """Digits and decimal exponent of a finite, non-zero double, from its bits (sign ignored).
    Returns (uint64 digits, int64 exponent): the value is digits * 10**exponent.
    """
    fraction = bits & np.uint64(0xFFFFFFFFFFFFF)
    biased = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    significand = fraction
    exponent = np.int64(-1074)
    if biased:
        significand = fraction | np.uint64(1 << 52)
        exponent = biased - 1075
        if -53 < exponent <= 0:
            whole = significand >> np.uint64(-exponent)
            if whole << np.uint64(-exponent) == significand:
                return whole, np.int64(0)
    # The gap below a power of two is half as wide.
    digits, power = _shortest_between(significand, exponent, fraction == 0 and biased > 1, powers)
    return digits, power


@routine
def _shortest_between(
    significand: Integer, exponent: Integer, closer: bool, powers: Words
) -> tuple[Integer, Integer]:
    """Return the shortest decimal closer to significand * 2**exponent than to its neighbours;
    of those the closest.
    """
    odd = significand & _ONE
    power = (exponent * 1262611 - (524031 if closer else 0)) >> 22
    shift = np.uint64(exponent + ((-power * 1741647) >> 19) + 1)
    high = powers[-power - _POWER_MIN, 0]
    low = powers[-power - _POWER_MIN, 1]
    center = significand << _TWO
    lower = _rounded_to_odd(high, low, (center - (_ONE if closer else _TWO)) << shift) + odd
    value = _rounded_to_odd(high, low, center << shift)
    upper = _rounded_to_odd(high, low, (center + _TWO) << shift) - odd
    digits = value >> _TWO
    if digits >= _TEN:
        tens = digits // _TEN
        below = lower <= np.uint64(40) * tens
        above = np.uint64(40) * tens + np.uint64(40) <= upper
        if below != above:
            return tens + (_ONE if above else np.uint64(0)), power + 1
    below = lower <= _FOUR * digits
    above = _FOUR * digits + _FOUR <= upper
    if below != above:
        return digits + (_ONE if above else np.uint64(0)), power
    middle = _FOUR * digits + _TWO
    up = value > middle or (value == middle and digits & _ONE == _ONE)
    return digits + (_ONE if up else np.uint64(0)), power


@routine
def _put_pairs(value: Integer, digits: Integer, out: Bytes, position: Integer) -> Integer:
    at = position + digits
    while at - position >= 2:
        rest = value // _HUNDRED
        pair = np.int64(value - rest * _HUNDRED)
        at -= 2
        out[at] = _PAIRS[2 * pair]
        out[at + 1] = _PAIRS[2 * pair + 1]
        value = rest
    if at > position:
        out[position] = np.uint8(np.uint64(48) + value)
    return position + digits


@helper
def _digit_count(value: Integer) -> Integer:
    count = np.int64(1)
    while count < 20 and value >= _POWERS[count]:
        count += 1
    return count


@routine
def put_unsigned(value: Integer, out: Bytes, position: Integer) -> Integer:
    if value < _TEN:
        out[position] = np.uint8(np.uint64(48) + value)
        return position + 1
    return _put_pairs(value, _digit_count(value), out, position)


@helper
def _without_zeros(digits: Integer, exponent: Integer) -> tuple[Integer, Integer]:
    for width in (8, 4, 2, 1):
        rest = digits // _POWERS[width]
        if rest * _POWERS[width] == digits:
            digits = rest
            exponent += width
    return digits, exponent


@routine
def _few_digits(bits: Integer) -> tuple[Integer, Integer]:
    """The shortest decimal of a positive double if it has at most 15 digits, 4 of them after the
    point.

    Only one decimal of up to 15 digits reads back as a given double, so one that does is the
    shortest. Returns (digits, exponent); (0, 0) if there is no such decimal.
    """
    value = np.uint64(bits).view(np.float64)
    if value < 1e11:
        digits = np.uint64(value * 1e4 + 0.5)
        if digits and np.float64(digits) / 1e4 == value:
            digits, exponent = _without_zeros(digits, np.int64(-4))
            return digits, exponent
    return np.uint64(0), np.int64(0)


@kernel
def put_double(bits: Integer, powers: Words, out: Bytes, position: Integer) -> Integer:
    """Write a finite double. Returns the position after it.
    Writes at most DOUBLE_TEXT_BYTES_MAX bytes.
    """
    if bits >> np.uint64(63):
        out[position] = 45
        position += 1
        bits = bits & _MAGNITUDE
    if bits == _ZERO:
        out[position] = 48
        out[position + 1] = 46
        out[position + 2] = 48
        return position + 3
    digits, exponent = _few_digits(bits)
    if digits == _ZERO:
        digits, exponent = _shortest_decimal(bits, powers)
        digits, exponent = _without_zeros(digits, exponent)
    return _put_number(digits, exponent, out, position)


@routine
def _put_number(digits: Integer, exponent: Integer, out: Bytes, position: Integer) -> Integer:
    """Write digits * 10**exponent, not zero and without trailing zeros, in the server's layout.
    Returns the position after it."""
    count = _digit_count(digits)
    point = count + exponent  # digits before the decimal point
    if point < _DIGITS_BEFORE_POINT_MIN or (point > _DIGITS_BEFORE_POINT_MAX and exponent >= 0):
        power = _POWERS[count - 1]
        first = digits // power
        out[position] = np.uint8(np.uint64(48) + first)
        position += 1
        if count > 1:
            out[position] = 46
            position = _put_pairs(digits - first * power, count - 1, out, position + 1)
        out[position] = 101
        position += 1
        scale = point - 1
        if scale < 0:
            out[position] = 45
            position += 1
            scale = -scale
        return put_unsigned(np.uint64(scale), out, position)
    if point <= 0:
        out[position] = 48
        out[position + 1] = 46
        position += 2
        for _ in range(-point):
            out[position] = 48
            position += 1
        return _put_pairs(digits, count, out, position)
    if exponent < 0:
        power = _POWERS[-exponent]
        whole = digits // power
        position = put_unsigned(whole, out, position)
        out[position] = 46
        return _put_pairs(digits - whole * power, -exponent, out, position + 1)
    position = _put_pairs(digits, count, out, position)
    for _ in range(exponent):
        out[position] = 48
        position += 1
    out[position] = 46
    out[position + 1] = 48
    return position + 2
