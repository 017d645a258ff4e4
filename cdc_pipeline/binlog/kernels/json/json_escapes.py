"""Escapes inside JSON strings, and hex digits, as both servers write them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.native.compiling import Integer, routine

_QUOTE = 34
_BACKSLASH = 92
_FOUR_DIGITS = 117  # u
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def _escapes() -> NDArray[np.uint8]:
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
def put_escaped(
    data: NDArray[np.uint8],
    first: Integer,
    stop: Integer,
    out: NDArray[np.uint8],
    position: Integer,
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
