"""Apply JSON differences to their document.

Format (MySQL `Json_diff`): an operation (0 replace, 1 insert, 2 remove), a path and, except for
remove, a value in binary JSON; path and value follow a packed length. Paths are those of SQL:
``$``, then ``.key``, ``."key"``, ``[n]``, ``[last]`` and ``[last-n]``. Differences are applied in
order, each to the result of the previous ones.

Rules:
- Only containers on a path are unfolded into *nodes*, each with a list of children. Everything else
  stays bytes of the document, which `jsonb.put_value` writes.
- A difference that does not fit its document (a missing member, or an insert of an existing one) is
  BAD, because the server refuses it. An index [0] or [last] on a value that is not an array means
  the value itself.
- Members stay in the server's order: by the length of their keys, then by the keys' bytes.
- Scratch memory depends only on the document and its differences; work is bounded (`_WORK_MAX`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.json.json_path import CELL, MEMBER, NAMES, NO_SCRATCH, next_leg
from cdc_pipeline.binlog.kernels.json.jsonb import entry_value, open_container, word_at
from cdc_pipeline.binlog.kernels.json.jsonb_scalars import BAD
from cdc_pipeline.binlog.kernels.memory import byte_at, length_encoded_at, unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, routine

OK: Final = 0

REPLACE, INSERT, REMOVE = 0, 1, 2

# Columns of nodes. KEY is an index into the data, or ~index into the names.
KIND, AT, END, FIRST, COUNT, _ROOM, _KEY, _KEY_BYTES = 0, 1, 2, 3, 4, 5, 6, 7
NODE_WORDS: Final = 8
FOLDED: Final = -1  # value of FIRST if the node's children are not listed

# Columns of `tops`: how much of the scratch is used, and its limit; NAMES is the third.
NODES, CHILDREN, WORK, _CHILDREN_MAX = 0, 1, 3, 4
TOPS: Final = 5
_WORK_MAX: Final = 1 << 34  # children moved or compared, for one document
_SPARE: Final = 8


@helper
def _new_node(
    nodes: Int64s,
    tops: Int64s,
    kind: Integer,
    at: Integer,
    end: Integer,
    key: Integer,
    key_bytes: Integer,
) -> Integer:
    """The index of a new folded node, or NO_SCRATCH."""
    node = tops[NODES]
    if node == nodes.shape[0]:
        return np.int64(NO_SCRATCH)
    tops[NODES] = node + 1
    nodes[node, KIND] = kind
    nodes[node, AT] = at
    nodes[node, END] = end
    nodes[node, FIRST] = FOLDED
    nodes[node, _KEY] = key
    nodes[node, _KEY_BYTES] = key_bytes
    return np.int64(node)


@helper
def _take_children(children: Int64s, tops: Int64s, count: Integer) -> Integer:
    """Index of `count` free children, NO_SCRATCH, or BAD if the document cannot have so many."""
    first = tops[CHILDREN]
    if first + count > tops[_CHILDREN_MAX]:
        return np.int64(BAD)
    if first + count > children.shape[0]:
        return np.int64(NO_SCRATCH)
    tops[CHILDREN] = first + count
    return np.int64(first)


@routine
def _unfold(data: Bytes, nodes: Int64s, children: Int64s, tops: Int64s, node: Integer) -> Integer:
    """List the children of a container. Returns OK, BAD or NO_SCRATCH."""
    if nodes[node, FIRST] != FOLDED:
        return np.int64(OK)
    _, count, size, _ = open_container(nodes[node, KIND], data, nodes[node, AT], nodes[node, END])
    if count < 0:
        return np.int64(BAD)
    first = _take_children(children, tops, count + _SPARE)
    if first < 0:
        return np.int64(first)
    for index in range(count):
        children[first + index] = ~np.int64(index)
    tops[WORK] += count
    nodes[node, END] = nodes[node, AT] + size
    nodes[node, FIRST] = first
    nodes[node, COUNT] = count
    nodes[node, _ROOM] = count + _SPARE
    return np.int64(OK)


@routine
def child_key(data: Bytes, nodes: Int64s, node: Integer, child: Integer) -> tuple[Integer, Integer]:
    """(key, its bytes) of a child of an object; bytes -1 if the key is outside."""
    if child >= 0:
        return nodes[child, _KEY], nodes[child, _KEY_BYTES]
    width = np.int64(4) if nodes[node, KIND] & 1 else np.int64(2)
    at = nodes[node, AT]
    entry = at + 2 * width + ~child * (width + 2)
    offset = word_at(data, entry, width)
    length = unsigned_at(data, entry + width, 2)
    if at + offset + length > nodes[node, END]:
        return np.int64(0), np.int64(-1)
    return at + offset, length


@routine
def child_value(
    data: Bytes, nodes: Int64s, node: Integer, child: Integer
) -> tuple[Integer, Integer]:
    """(type, index) of a child that is still an entry of its container; -1 if it is outside."""
    kind = nodes[node, KIND]
    width = np.int64(4) if kind & 1 else np.int64(2)
    at = nodes[node, AT]
    entry = at + 2 * width + ~child * (width + 1)
    if kind < 2:
        entry += word_at(data, at, width) * (width + 2)
    value_kind, index = entry_value(data, at, nodes[node, END] - at, width, entry)
    return value_kind, index


@helper
def _key_byte(data: Bytes, names: Bytes, key: Integer, index: Integer) -> Integer:
    return byte_at(data, key + index) if key >= 0 else byte_at(names, ~key + index)


@routine
def _find_member(
    data: Bytes,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
    node: Integer,
    key: Integer,
    key_bytes: Integer,
) -> tuple[Integer, Integer]:
    """Return (index among the children where the key is or belongs, 1 if it exists);
    -1 if keys are outside.
    """
    low, high = np.int64(0), nodes[node, COUNT]
    first = nodes[node, FIRST]
    while low < high:
        middle = (low + high) >> 1
        other, other_bytes = child_key(data, nodes, node, children[first + middle])
        if other_bytes < 0:
            return np.int64(-1), np.int64(0)
        order = other_bytes - key_bytes
        index = np.int64(0)
        while order == 0 and index < key_bytes:
            order = _key_byte(data, names, other, index) - _key_byte(data, names, key, index)
            index += 1
        tops[WORK] += index + 1
        if order == 0:
            return middle, np.int64(1)
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return low, np.int64(0)


@routine
def _descend(
    data: Bytes,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
    node: Integer,
    kind: Integer,
    one: Integer,
    two: Integer,
) -> Integer:
    """The node that a leg of a path leads to, BAD if there is none, or NO_SCRATCH."""
    is_array = nodes[node, KIND] in (2, 3)
    if kind == CELL and not is_array:
        return np.int64(node) if one == 0 else np.int64(BAD)
    if kind == MEMBER and nodes[node, KIND] > 1:
        return np.int64(BAD)
    code = _unfold(data, nodes, children, tops, node)
    if code < 0:
        return np.int64(code)
    if kind == MEMBER:
        place, found = _find_member(data, nodes, children, names, tops, node, one, two)
        if found == 0:
            return np.int64(BAD)
    else:
        place = nodes[node, COUNT] - 1 - one if two else one
        if place < 0 or place >= nodes[node, COUNT]:
            return np.int64(BAD)
    slot = nodes[node, FIRST] + place
    child = children[slot]
    if child >= 0:
        return np.int64(child)
    value_kind, at = child_value(data, nodes, node, child)
    if at < 0:
        return np.int64(BAD)
    key, key_bytes = np.int64(0), np.int64(0)
    if kind == MEMBER:
        key, key_bytes = child_key(data, nodes, node, child)
    new_node = _new_node(nodes, tops, value_kind, at, nodes[node, END], key, key_bytes)
    if new_node >= 0:
        children[slot] = new_node
    return np.int64(new_node)


@routine
def _insert(
    nodes: Int64s, children: Int64s, tops: Int64s, node: Integer, place: Integer, child: Integer
) -> Integer:
    """Insert a child before `place`. Returns OK, BAD or NO_SCRATCH."""
    count = nodes[node, COUNT]
    if count == nodes[node, _ROOM]:
        room = 2 * count + _SPARE
        first = _take_children(children, tops, room)
        if first < 0:
            return np.int64(first)
        old = nodes[node, FIRST]
        for index in range(count):
            children[first + index] = children[old + index]
        nodes[node, FIRST] = first
        nodes[node, _ROOM] = room
    first = nodes[node, FIRST]
    for index in range(first + count, first + place, -1):
        children[index] = children[index - 1]
    tops[WORK] += count - place
    children[first + place] = child
    nodes[node, COUNT] = count + 1
    return np.int64(OK)


@routine
def _change(
    data: Bytes,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
    operation: Integer,
    node: Integer,
    kind: Integer,
    one: Integer,
    two: Integer,
    value: Integer,
    value_end: Integer,
) -> Integer:
    """Insert or remove the child that the last leg names. Returns OK, BAD or NO_SCRATCH."""
    if kind != (MEMBER if nodes[node, KIND] < 2 else CELL) or nodes[node, KIND] > 3:
        return np.int64(BAD)
    code = _unfold(data, nodes, children, tops, node)
    if code < 0:
        return np.int64(code)
    count = nodes[node, COUNT]
    key, key_bytes, found = np.int64(0), np.int64(0), np.int64(0)
    if kind == MEMBER:
        key, key_bytes = one, two
        place, found = _find_member(data, nodes, children, names, tops, node, key, key_bytes)
        if place < 0:
            return np.int64(BAD)
    else:
        place = count - 1 - one if two else one
        if operation == INSERT:
            place = min(max(place, 0), count)
        found = np.int64(1) if 0 <= place < count else np.int64(0)
    if operation == INSERT:
        if kind == MEMBER and found:
            return np.int64(BAD)
        child = _new_node(nodes, tops, byte_at(data, value), value + 1, value_end, key, key_bytes)
        if child < 0:
            return np.int64(child)
        return _insert(nodes, children, tops, node, place, child)
    if not found:
        return np.int64(BAD)
    first = nodes[node, FIRST]
    for index in range(first + place, first + count - 1):
        children[index] = children[index + 1]
    tops[WORK] += count - place
    nodes[node, COUNT] = count - 1
    return np.int64(OK)


@routine
def _apply_one(
    data: Bytes,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
    operation: Integer,
    path: Integer,
    path_end: Integer,
    value: Integer,
    value_end: Integer,
) -> Integer:
    """Apply one difference. Returns OK, BAD or NO_SCRATCH."""
    if path >= path_end or byte_at(data, path) != 36:  # $
        return np.int64(BAD)
    path += 1
    node = np.int64(0)
    while path < path_end:
        path, kind, one, two = next_leg(data, path, path_end, names, tops)
        if path < 0:
            return np.int64(path)
        if path == path_end and operation != REPLACE:
            return _change(
                data,
                nodes,
                children,
                names,
                tops,
                operation,
                node,
                kind,
                one,
                two,
                value,
                value_end,
            )
        node = _descend(data, nodes, children, names, tops, node, kind, one, two)
        if node < 0:
            return np.int64(node)
    if operation != REPLACE:
        return np.int64(BAD)
    nodes[node, KIND] = byte_at(data, value)
    nodes[node, AT] = value + 1
    nodes[node, END] = value_end
    nodes[node, FIRST] = FOLDED
    return np.int64(OK)


@routine
def apply_diffs(
    data: Bytes,
    first: Integer,
    stop: Integer,
    diffs: Integer,
    diffs_end: Integer,
    nodes: Int64s,
    children: Int64s,
    names: Bytes,
    tops: Int64s,
) -> Integer:
    """Turn node 0 into the document data[first:stop] after the differences data[diffs:diffs_end].

    Returns OK, BAD or NO_SCRATCH.
    """
    tops[NODES] = 0
    tops[CHILDREN] = 0
    tops[NAMES] = 0
    tops[WORK] = 0
    # Each child of a document takes three bytes or more; additions at most double a list.
    tops[_CHILDREN_MAX] = 4 * (stop - first + diffs_end - diffs) + 1024
    _new_node(nodes, tops, byte_at(data, first), first + 1, stop, np.int64(0), np.int64(0))
    while diffs < diffs_end:
        operation = byte_at(data, diffs)
        length, path = length_encoded_at(data, diffs + 1, diffs_end)
        if operation > REMOVE or length < 0 or length > diffs_end - path:
            return np.int64(BAD)
        path_end = value = value_end = diffs = path + length
        if operation != REMOVE:
            length, value = length_encoded_at(data, diffs, diffs_end)
            if length < 1 or length > diffs_end - value:
                return np.int64(BAD)
            diffs = value_end = value + length
        code = _apply_one(
            data, nodes, children, names, tops, operation, path, path_end, value, value_end
        )  # fmt: skip
        if code < 0:
            return np.int64(code)
        if tops[WORK] > _WORK_MAX:
            return np.int64(BAD)
    return np.int64(OK)
