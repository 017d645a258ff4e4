"""Assemble lines of JSON from the texts of their values, and order lines of several tables."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DELETE, INSERT
from cdc_pipeline.binlog.kernels.json.json_escapes import QUOTE
from cdc_pipeline.binlog.kernels.json.json_text import INTEGER_BYTES_MAX, put_datetime
from cdc_pipeline.binlog.kernels.memory import copy_piece
from cdc_pipeline.binlog.kernels.text.shortest import put_unsigned
from cdc_pipeline.binlog.native.compiling import Integer, kernel, routine

# The constant parts of a line, by index: heads by op, and the parts between and after the images.
HEAD: Final = 0  # + op: INSERT, UPDATE, DELETE
BETWEEN: Final = 4
AFTER_DELETE: Final = 5
JOURNAL: Final = 6
GTID: Final = 7
TIME: Final = 8
NULL: Final = 9
END: Final = 10
STATEMENT: Final = 11
PARTS: Final = 12

# Offset, number of the GTID, time with its quotes.
NUMBERS_BYTES_MAX: Final = 3 * INTEGER_BYTES_MAX + 40


@routine
def _put_image(
    row: Integer,
    values: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    present: NDArray[np.uint8],
    all_present: bool,
    names: NDArray[np.uint8],
    name_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
    position: Integer,
) -> Integer:
    """Write one image as a JSON object, without the columns whose bit in `present` is not set."""
    first = position
    for column in range(starts.shape[0]):
        if not all_present and (np.int64(present[row, column >> 3]) >> (column & 7)) & 1 == 0:
            continue
        name = name_offsets[column]
        position = copy_piece(names, name, name_offsets[column + 1] - name, out, position)
        start = starts[column, row]
        position = copy_piece(values, start, ends[column, row] - start, out, position)
    if position == first:
        out[position] = 123
        position += 1
    out[first] = 123  # replaces the first name's comma
    out[position] = 125
    return position + 1


@kernel
def put_lines(
    op: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    gtid_keys: NDArray[np.int32],
    gtid_numbers: NDArray[np.int64],
    commit_ts_us: NDArray[np.int64],
    parts: NDArray[np.uint8],
    part_offsets: NDArray[np.int64],
    keys: NDArray[np.uint8],
    key_offsets: NDArray[np.int64],
    names: NDArray[np.uint8],
    name_offsets: NDArray[np.int64],
    values: NDArray[np.uint8],
    before_starts: NDArray[np.int64],
    before_ends: NDArray[np.int64],
    after_starts: NDArray[np.int64],
    after_ends: NDArray[np.int64],
    before_present: NDArray[np.uint8],
    after_present: NDArray[np.uint8],
    all_present: bool,
    statement_of: NDArray[np.int64],
    statement_starts: NDArray[np.int64],
    statement_ends: NDArray[np.int64],
    out: NDArray[np.uint8],
    position: Integer,
    line_ends: NDArray[np.int64],
) -> Integer:
    """Write lines of changes of one table, each with its line end.

    Args:
        op: uint8 (rows,); offsets, gtid_numbers, commit_ts_us: int64 (rows,); gtid_keys: int32
            (rows,), -1 for none.
        parts, keys, names: bytes with their offsets; a key is followed by the number unless that is
            negative.
        values: output of the kernels of `json_text`; starts and ends: int64 (columns, rows) into
            it.
        statement_of: int64 (rows,), index into the starts and ends of statements in `values`, -1
            for none; or empty.
        line_ends: int64 (rows,), written.

    Returns: the end in `out`.
    """
    for row in range(op.shape[0]):
        change = np.int64(op[row])
        part = part_offsets[HEAD + change]
        position = copy_piece(parts, part, part_offsets[HEAD + change + 1] - part, out, position)
        if change != INSERT:
            position = _put_image(
                row,
                values,
                before_starts,
                before_ends,
                before_present,
                all_present,
                names,
                name_offsets,
                out,
                position,
            )
        if change == DELETE:
            part = part_offsets[AFTER_DELETE]
            position = copy_piece(parts, part, part_offsets[AFTER_DELETE + 1] - part, out, position)
        else:
            if change != INSERT:
                part = part_offsets[BETWEEN]
                position = copy_piece(parts, part, part_offsets[BETWEEN + 1] - part, out, position)
            position = _put_image(
                row,
                values,
                after_starts,
                after_ends,
                after_present,
                all_present,
                names,
                name_offsets,
                out,
                position,
            )
        part = part_offsets[JOURNAL]
        position = copy_piece(parts, part, part_offsets[JOURNAL + 1] - part, out, position)
        position = put_unsigned(np.uint64(offsets[row]), out, position)
        part = part_offsets[GTID]
        position = copy_piece(parts, part, part_offsets[GTID + 1] - part, out, position)
        key = np.int64(gtid_keys[row])
        if key < 0:
            part = part_offsets[NULL]
            position = copy_piece(parts, part, part_offsets[NULL + 1] - part, out, position)
        else:
            out[position] = QUOTE
            at = key_offsets[key]
            position = copy_piece(keys, at, key_offsets[key + 1] - at, out, position + 1)
            if gtid_numbers[row] >= 0:
                position = put_unsigned(np.uint64(gtid_numbers[row]), out, position)
            out[position] = QUOTE
            position += 1
        part = part_offsets[TIME]
        position = copy_piece(parts, part, part_offsets[TIME + 1] - part, out, position)
        if commit_ts_us[row] < 0:
            part = part_offsets[NULL]
            position = copy_piece(parts, part, part_offsets[NULL + 1] - part, out, position)
        else:
            out[position] = QUOTE
            position = put_datetime(out, position + 1, commit_ts_us[row], 84, 6)
            out[position] = 90
            out[position + 1] = QUOTE
            position += 2
        statement = np.int64(-1) if statement_of.shape[0] == 0 else statement_of[row]
        if statement >= 0:
            part = part_offsets[STATEMENT]
            position = copy_piece(parts, part, part_offsets[STATEMENT + 1] - part, out, position)
            at = statement_starts[statement]
            position = copy_piece(values, at, statement_ends[statement] - at, out, position)
        part = part_offsets[END]
        position = copy_piece(parts, part, part_offsets[END + 1] - part, out, position)
        line_ends[row] = position
    return position


@kernel
def order_lines(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    order: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> Integer:
    """Copy the lines [starts, ends) of `data` in the given order. Returns the bytes written."""
    position = np.int64(0)
    for index in range(order.shape[0]):
        line = order[index]
        position = copy_piece(data, starts[line], ends[line] - starts[line], out, position)
    return position
