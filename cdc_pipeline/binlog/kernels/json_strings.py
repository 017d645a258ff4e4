"""Values of one Arrow column as JSON texts, appended to a buffer: strings and bytes. Rules as in `json_text`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.compiling import Integer, kernel
from cdc_pipeline.binlog.kernels.copying import copy_bytes
from cdc_pipeline.binlog.kernels.json_text import QUOTE, put_null

ESCAPED_BYTES_MORE: Final = 5  # a control character takes six bytes
QUOTES_BYTES: Final = 2
_BACKSLASH = 92
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


def _escapes() -> NDArray[np.uint8]:
    """By byte: 0 for itself, the letter after the backslash, or ``u`` for four hex digits."""
    table = np.zeros(256, np.uint8)
    table[:32] = ord("u")
    for byte, letter in (*zip(b"\b\t\n\f\r", b"btnfr", strict=True), (QUOTE, QUOTE), (_BACKSLASH, _BACKSLASH)):
        table[byte] = letter
    return table


_ESCAPES = _escapes()


@kernel
def escaped_bytes(data: NDArray[np.uint8], first: Integer, stop: Integer) -> Integer:
    """How many of the bytes [first, stop) need an escape."""
    count = np.int64(0)
    for index in range(first, stop):
        byte = data[index]
        count += np.int64((byte < 32) | (byte == QUOTE) | (byte == _BACKSLASH))
    return count


@kernel
def put_strings(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    plain: bool,
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """UTF-8 texts in quotes. offsets: int32 (rows + 1,). `plain`: no byte needs an escape. Returns the end."""
    for row in range(valid.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = QUOTE
        position += 1
        first, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if plain:
            position = copy_bytes(data, first, stop - first, out, position)
        else:
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
                if letter == 117:
                    out[position] = 48
                    out[position + 1] = 48
                    out[position + 2] = _HEX_DIGITS[byte >> 4]
                    out[position + 3] = _HEX_DIGITS[byte & 15]
                    position += 4
        out[position] = QUOTE
        position += 1
        ends[row] = position
    return position


@kernel
def put_hex(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    srids: NDArray[np.int32],
    valid: NDArray[np.uint8],
    out: NDArray[np.uint8],
    position: Integer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Integer:
    """Bytes as lower-case hex in quotes; with `srids` (rows,) (else empty) that number's four bytes before them."""
    for row in range(valid.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = QUOTE
        position += 1
        if srids.shape[0]:
            srid = np.int64(srids[row])
            for shift in range(0, 32, 8):
                byte = (srid >> shift) & 255
                out[position] = _HEX_DIGITS[byte >> 4]
                out[position + 1] = _HEX_DIGITS[byte & 15]
                position += 2
        for index in range(offsets[row], offsets[row + 1]):
            byte = np.int64(data[index])
            out[position] = _HEX_DIGITS[byte >> 4]
            out[position + 1] = _HEX_DIGITS[byte & 15]
            position += 2
        out[position] = QUOTE
        position += 1
        ends[row] = position
    return position
