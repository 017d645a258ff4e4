"""Canonical text of JSON columns in rows events with differences: documents and changed documents.

Rules: those of `json_diff` and `jsonb`. The text of a changed document is bounded by the bytes of
the document and its differences together.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.json.json_diff import (
    AT,
    COUNT,
    END,
    FIRST,
    FOLDED,
    KIND,
    apply_diffs,
    child_key,
    child_value,
)
from cdc_pipeline.binlog.kernels.json.json_path import NO_SCRATCH
from cdc_pipeline.binlog.kernels.json.jsonb import put_document, put_value, text_bytes_max
from cdc_pipeline.binlog.kernels.json.jsonb_scalars import (
    BAD,
    DEPTH_MAX,
    MARGIN_BYTES,
    NO_ROOM,
    put_quoted,
)
from cdc_pipeline.binlog.kernels.memory import unsigned_at
from cdc_pipeline.binlog.kernels.numbers import INVALID, NULL, VALID
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s, Words
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel, routine

WALK_SHAPE: Final = (DEPTH_MAX, 2)

# The kind of a row's value: written by the caller, and refined if its document is absent.
DOCUMENT: Final = 0
DIFFS: Final = 1
# No differences, and no document in the before image: the column did not change.
UNCHANGED_ABSENT: Final = 2
CHANGED_ABSENT: Final = 3  # differences of a document that is not in the event

DONE: Final = 0
FULL: Final = 1  # `out` is too small
SCRATCH_FULL: Final = 2  # nodes, children or names are too small


@routine
def _put_tree(
    data: Bytes,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    powers: Words,
    stack: Int64s,
    walk: Int64s,
    out: Bytes,
    position: Integer,
    limit: Integer,
) -> Integer:
    """Write node 0 and all below it. Returns the position after its text, BAD,
    or NO_ROOM before `limit`.
    """
    position = np.int64(position)
    depth = 0
    node = np.int64(0)
    while True:
        # Write `node` where a value is expected.
        if nodes[node, FIRST] == FOLDED:
            position = put_value(
                nodes[node, KIND],
                data,
                nodes[node, AT],
                nodes[node, END],
                powers,
                stack,
                out,
                position,
                limit,
            )
            if position < 0:
                return np.int64(position)
        else:
            if depth == DEPTH_MAX:
                return np.int64(BAD)
            if position + MARGIN_BYTES > limit:
                return np.int64(NO_ROOM)
            out[position] = 123 if nodes[node, KIND] < 2 else 91
            position += 1
            walk[depth, 0] = node
            walk[depth, 1] = 0
            depth += 1
        # Go to the next node, and write children that are not nodes on the way.
        while True:
            if depth == 0:
                return np.int64(position)
            parent, index = walk[depth - 1, 0], walk[depth - 1, 1]
            is_object = nodes[parent, KIND] < 2
            if position + MARGIN_BYTES > limit:
                return np.int64(NO_ROOM)
            if index == nodes[parent, COUNT]:
                out[position] = 125 if is_object else 93
                position += 1
                depth -= 1
                continue
            walk[depth - 1, 1] = index + 1
            if index:
                out[position] = 44
                out[position + 1] = 32
                position += 2
            child = children[nodes[parent, FIRST] + index]
            if is_object:
                key, key_bytes = child_key(data, nodes, parent, child)
                if key_bytes < 0:
                    return np.int64(BAD)
                if key >= 0:
                    position = put_quoted(data, key, key + key_bytes, out, position, limit)
                else:
                    position = put_quoted(names, ~key, ~key + key_bytes, out, position, limit)
                if position < 0:
                    return np.int64(position)
                out[position] = 58
                out[position + 1] = 32
                position += 2
            if child >= 0:
                node = child
                break
            kind, at = child_value(data, nodes, parent, child)
            if at < 0:
                return np.int64(BAD)
            position = put_value(
                kind, data, at, nodes[parent, END], powers, stack, out, position, limit
            )
            if position < 0:
                return np.int64(position)


@helper
def _put_changed(
    data: Bytes,
    first: Integer,
    stop: Integer,
    diffs: Integer,
    diffs_end: Integer,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
    powers: Words,
    stack: Int64s,
    walk: Int64s,
    out: Bytes,
    position: Integer,
) -> Integer:
    """Write data[first:stop] after its differences.
    Returns the position after it, BAD, NO_ROOM or NO_SCRATCH.
    """
    if diffs == diffs_end:
        return put_document(data, first, stop, powers, stack, out, position)
    if first == stop:
        return np.int64(BAD)
    code = apply_diffs(data, first, stop, diffs, diffs_end, nodes, children, names, tops)
    if code < 0:
        return np.int64(code)
    room = np.int64(out.shape[0])
    limit = min(position + text_bytes_max(stop - first + diffs_end - diffs), room)
    end = _put_tree(data, nodes, children, names, powers, stack, walk, out, position, limit)
    return np.int64(BAD) if end == NO_ROOM and limit < room else end


@kernel
def gather_changed_json(
    data: Bytes,
    base: Int64s,
    before: Int32s,
    relative: Int32s,
    prefix: Integer,
    what: Bytes,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
    powers: Words,
    stack: Int64s,
    walk: Int64s,
    out: Bytes,
    position: Integer,
    offsets: Int32s,
    state: Bytes,
) -> tuple[Integer, Integer, Integer]:
    """Append documents, and documents after their differences, as text to `out` from `position`.
    Returns (rows done, end, DONE, FULL or SCRATCH_FULL).

    Args:
        before, relative: int32 (rows,): offset from `base` of the column's value in the before and
            in the after image.
        prefix: count of length bytes before each value.
        what: uint8 (rows,): DOCUMENT or DIFFS; DIFFS becomes UNCHANGED_ABSENT (NULL) or
            CHANGED_ABSENT (INVALID).
        nodes: int64 (nodes, json_diff.NODE_WORDS), children: int64, names: uint8, tops: int64
            (json_diff.TOPS,), stack: int64 (jsonb.STACK_SHAPE), walk: int64 (WALK_SHAPE): scratch.
        powers: of `shortest.powers_of_ten`.
        offsets: int32 (rows + 1,), of which [1:] are written. state: uint8 (rows,).
    """
    for row in range(base.shape[0]):
        state[row] = NULL
        if relative[row] >= 0:
            first = base[row] + relative[row]
            stop = first + prefix + unsigned_at(data, first, prefix)
            first += prefix
            if what[row] == DOCUMENT:
                end = put_document(data, first, stop, powers, stack, out, position)
            elif before[row] < 0:
                end = np.int64(BAD)
                what[row] = CHANGED_ABSENT
                if first == stop:
                    end = position
                    what[row] = UNCHANGED_ABSENT
            else:
                old = base[row] + before[row]
                old_stop = old + prefix + unsigned_at(data, old, prefix)
                end = _put_changed(
                    data,
                    old + prefix,
                    old_stop,
                    first,
                    stop,
                    nodes,
                    children,
                    names,
                    tops,
                    powers,
                    stack,
                    walk,
                    out,
                    position,
                )
            if end == NO_ROOM:
                return np.int64(row), np.int64(position), np.int64(FULL)
            if end == NO_SCRATCH:
                return np.int64(row), np.int64(position), np.int64(SCRATCH_FULL)
            state[row] = INVALID if end < 0 else VALID
            if what[row] == UNCHANGED_ABSENT:
                state[row] = NULL
            if end >= 0:
                position = end
        offsets[row + 1] = position
    return np.int64(base.shape[0]), np.int64(position), np.int64(DONE)
