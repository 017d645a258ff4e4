"""Compiled part of the content hash: one loop over the events of a chunk, with the open
transaction's state carried.

Rules:
- Two lanes of 64 bits hash the content byte by byte, so that event borders do not matter:
  consecutive rows of one table and kind are one stream of bytes, whatever their events.
- Rows are preceded by their head (kind, content of the table map, column bitmaps) only if it
  differs from the previous rows' head.
- Everything else is not read: ids, times, offsets, flags, XID, GTID and rows-query events.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import length_encoded_at, unsigned_at
from cdc_pipeline.binlog.native.compiling import kernel, routine

# Indexes of the state, a uint64 array of STATE_SIZE.
LANE_A: Final = 0
LANE_B: Final = 1
HEAD_A: Final = 2  # head of the previous rows; 0 for none
HEAD_B: Final = 3
MAPS: Final = 4  # number of table maps of the transaction
STATE_SIZE: Final = 5

OK: Final = 0
SHORT: Final = 1  # an event is shorter than its own fields
MAPS_FULL: Final = 2  # more tables in a transaction than fit
MAP_MISSING: Final = 3  # rows of a table without a table map

# Marks before content other than rows.
MARK_STATEMENT: Final = 0xE1
_MARK_XA: Final = 0xE2
_MARK_ROWS: Final = 0xE3

_ROLE_ROLLBACK: Final = 4
_ROLE_STATEMENT: Final = 5
_HEADER: Final = 19
_PRIME_A: Final = np.uint64(0x100000001B3)
_PRIME_B: Final = np.uint64(0x9E3779B97F4A7C15)
_SEED_A: Final = np.uint64(0xCBF29CE484222325)
_SEED_B: Final = np.uint64(0x6A09E667F3BCC909)


@routine
def _absorb(data, first, stop, a, b):  # type: ignore[no-untyped-def]
    """Both lanes after the bytes data[first:stop]."""
    for at in range(first, stop):
        byte = np.uint64(data[at])
        a = (a ^ byte) * _PRIME_A
        b = ((b << np.uint64(7)) | (b >> np.uint64(57))) + byte
        b = b * _PRIME_B
    return a, b


@routine
def _absorb_word(word, a, b):  # type: ignore[no-untyped-def]
    """Both lanes after the eight bytes of a number, lowest first."""
    for k in range(8):
        byte = (word >> np.uint64(8 * k)) & np.uint64(0xFF)
        a = (a ^ byte) * _PRIME_A
        b = ((b << np.uint64(7)) | (b >> np.uint64(57))) + byte
        b = b * _PRIME_B
    return a, b


@routine
def _finish(value):  # type: ignore[no-untyped-def]
    value ^= value >> np.uint64(33)
    value = value * np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    return value


@kernel
def reset(state):  # type: ignore[no-untyped-def]
    state[LANE_A] = _SEED_A
    state[LANE_B] = _SEED_B
    state[HEAD_A] = np.uint64(0)
    state[HEAD_B] = np.uint64(0)
    state[MAPS] = np.uint64(0)


@routine
def _kind_of(event_type):  # type: ignore[no-untyped-def]
    """1 for write, 2 update, 3 delete, 4 partial update; 0 for all others."""
    if event_type == 23 or event_type == 30:
        return 1
    if event_type == 24 or event_type == 31:
        return 2
    if event_type == 25 or event_type == 32:
        return 3
    if event_type == 39:
        return 4
    return 0


@routine
def _slot(map_ids, state, table_id):  # type: ignore[no-untyped-def]
    """The index of a table's map among those of the transaction; their count if it has none."""
    count = np.int64(state[MAPS])
    for slot in range(count):
        if map_ids[slot] == table_id:
            return np.int64(slot)
    return count


