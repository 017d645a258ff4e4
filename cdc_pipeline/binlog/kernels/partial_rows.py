"""Convert rows events with JSON differences to plain ones, so that one walk reads all rows events.

Format (MySQL `Partial_update_rows_event`): an update whose rows have, between their images, options
(packed integer) and, if option 1 is set, one bit for each JSON column *of the table*, in the image
or not: set if the after image has differences instead of a document. The differences are one value
of the column's length bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at, length_encoded_at, unsigned_at
from cdc_pipeline.binlog.kernels.walk import COLUMN_COUNT, DONE, OVERRUN, S_COLUMN, S_COUNT, S_EVENT
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

# A status in addition to those of walk; state[S_COUNT] are the options.
UNKNOWN_OPTIONS: Final = 100
_PARTIAL_JSON: Final = 1


@routine
def _image_end(
    data: Bytes, position: Integer, end: Integer, present: Integer, rules: Int32s, state: Int64s
) -> Integer:
    """Return the position after the image at `position`, or -1 if it exceeds `end`.
    `present` is its bitmap.
    """
    count = 0
    for column in range(rules.shape[0]):
        count += (byte_at(data, present + (column >> 3)) >> (column & 7)) & 1
    nulls = position
    position += (count + 7) >> 3
    state[S_COLUMN] = -1
    if position > end:
        return np.int64(-1)
    index = 0
    for column in range(rules.shape[0]):
        if (byte_at(data, present + (column >> 3)) >> (column & 7)) & 1 == 0:
            continue
        is_null = (byte_at(data, nulls + (index >> 3)) >> (index & 7)) & 1
        index += 1
        if is_null:
            continue
        rule = np.int64(rules[column])
        state[S_COLUMN] = column
        if rule >= 0:
            position += rule
        elif position - rule > end:
            return np.int64(-1)
        else:
            position += unsigned_at(data, position, -rule) - rule
        if position > end:
            return np.int64(-1)
    state[S_COLUMN] = -1
    return np.int64(position)


@helper
def _copy(data: Bytes, first: Integer, stop: Integer, out: Bytes, target: Integer) -> Integer:
    for index in range(stop - first):
        out[np.uint64(target + index)] = data[np.uint64(first + index)]
    return target + stop - first


@kernel
def strip_events(
    data: Bytes,
    first: Int64s,
    last: Int64s,
    is_partial: Bytes,
    id_bytes: Bytes,
    rules: Int32s,
    state: Int64s,
    out: Bytes,
    new_first: Int64s,
    new_last: Int64s,
    first_row: Int64s,
    bits: Bytes,
) -> Integer:
    """Copy the bodies of rows events, converting those with differences to plain updates.

    Call it twice: with an empty `out` it only counts the rows with differences; then with room for
    them. Returns walk's DONE (state[S_COUNT] is the count of rows), OVERRUN or COLUMN_COUNT, or
    UNKNOWN_OPTIONS.

    Args:
        first, last, id_bytes, rules, state: as for `walk.walk_rows`. is_partial: uint8 (events,).
        out: uint8 with as many bytes as all events, or none.
        new_first, new_last: int64 (events,), written: where the bodies are in `out`.
        first_row: int64 (events,), written: row of `bits` of the event's first row; -1 for other
            events.
        bits: uint8 (rows, ceil(JSON columns of the table / 8)), written: which JSON columns have
            differences.
    """
    columns = rules.shape[0]
    bitmap_bytes = (columns + 7) >> 3
    bit_bytes = bits.shape[1]
    filling = out.shape[0] > 0
    target = np.int64(0)
    rows = np.int64(0)
    for event in range(first.shape[0]):
        state[S_EVENT] = event
        state[S_COLUMN] = -1
        begin = first[event]
        end = last[event]
        new_first[event] = target
        first_row[event] = -1
        if not is_partial[event]:
            if filling:
                target = _copy(data, begin, end, out, target)
            new_last[event] = target
            continue
        first_row[event] = rows
        position = begin + id_bytes[event] + 2
        if position + 2 > end:
            return np.int64(OVERRUN)
        position += max(unsigned_at(data, position, 2), 2)
        count, position = length_encoded_at(data, position, end)
        if count < 0:
            return np.int64(OVERRUN)
        if count != columns:
            state[S_COUNT] = count
            return np.int64(COLUMN_COUNT)
        before = position
        after = before + bitmap_bytes
        position = after + bitmap_bytes
        if position > end:
            return np.int64(OVERRUN)
        if filling:
            target = _copy(data, begin, position, out, target)
        while position < end:
            image = position
            position = _image_end(data, position, end, before, rules, state)
            if position < 0:
                return np.int64(OVERRUN)
            if filling:
                target = _copy(data, image, position, out, target)
            options, position = length_encoded_at(data, position, end)
            if options < 0:
                return np.int64(OVERRUN)
            if options & ~_PARTIAL_JSON:
                state[S_COUNT] = options
                return np.int64(UNKNOWN_OPTIONS)
            if options:
                if position + bit_bytes > end:
                    return np.int64(OVERRUN)
                if filling:
                    for index in range(bit_bytes):
                        bits[rows, index] = data[position + index]
                position += bit_bytes
            elif filling:
                for index in range(bit_bytes):
                    bits[rows, index] = 0
            image = position
            position = _image_end(data, position, end, after, rules, state)
            if position < 0:
                return np.int64(OVERRUN)
            if filling:
                target = _copy(data, image, position, out, target)
            rows += 1
        new_last[event] = target
    state[S_COUNT] = rows
    return np.int64(DONE)
