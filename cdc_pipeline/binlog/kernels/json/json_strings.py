"""Append strings and bytes of one Arrow column to a buffer as JSON, by the rules of `json_text`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.json.json_escapes import HEX_DIGITS, QUOTE, put_escaped
from cdc_pipeline.binlog.kernels.json.json_text import put_null
from cdc_pipeline.binlog.kernels.memory import copy_piece
from cdc_pipeline.binlog.native.compiling import Integer, kernel

QUOTES_BYTES: Final = 2


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
    """Write UTF-8 texts in quotes. offsets: int32 (rows + 1,). `plain`: no byte needs an escape.
    Returns the end.
    """
    for row in range(valid.shape[0]):
        if valid[row] == 0:
            put_null(row, starts, ends)
            continue
        starts[row] = position
        out[position] = QUOTE
        position += 1
        first, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if plain:
            position = copy_piece(data, first, stop - first, out, position)
        else:
            position = put_escaped(data, first, stop, out, position)
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
    """Write bytes as lower-case hex in quotes,
    after the four bytes of `srids` (rows,) unless it is empty.
    """
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
                out[position] = HEX_DIGITS[byte >> 4]
                out[position + 1] = HEX_DIGITS[byte & 15]
                position += 2
        for index in range(offsets[row], offsets[row + 1]):
            byte = np.int64(data[index])
            out[position] = HEX_DIGITS[byte >> 4]
            out[position + 1] = HEX_DIGITS[byte & 15]
            position += 2
        out[position] = QUOTE
        position += 1
        ends[row] = position
    return position
