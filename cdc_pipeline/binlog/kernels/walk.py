"""First pass over rows events: locate each value of each row.

Format (MySQL `Rows_event`): table id (4 or 6 bytes), flags (2), in version 2 a length (2, itself
included) and so much extra information, the column count (packed integer), the columns-present
bitmap (two of them for updates: before, after), then the images until the event's end. An image is
a null bitmap over its present columns and the values that are not null, without gaps.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at, prefetch, unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

DONE: Final = 0
FULL: Final = 1  # the output is full: call again with the same state
# Values exceed the event's end; state[S_COLUMN] is the column, or -1 for the event's header.
OVERRUN: Final = 2
COLUMN_COUNT: Final = 3  # state[S_COUNT] columns in the event

# Indexes into the int64 state array of the walk, kept from call to call.
S_EVENT: Final = 0
S_POSITION: Final = 1  # index into data of the next row; 0 at the start of an event
S_ORDINAL: Final = 2
S_ROWS: Final = 3  # rows written by this call
S_COLUMN: Final = 4
S_COUNT: Final = 5
STATE_WORDS: Final = 6

INSERT: Final = 1
UPDATE: Final = 2
DELETE: Final = 3

_EVENTS_AHEAD: Final = 12  # events to prefetch, and cache lines of 64 bytes of each
_LINES_AHEAD: Final = 4

NO_VALUE: Final = -1
NO_ROWS: Final = -2  # column of OVERRUN: the event has no rows


@helper
def _copy_bitmap(data: Bytes, position: Integer, columns: Integer, bits: Bytes) -> None:
    for index in range((columns + 7) >> 3):
        bits[index] = data[np.uint64(position + index)]
    if columns & 7:  # the padding bits of the last byte are meaningless
        bits[(columns - 1) >> 3] &= np.uint8((1 << (columns & 7)) - 1)


@helper
def _same_bitmap(one: Bytes, other: Bytes) -> bool:
    index = 0
    while index < one.shape[0] and one[index] == other[index]:
        index += 1
    return bool(index == one.shape[0])


@routine
def _present_columns(columns: Integer, bits: Bytes, out: Int32s) -> Integer:
    """List the columns of a columns-present bitmap. Returns how many there are."""
    count = 0
    for column in range(columns):
        if (byte_at(bits, column >> 3) >> (column & 7)) & 1:
            out[count] = column
            count += 1
    return count


@helper
def _walk_image(
    data: Bytes,
    position: Integer,
    end: Integer,
    base: Integer,
    row: Integer,
    present: Int32s,
    count: Integer,
    rules: Int32s,
    out: Int32s,
    value_bytes: Int64s,
    nulls: Int64s,
    state: Int64s,
) -> Integer:
    """Write the offsets of one image's values.
    Returns the position after it, or -1 if it exceeds `end`.
    """
    bitmap = position
    position += (count + 7) >> 3
    if position > end:
        state[S_COLUMN] = -1
        return np.int64(-1)
    null_bits = np.int64(0)
    for index in range(count):
        if index & 7 == 0:
            null_bits = byte_at(data, bitmap + (index >> 3))
        column = present[index]
        if (null_bits >> (index & 7)) & 1:
            out[column, row] = NO_VALUE
            nulls[column] += 1
            continue
        rule = rules[column]
        after = position
        if rule >= 0:
            after += rule
        else:
            # A length of one to four bytes, then as many bytes.
            after -= rule
            if after > end:
                state[S_COLUMN] = column
                return np.int64(-1)
            length = unsigned_at(data, position, -rule)
            after += length
            value_bytes[column] += length
        if after > end:
            state[S_COLUMN] = column
            return np.int64(-1)
        out[column, row] = position - base
        position = after
    return position


@kernel
def walk_rows(
    data: Bytes,
    first: Int64s,
    last: Int64s,
    ops: Bytes,
    id_bytes: Bytes,
    version: Bytes,
    rules: Int32s,
    state: Int64s,
    base: Int64s,
    row_event: Int64s,
    row_ordinal: Int64s,
    before: Int32s,
    after: Int32s,
    before_bytes: Int64s,
    after_bytes: Int64s,
    before_nulls: Int64s,
    after_nulls: Int64s,
    before_bits: Bytes,
    after_bits: Bytes,
    scratch: Int32s,
) -> Integer:
    """Locate every value of every row, until the events end or the output is full. Returns DONE,
    FULL, OVERRUN or COLUMN_COUNT.

    Args:
        data: uint8, the chunk's bytes.
        first, last: int64 (events,): index of the first body byte, and of the byte after the last
            (checksum excluded).
        ops, id_bytes, version: uint8 (events,): INSERT, UPDATE or DELETE; 4 or 6 bytes of table id;
            1 or 2.
        rules: int32 (columns,): n >= 0 for n bytes, -n for a length of n bytes and as many bytes as
            it says.
        state: int64 (STATE_WORDS,), zero at the start; see the S_ constants.
        base, row_event, row_ordinal: int64 (capacity,): index into data of the row, its event, its
            ordinal in the event.
        before, after: int32 (columns, capacity): offset of the value from `base`, at its length
            bytes if it has them; NO_VALUE if there is none. Capacity 0 if no event has such images.
        before_bytes, after_bytes, before_nulls, after_nulls: int64 (columns,): sums over the rows
            so far.
        before_bits, after_bits: uint8 (events, ceil(columns / 8)): columns-present bitmaps.
        scratch: int32 (2, columns).
    """
    columns = rules.shape[0]
    bitmap_bytes = (columns + 7) >> 3
    capacity = base.shape[0]
    has_before = before.shape[1] > 0
    has_after = after.shape[1] > 0
    before_columns = scratch[0]
    after_columns = scratch[1]
    # Rebuild the lists of present columns only if an event's bitmap differs from the previous
    # event's.
    before_of: Integer = np.int64(-1)
    after_of: Integer = np.int64(-1)
    before_listed: Integer = np.int64(0)
    after_listed: Integer = np.int64(0)
    row = 0
    for event in range(state[S_EVENT], first.shape[0]):
        if event + _EVENTS_AHEAD < first.shape[0]:
            for line in range(_LINES_AHEAD):
                prefetch(data, first[event + _EVENTS_AHEAD] + 64 * line)
        state[S_EVENT] = event
        state[S_COLUMN] = -1
        op = ops[event]
        end = last[event]
        position = first[event] + id_bytes[event] + 2
        if version[event] == 2:
            if position + 2 > end:
                return OVERRUN
            extra = unsigned_at(data, position, 2)
            position += max(extra, 2)
        if position >= end:
            return OVERRUN
        count = byte_at(data, position)
        position += 1
        # 252: two bytes follow, 253: three, 254: eight (never so many columns: six must be zero).
        if count > 250:
            width = 2 if count == 252 else 3
            if count == 251 or count > 253 or position + width > end:
                return OVERRUN
            count = unsigned_at(data, position, width)
            position += width
        if count != columns:
            state[S_COUNT] = count
            return COLUMN_COUNT
        if position + bitmap_bytes * (2 if op == UPDATE else 1) > end:
            return OVERRUN
        before_count = 0
        after_count = 0
        if op != INSERT:
            _copy_bitmap(data, position, columns, before_bits[event])
            if before_of < 0 or not _same_bitmap(before_bits[event], before_bits[before_of]):
                before_listed = _present_columns(columns, before_bits[event], before_columns)
            before_of = event
            before_count = before_listed
            position += bitmap_bytes
        if op != DELETE:
            _copy_bitmap(data, position, columns, after_bits[event])
            if after_of < 0 or not _same_bitmap(after_bits[event], after_bits[after_of]):
                after_listed = _present_columns(columns, after_bits[event], after_columns)
            after_of = event
            after_count = after_listed
            position += bitmap_bytes
        ordinal = 0
        # Servers write no events without rows.
        if position == end and not (op == INSERT and after_count == 0):
            state[S_COLUMN] = NO_ROWS
            return OVERRUN
        # INSERT INTO t () VALUES () with MINIMAL images writes a row of no bytes: it is one row, as
        # the server applies it.
        no_bytes = op == INSERT and after_count == 0 and position == end
        if state[S_POSITION] > 0:
            position = state[S_POSITION]
            ordinal = state[S_ORDINAL]
            state[S_POSITION] = 0
        while position < end or no_bytes:
            if row == capacity:
                state[S_POSITION] = position
                state[S_ORDINAL] = ordinal
                state[S_ROWS] = row
                return FULL
            base[row] = position
            row_event[row] = event
            row_ordinal[row] = ordinal
            start = position
            if has_before:
                if before_count < columns:
                    for column in range(columns):
                        before[column, row] = NO_VALUE
                if op != INSERT:
                    position = _walk_image(
                        data,
                        position,
                        end,
                        start,
                        row,
                        before_columns,
                        before_count,
                        rules,
                        before,
                        before_bytes,
                        before_nulls,
                        state,
                    )
                    if position < 0:
                        return OVERRUN
            if has_after:
                if after_count < columns:
                    for column in range(columns):
                        after[column, row] = NO_VALUE
                if op != DELETE:
                    position = _walk_image(
                        data,
                        position,
                        end,
                        start,
                        row,
                        after_columns,
                        after_count,
                        rules,
                        after,
                        after_bytes,
                        after_nulls,
                        state,
                    )
                    if position < 0:
                        return OVERRUN
            if position == start and not no_bytes:  # images of no column cannot fill bytes
                return OVERRUN
            no_bytes = False
            row += 1
            ordinal += 1
    state[S_EVENT] = first.shape[0]
    state[S_ROWS] = row
    return DONE
