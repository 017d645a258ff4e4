"""Convert MySQL's binary JSON to its canonical text.

Format (MySQL `json_binary.h`): a type byte, then the value. An object or array is its count and its
size in bytes (two bytes each, four in the large form), the key entries (offset, length 2), the
value entries (type 1, offset or an inlined value), the keys, the values. Offsets count from the
container's count. Strings and opaque values begin with a length of seven bits a byte.

Rules:
- Nothing outside the document is read: every offset is checked against its container's size.
- No text is longer than `text_bytes_max` of its document's bytes (a control character becomes six
  bytes, the worst case), and every value writes at least one byte. So entries that share bytes or
  form a cycle, which no server writes, end as BAD in time and memory bounded by the document's
  size.
- `binlog/rows/columns_json.py` defines the text.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.json.jsonb_scalars import (
    BAD,
    DEPTH_MAX,
    INT16,
    INT32,
    LITERAL,
    MARGIN_BYTES,
    NO_ROOM,
    UINT16,
    UINT32,
    put_quoted,
    put_scalar,
)
from cdc_pipeline.binlog.kernels.memory import byte_at, prefetch, unsigned_at
from cdc_pipeline.binlog.kernels.numbers import INVALID, NULL, VALID
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s, Words
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

_NULL = np.frombuffer(b"null", np.uint8)
TEXT_BYTES_PER_BYTE: Final = 6
TEXT_BYTES_MORE: Final = 2 * MARGIN_BYTES
_ROWS_AHEAD: Final = 6  # documents that are prefetched while one is written
STACK_SHAPE: Final = (DEPTH_MAX, 7)

# Columns of the stack of open containers. An entry is a container that another one interrupts.
_ORIGIN, _SIZE, _LEFT, _WIDTH, _IS_OBJECT, _KEY_AT, _VALUE_AT = 0, 1, 2, 3, 4, 5, 6


@helper
def text_bytes_max(document_bytes: Integer) -> Integer:
    """Maximum text size of a document of so many bytes, with the room that writers need."""
    return TEXT_BYTES_PER_BYTE * document_bytes + TEXT_BYTES_MORE


@helper
def word_at(data: Bytes, position: Integer, width: Integer) -> Integer:
    """Read a count, size or offset of a container: two or four bytes."""
    return unsigned_at(data, position, 2) if width == 2 else unsigned_at(data, position, 4)


@helper
def open_container(
    kind: Integer, data: Bytes, at: Integer, end: Integer
) -> tuple[Integer, Integer, Integer, Integer]:
    """Read a container of type 0 to 3: (bytes of an offset, count, size, bytes of its header);
    count -1: none.
    """
    width = np.int64(4) if kind & 1 else np.int64(2)
    if at + 2 * width > end:
        return width, np.int64(-1), np.int64(0), np.int64(0)
    count = word_at(data, at, width)
    size = word_at(data, at + width, width)
    header = 2 * width + count * (1 + width)
    if kind < 2:
        header += count * (width + 2)
    if size > end - at or header > size:
        return width, np.int64(-1), np.int64(0), np.int64(0)
    return width, count, size, header


@helper
def entry_value(
    data: Bytes, origin: Integer, size: Integer, width: Integer, entry: Integer
) -> tuple[Integer, Integer]:
    """Type and index of the value of an entry; index -1 if it is outside the container."""
    kind = byte_at(data, entry)
    if kind in (LITERAL, INT16, UINT16) or (width == 4 and (kind in (INT32, UINT32))):
        return kind, entry + 1
    offset = word_at(data, entry + 1, width)
    if offset < 2 * width or offset >= size:
        return kind, np.int64(-1)
    return kind, origin + offset


@routine
def put_value(
    kind: Integer,
    data: Bytes,
    at: Integer,
    end: Integer,
    powers: Words,
    stack: Int64s,
    out: Bytes,
    position: Integer,
    limit: Integer,
) -> Integer:
    """Write the value of type `kind` in data[at:end].
    Returns the position after it, BAD, or NO_ROOM.
    """
    depth = 0
    origin = size = left = is_object = key_at = value_at = np.int64(0)
    width = np.int64(2)
    kind = np.int64(kind)
    position = np.int64(position)
    while True:
        if position + MARGIN_BYTES > limit:
            return np.int64(NO_ROOM)
        follows = True
        if kind <= 3:
            if depth == DEPTH_MAX:
                return np.int64(BAD)
            if depth:
                stack[depth - 1, _ORIGIN] = origin
                stack[depth - 1, _SIZE] = size
                stack[depth - 1, _LEFT] = left
                stack[depth - 1, _WIDTH] = width
                stack[depth - 1, _IS_OBJECT] = is_object
                stack[depth - 1, _KEY_AT] = key_at
                stack[depth - 1, _VALUE_AT] = value_at
            origin = at
            width, left, size, _ = open_container(kind, data, at, end)
            if left < 0:
                return np.int64(BAD)
            key_at = origin + 2 * width
            value_at = key_at
            is_object = np.int64(0)
            out[position] = 91
            if kind < 2:
                is_object = np.int64(1)
                out[position] = 123
                value_at = key_at + left * (width + 2)
            position += 1
            depth += 1
            follows = False
        else:
            position = put_scalar(kind, data, at, end, powers, out, position, limit)
            if position < 0 or depth == 0:
                return np.int64(position)
        while left == 0:
            out[position] = 125 if is_object else 93
            position += 1
            follows = True
            depth -= 1
            if depth == 0:
                return np.int64(position)
            origin = stack[depth - 1, _ORIGIN]
            size = stack[depth - 1, _SIZE]
            left = stack[depth - 1, _LEFT]
            width = stack[depth - 1, _WIDTH]
            is_object = stack[depth - 1, _IS_OBJECT]
            key_at = stack[depth - 1, _KEY_AT]
            value_at = stack[depth - 1, _VALUE_AT]
        # Go to the next entry of the innermost open container.
        if follows:
            out[position] = 44
            out[position + 1] = 32
            position += 2
        if is_object:
            offset = word_at(data, key_at, width)
            length = unsigned_at(data, key_at + width, 2)
            if offset + length > size:
                return np.int64(BAD)
            position = put_quoted(
                data, origin + offset, origin + offset + length, out, position, limit
            )
            if position < 0:
                return np.int64(position)
            out[position] = 58
            out[position + 1] = 32
            position += 2
            key_at += width + 2
        kind, at = entry_value(data, origin, size, width, value_at)
        if at < 0:
            return np.int64(BAD)
        end = origin + size
        value_at += 1 + width
        left -= 1


@helper
def put_document(
    data: Bytes,
    first: Integer,
    stop: Integer,
    powers: Words,
    stack: Int64s,
    out: Bytes,
    position: Integer,
) -> Integer:
    """Write one document data[first:stop]. Returns the position after its text, BAD or NO_ROOM."""
    room = np.int64(out.shape[0])
    limit = min(position + text_bytes_max(stop - first), room)
    if first == stop:  # the server reads a document of no bytes as the JSON null
        if position + MARGIN_BYTES > limit:
            return np.int64(NO_ROOM)
        for index in range(4):
            out[position + index] = _NULL[index]
        return np.int64(position + 4)
    end = put_value(
        byte_at(data, first), data, first + 1, stop, powers, stack, out, position, limit
    )
    return np.int64(BAD) if end == NO_ROOM and limit < room else end


@kernel
def gather_json(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    prefix: Integer,
    powers: Words,
    stack: Int64s,
    out: Bytes,
    position: Integer,
    offsets: Int32s,
    state: Bytes,
) -> tuple[Integer, Integer]:
    """Append documents as text to `out` from `position`. Returns (rows done, end): not all rows if
    `out` is too small for the next one.

    Args:
        prefix: count of length bytes before each document.
        powers: of `shortest.powers_of_ten`.
        stack: int64 (STACK_SHAPE), scratch.
        offsets: int32 (rows + 1,), of which [1:] are written. state: uint8 (rows,).
    """
    rows = base.shape[0]
    for row in range(rows):
        ahead = min(row + _ROWS_AHEAD, rows - 1)
        prefetch(data, base[ahead] + relative[ahead])
        prefetch(data, base[ahead] + relative[ahead] + 64)
        state[row] = NULL
        if relative[row] >= 0:
            first = base[row] + relative[row]
            stop = first + prefix + unsigned_at(data, first, prefix)
            end = put_document(data, first + prefix, stop, powers, stack, out, position)
            if end == NO_ROOM:
                return np.int64(row), np.int64(position)
            state[row] = INVALID if end < 0 else VALID
            if end >= 0:
                position = end
        offsets[row + 1] = position
    return np.int64(base.shape[0]), np.int64(position)