@kernel
def hash_events(  # type: ignore[no-untyped-def]
    data,
    events,
    ends,
    checksum_bytes,
    query_post_header,
    first_row,
    state,
    map_ids,
    map_hashes,
    hashes,
    counts,
):
    """Hash the content of the transactions of a chunk's events. Returns (row, code, transactions):
    the row after the last one done, OK or why it stopped, rows of `hashes` written.

    Args:
        data: uint8 (bytes,), events: EVENT_DTYPE (n,), after the transaction pass.
        ends: uint8 (n,): 1 at the last event of each ended transaction.
        first_row: row to continue at.
        state: uint64 (STATE_SIZE,); map_ids: int64 (m,) and map_hashes: uint64 (m, 2): table maps
            of the transaction.
        hashes: uint64 (n, 2), written: one row for each transaction that ended by COMMIT, XID or as
            a statement.
        counts: int64 (n,), written: the row of that transaction's last event.
    """
    found = 0
    for row in range(first_row, len(events)):
        event = events[row]
        kind = np.int64(event["event_type"])
        body = np.int64(event["start"]) + _HEADER
        stop = np.int64(event["start"]) + np.int64(event["event_length"])
        if event["parent"] < 0:
            stop -= checksum_bytes
        rows_kind = _kind_of(kind)
        a, b = state[LANE_A], state[LANE_B]
        if kind == 19:
            if stop - body < 8:
                return row, SHORT, found
            slot = _slot(map_ids, state, event["table_id"])
            if slot == len(map_ids):
                return row, MAPS_FULL, found
            if slot == np.int64(state[MAPS]):
                state[MAPS] += np.uint64(1)
            map_a, map_b = _absorb(data, body + 8, stop, _SEED_A, _SEED_B)
            map_ids[slot] = event["table_id"]
            map_hashes[slot, 0] = map_a
            map_hashes[slot, 1] = map_b
        elif rows_kind > 0:
            at = body + 8
            if kind >= 30:
                if at + 2 > stop:
                    return row, SHORT, found
                at += unsigned_at(data, at, 2)
            head = at
            width, at = length_encoded_at(data, at, stop)
            # Check before adding: it may have up to 63 bits.
            if width < 0 or width > 8 * (stop - at):
                return row, SHORT, found
            at += (width + 7) // 8 * (2 if rows_kind == 2 or rows_kind == 4 else 1)
            if at > stop:
                return row, SHORT, found
            slot = _slot(map_ids, state, event["table_id"])
            if slot == np.int64(state[MAPS]):
                return row, MAP_MISSING, found
            head_a, head_b = _absorb_word(np.uint64(rows_kind), _SEED_A, _SEED_B)
            head_a, head_b = _absorb_word(map_hashes[slot, 0], head_a, head_b)
            head_a, head_b = _absorb_word(map_hashes[slot, 1], head_a, head_b)
            head_a, head_b = _absorb(data, head, at, head_a, head_b)
            if head_a != state[HEAD_A] or head_b != state[HEAD_B]:
                state[HEAD_A], state[HEAD_B] = head_a, head_b
                a, b = _absorb_word(np.uint64(_MARK_ROWS), a, b)
                a, b = _absorb_word(head_a, a, b)
                a, b = _absorb_word(head_b, a, b)
            a, b = _absorb(data, at, stop, a, b)
        elif kind == 2 and event["role"] == _ROLE_STATEMENT:
            if body + query_post_header > stop or query_post_header < 13:
                return row, SHORT, found
            status = unsigned_at(data, body + 11, 2)
            text = body + query_post_header + status
            if text > stop:
                return row, SHORT, found
            a, b = _absorb_word(np.uint64(MARK_STATEMENT), a, b)
            a, b = _absorb_word(np.uint64(stop - text), a, b)
            a, b = _absorb(data, text, stop, a, b)
            state[HEAD_A], state[HEAD_B] = np.uint64(0), np.uint64(0)
        elif kind == 38:
            a, b = _absorb_word(np.uint64(_MARK_XA), a, b)
            a, b = _absorb(data, body, stop, a, b)
        state[LANE_A], state[LANE_B] = a, b
        if ends[row]:
            if event["role"] != _ROLE_ROLLBACK:
                hashes[found, 0] = _finish(a)
                hashes[found, 1] = _finish(b)
                counts[found] = row
                found += 1
            reset(state)
    return len(events), OK, found
