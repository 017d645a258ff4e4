"""Second pass over the frequent kinds of columns, all together.

Rows are processed in tiles that fit the nearest cache: all columns of a tile are gathered straight
into the buffers of their Arrow arrays. So a row's bytes are read from memory once instead of once
per column.

Rules:
- Only values that the walk has proved to be inside their event are read.
- A value that Arrow cannot hold is null and counted; its slot is undefined. The caller describes
  it.
- All buffers are in one arena, each at a multiple of 64 bytes; words of n bytes are addressed by
  their index in it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.memory import copy_bytes, prefetch, unsigned_at
from cdc_pipeline.binlog.kernels.numbers import decimal_words, integer_at
from cdc_pipeline.binlog.kernels.temporal import NO_TIME, date_days, datetime_us, timestamp_us
from cdc_pipeline.binlog.kernels.text.text import ASCII, BYTES, valid_utf8
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel

_TILE_ROWS: Final = 512
# With few columns, fewer rows stay in a nearer cache; with many, the shorter runs of each column
# cost more than that.
_FEW_COLUMNS: Final = 16
_FEW_COLUMNS_TILE_ROWS: Final = 128

# How a column is gathered: values of OP.
# Little-endian: WIDTH bytes, FIRST 1 if signed, to SECOND bytes (16: zero-extended).
INTEGER: Final = 0
DATE: Final = 1
DATETIME: Final = 2  # FIRST: bytes of the fraction
TIMESTAMP: Final = 3  # the same
DECIMAL: Final = 4  # FIRST digits, SECOND of them after the point
NUMBER: Final = 5  # of ENUM: WIDTH bytes, at most FIRST
TEXT: Final = 6  # WIDTH bytes of length; FIRST a mode of `text`, SECOND the length to pad to
REAL: Final = 7  # of WIDTH bytes; infinities and NaN are invalid

# Fields of a program, one row per column.
COLUMN: Final = 0
OP: Final = 1
WIDTH: Final = 2
FIRST: Final = 3
SECOND: Final = 4
OUT: Final = 5  # index in the arena, in words of the value's size (4 for offsets of TEXT), of row 0
VALID: Final = 6  # index in the arena of the validity bitmap, whose bits are initially set
END: Final = 7  # of TEXT: index in the arena where the next value goes
DATA: Final = 8  # of TEXT: index in the arena of the first value
NULLS: Final = 9  # counted: rows without a value
INVALIDS: Final = 10  # counted: values that Arrow cannot hold
FIELDS: Final = 11


@helper
def _clear_bit(bits: Bytes, first: Integer, row: Integer) -> None:
    bits[first + (row >> 3)] &= np.uint8(0xFF ^ (1 << (row & 7)))


@helper
def _put_word(
    bytes_: Bytes,
    words16: NDArray[np.int16],
    words32: Int32s,
    words64: Int64s,
    size: Integer,
    at: Integer,
    value: Integer,
) -> None:
    if size == 8:
        words64[at] = value
    elif size == 4:
        words32[at] = value
    elif size == 2:
        words16[at] = value
    elif size == 1:
        bytes_[at] = np.uint8(value & 0xFF)
    else:
        words64[2 * at] = value
        words64[2 * at + 1] = 0


@kernel
def gather_tiles(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    first_row: Integer,
    program: Int64s,
    bytes_: Bytes,
    words16: NDArray[np.int16],
    words32: Int32s,
    words64: Int64s,
) -> None:
    """Gather the columns of `program` for the rows of one block.

    Args:
        data: uint8, the chunk's bytes.
        base: int64 (rows,); relative: int32 (columns, >= rows): from `walk_rows`.
        first_row: row number in the result of the block's first row.
        program: int64 (n, FIELDS); END, NULLS and INVALIDS are carried from block to block.
        bytes_, words16, words32, words64: the arena, as words of 1, 2, 4 and 8 bytes.
    """
    tile_rows = _FEW_COLUMNS_TILE_ROWS if program.shape[0] <= _FEW_COLUMNS else _TILE_ROWS
    for low in range(0, base.shape[0], tile_rows):
        high = min(low + tile_rows, base.shape[0])
        for row in range(high, min(high + tile_rows, base.shape[0])):
            prefetch(data, base[row])
            prefetch(data, base[row] + 64)
        for line in range(program.shape[0]):
            column = program[line, COLUMN]
            op = program[line, OP]
            width = program[line, WIDTH]
            first = program[line, FIRST]
            second = program[line, SECOND]
            out = program[line, OUT] + first_row
            valid = program[line, VALID]
            nulls = np.int64(0)
            invalids = np.int64(0)
            if op == INTEGER:
                shift = np.int64(64 - 8 * width) if first else np.int64(0)
                for row in range(low, high):
                    value = np.int64(0)
                    if relative[column, row] < 0:
                        nulls += 1
                        _clear_bit(bytes_, valid, first_row + row)
                    else:
                        value = integer_at(data, base[row] + relative[column, row], width, False)
                        value = (value << shift) >> shift
                    _put_word(bytes_, words16, words32, words64, second, out + row, value)
            elif op == REAL:
                exponent = np.int64(0x7F800000) if width == 4 else np.int64(0x7FF0000000000000)
                for row in range(low, high):
                    value = np.int64(0)
                    if relative[column, row] < 0:
                        nulls += 1
                        _clear_bit(bytes_, valid, first_row + row)
                    else:
                        value = integer_at(data, base[row] + relative[column, row], width, False)
                        if value & exponent == exponent:
                            invalids += 1
                            _clear_bit(bytes_, valid, first_row + row)
                    _put_word(bytes_, words16, words32, words64, width, out + row, value)
            elif op == TEXT:
                end = program[line, END]
                start = program[line, DATA]
                for row in range(low, high):
                    if relative[column, row] < 0:
                        nulls += 1
                        _clear_bit(bytes_, valid, first_row + row)
                    else:
                        source = base[row] + relative[column, row]
                        length = unsigned_at(data, source, width)
                        source += width
                        is_ascii = copy_bytes(data, source, length, bytes_, end)
                        if (
                            is_ascii
                            or first == BYTES
                            or (first != ASCII and valid_utf8(data, source, source + length, first))
                        ):
                            end += length
                            for _ in range(length, second):
                                bytes_[end] = 0
                                end += 1
                        else:
                            invalids += 1
                            _clear_bit(bytes_, valid, first_row + row)
                    words32[out + row + 1] = end - start
                program[line, END] = end
            elif op == DECIMAL:
                for row in range(low, high):
                    words64[2 * (out + row)] = 0
                    words64[2 * (out + row) + 1] = 0
                    if relative[column, row] < 0:
                        nulls += 1
                        _clear_bit(bytes_, valid, first_row + row)
                    else:
                        top, bottom, good = decimal_words(
                            data, base[row] + relative[column, row], first, second
                        )
                        words64[2 * (out + row)] = np.int64(bottom)
                        words64[2 * (out + row) + 1] = np.int64(top)
                        if not good:
                            invalids += 1
                            _clear_bit(bytes_, valid, first_row + row)
            elif op in (DATETIME, TIMESTAMP):
                for row in range(low, high):
                    value = np.int64(0)
                    if relative[column, row] < 0:
                        nulls += 1
                        _clear_bit(bytes_, valid, first_row + row)
                    else:
                        packed = integer_at(data, base[row] + relative[column, row], width, True)
                        value = (
                            datetime_us(packed, first)
                            if op == DATETIME
                            else timestamp_us(packed, first)
                        )
                        if value == NO_TIME:
                            invalids += 1
                            _clear_bit(bytes_, valid, first_row + row)
                    words64[out + row] = value
            else:
                for row in range(low, high):
                    value = np.int64(0)
                    if relative[column, row] < 0:
                        nulls += 1
                        _clear_bit(bytes_, valid, first_row + row)
                    else:
                        value = integer_at(data, base[row] + relative[column, row], width, False)
                        if op == DATE:
                            value = date_days(value)
                            bad = value == NO_TIME
                        else:
                            bad = value > first or value < 0
                        if bad:
                            invalids += 1
                            _clear_bit(bytes_, valid, first_row + row)
                            value = np.int64(0)
                    words32[out + row] = value
            program[line, NULLS] += nulls
            program[line, INVALIDS] += invalids
