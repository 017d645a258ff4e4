"""Compiled part of table maps: which table map each rows event refers to, and which maps are the same.

Rules:
- A rows event belongs to the latest table map with its table id in the same transaction (SPEC C1, C2). Transactions are
  told apart by `tx_offset`, so it does not matter where slices were cut.
- Two maps are the same where their bodies are equal but for the table id: compared byte by byte, never by hash alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cdc_pipeline.binlog.checksum import crc32_of
from cdc_pipeline.binlog.event_types import EventType

NOT_FOUND: Final = -1  # a rows event whose table id has no map
NO_ROWS: Final = -2  # not a rows event, or a statement's empty end marker
CARRIED: Final = -3  # CARRIED - k: the map is the k-th of those that an earlier slice left open

DUMMY_TABLE_ID: Final = 0xFFFFFF
_TABLE_MAP: Final = int(EventType.TABLE_MAP)
_FIRST_V2: Final = int(EventType.WRITE_ROWS_V2)
_LAST_V2: Final = int(EventType.DELETE_ROWS_V2)
_PARTIAL: Final = int(EventType.PARTIAL_UPDATE_ROWS)
_HEADER: Final = 19
_MIX: Final = 0x9E3779B97F4A7C15


@njit(cache=True, nogil=True)
def _slot(key: Any, bits: int) -> Any:
    return np.int64((np.uint64(key) * np.uint64(_MIX)) >> np.uint64(64 - bits))


@njit(cache=True, nogil=True)
def _table_bits(count: int) -> int:
    bits = 4
    while 1 << bits < 2 * count:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def _is_end_marker(data: NDArray[np.uint8], event: Any, id_bytes: int, stop: int) -> bool:
    """True for a rows event of the dummy table id that holds nothing."""
    if event["table_id"] != DUMMY_TABLE_ID:
        return False
    at = event["start"] + _HEADER + id_bytes + 2
    if _FIRST_V2 <= event["event_type"] <= _LAST_V2 or event["event_type"] == _PARTIAL:
        if at + 2 > stop:
            return True
        at += np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return bool(at >= stop or data[at] == 0)


@njit(cache=True, nogil=True)
def _same(data: NDArray[np.uint8], one: int, other: int, count: int) -> bool:
    index = 0
    while index < count and data[one + index] == data[other + index]:
        index += 1
    return index == count


@njit(cache=True, nogil=True)
def resolve_maps(
    data: NDArray[np.uint8],
    events: Any,
    checksum_bytes: int,
    id_bytes: int,
    carried_ids: NDArray[np.int64],
    carried_tx_offset: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Maps of all rows events in `events`, which went through the transaction pass.

    Args:
        data: uint8 (n,), bytes of the chunk.
        events: array of EVENT_DTYPE (m,), consecutive.
        checksum_bytes: 4 or 0, of events outside payloads.
        id_bytes: bytes of a table id, 6 or 4.
        carried_ids: table ids of the maps that the transaction at `carried_tx_offset` has from earlier slices.
        carried_tx_offset: -2 where there are none.

    Returns:
        map_of: int64 (m,): for a rows event the index of its table map in `events`, or NOT_FOUND, or CARRIED - k;
            NO_ROWS for others.
        same_as: int64 (m,): for a table map the index of the first one with the same content; -1 for others.
        first event that is NOT_FOUND, or -1.
    """
    count = len(events)
    map_of = np.full(count, NO_ROWS, dtype=np.int64)
    same_as = np.full(count, -1, dtype=np.int64)
    maps = len(carried_ids)
    for index in range(count):
        if events[index]["event_type"] == _TABLE_MAP:
            maps += 1
    bits = _table_bits(maps)
    mask = (1 << bits) - 1
    # By table id: the latest map and its transaction; an entry of another transaction is as good as none.
    ids = np.full(mask + 1, -1, dtype=np.int64)
    id_map = np.empty(mask + 1, dtype=np.int64)
    id_tx = np.empty(mask + 1, dtype=np.int64)
    # By content: hash and first map.
    hashes = np.zeros(mask + 1, dtype=np.uint64)
    firsts = np.full(mask + 1, -1, dtype=np.int64)
    for k in range(len(carried_ids)):
        slot = _slot(carried_ids[k], bits)
        while ids[slot] != -1 and ids[slot] != carried_ids[k]:
            slot = (slot + 1) & mask
        ids[slot] = carried_ids[k]
        id_map[slot] = CARRIED - k
        id_tx[slot] = carried_tx_offset
    missing = -1
    for index in range(count):
        event = events[index]
        table_id = event["table_id"]
        if table_id < 0:
            continue
        tail = checksum_bytes if event["parent"] < 0 else 0
        stop = event["start"] + np.int64(event["event_length"]) - tail
        slot = _slot(table_id, bits)
        while ids[slot] != -1 and ids[slot] != table_id:
            slot = (slot + 1) & mask
        if event["event_type"] != _TABLE_MAP:
            if ids[slot] == table_id and id_tx[slot] == event["tx_offset"]:
                map_of[index] = id_map[slot]
            elif not _is_end_marker(data, event, id_bytes, stop):
                map_of[index] = NOT_FOUND
                if missing < 0:
                    missing = index
            continue
        ids[slot] = table_id
        id_map[slot] = index
        id_tx[slot] = event["tx_offset"]
        first = event["start"] + _HEADER + id_bytes
        size = stop - first
        content = np.uint64(crc32_of(data, first, stop)) | np.uint64(size) << np.uint64(32)
        slot = _slot(content, bits)
        while firsts[slot] != -1:
            known = firsts[slot]
            if hashes[slot] == content and _same(data, first, events[known]["start"] + _HEADER + id_bytes, size):
                break
            slot = (slot + 1) & mask
        if firsts[slot] == -1:
            firsts[slot] = index
            hashes[slot] = content
        same_as[index] = firsts[slot]
    return map_of, same_as, missing
