"""Compiled part of table maps: resolve the table map of each rows event, and find equal maps.

Rules:
- A rows event belongs to the latest table map with its table id in the same transaction (SPEC C1,
  C2). Transactions are distinguished by `tx_offset`, so it does not matter where slices were cut.
- Two maps are equal if their bodies are equal except for the table id: compared byte by byte, never
  only by hash.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.kernels.memory import equal_bytes, prefetch, unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.checksum import crc32_of
from cdc_pipeline.binlog.native.compiling import kernel, routine

_NOT_FOUND: Final = -1  # a rows event whose table id has no map
NO_ROWS: Final = -2  # not a rows event, or a statement's empty end marker
CARRIED: Final = -3  # CARRIED - k: the k-th of the maps kept from earlier slices

_DUMMY_TABLE_ID: Final = 0xFFFFFF
_TABLE_MAP: Final = int(EventType.TABLE_MAP)
_FIRST_V2: Final = int(EventType.WRITE_ROWS_V2)
_LAST_V2: Final = int(EventType.DELETE_ROWS_V2)
_PARTIAL: Final = int(EventType.PARTIAL_UPDATE_ROWS)
_HEADER: Final = 19
_MIX: Final = 0x9E3779B97F4A7C15
_FIRST_BITS: Final = 8  # the hash tables grow when they are half full
_TOO_SMALL: Final = -2
_EVENTS_AHEAD: Final = 8
_SLOT_FIELDS: Final = 7


@routine
def _slot(key: Any, bits: int) -> Any:
    return np.int64((np.uint64(key) * np.uint64(_MIX)) >> np.uint64(64 - bits))


@routine
def _is_end_marker(data: Bytes, event: Any, id_bytes: int, stop: int) -> bool:
    if event["table_id"] != _DUMMY_TABLE_ID:
        return False
    at = event["start"] + _HEADER + id_bytes + 2
    if _FIRST_V2 <= event["event_type"] <= _LAST_V2 or event["event_type"] == _PARTIAL:
        if at + 2 > stop:
            return True
        at += unsigned_at(data, at, 2)
    return bool(at >= stop or data[at] == 0)


def resolve_maps(
    data: Bytes,
    events: Any,
    checksum_bytes: int,
    id_bytes: int,
    carried_ids: Int64s,
    carried_tx_offset: int,
) -> tuple[Int64s, Int64s, int]:
    """Resolve the maps of all rows events in `events`, after the transaction pass.

    Args:
        data: uint8 (n,), bytes of the chunk.
        events: array of EVENT_DTYPE (m,), consecutive.
        checksum_bytes: 4 or 0, for events outside payloads.
        id_bytes: bytes of a table id, 6 or 4.
        carried_ids: table ids of the maps from earlier slices of the transaction at
            `carried_tx_offset`.
        carried_tx_offset: offset of that transaction; -2 for none.

    Returns:
        map_of: int64 (m,): for a rows event the index of its table map in `events`, or NOT_FOUND,
        or CARRIED - k;
            NO_ROWS for others.
        same_as: int64 (m,): for a table map the index of the first one with the same content; -1
        for others.
        the first event that is NOT_FOUND, or -1.
    """
    count = len(events)
    map_of = np.full(count, NO_ROWS, dtype=np.int64)
    same_as = np.full(count, -1, dtype=np.int64)
    bits = _FIRST_BITS
    while True:
        slots = np.full((_SLOT_FIELDS, 1 << bits), -1, dtype=np.int64)
        missing = _resolve(
            data,
            events,
            checksum_bytes,
            id_bytes,
            carried_ids,
            carried_tx_offset,
            bits,
            slots,
            map_of,
            same_as,
        )
        if missing != _TOO_SMALL:
            return map_of, same_as, missing
        bits += 2


@kernel
def _resolve(
    data: Bytes,
    events: Any,
    checksum_bytes: int,
    id_bytes: int,
    carried_ids: Int64s,
    carried_tx_offset: int,
    bits: int,
    slots: Int64s,
    map_of: Int64s,
    same_as: Int64s,
) -> int:
    """Do `resolve_maps` with hash tables of 2**bits slots, all -1; _TOO_SMALL if there are too many
    entries."""
    mask = (1 << bits) - 1
    if 2 * len(carried_ids) > mask:
        return _TOO_SMALL
    used = len(carried_ids)
    # By table id: the latest map and its transaction; an entry of another transaction does not
    # count. And the first map with the same content as the latest one, and its size.
    ids, id_map, id_tx, id_first, id_size = slots[0], slots[1], slots[2], slots[3], slots[4]
    # By content: hash and first map.
    hashes, firsts = slots[5], slots[6]
    for k in range(len(carried_ids)):
        slot = _slot(carried_ids[k], bits)
        while ids[slot] != -1 and ids[slot] != carried_ids[k]:
            slot = (slot + 1) & mask
        ids[slot] = carried_ids[k]
        id_map[slot] = CARRIED - k
        id_tx[slot] = carried_tx_offset
    missing = -1
    count = len(events)
    for index in range(count):
        if index + _EVENTS_AHEAD < count:
            prefetch(data, events[index + _EVENTS_AHEAD]["start"])
            prefetch(data, events[index + _EVENTS_AHEAD]["start"] + 64)
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
                map_of[index] = _NOT_FOUND
                if missing < 0:
                    missing = index
            continue
        if ids[slot] == -1:
            used += 1
        ids[slot] = table_id
        id_map[slot] = index
        id_tx[slot] = event["tx_offset"]
        first = event["start"] + _HEADER + id_bytes
        size = stop - first
        known = id_first[slot]
        # A table's map nearly always equals its previous one.
        if (
            known >= 0
            and size == id_size[slot]
            and equal_bytes(data, first, events[known]["start"] + _HEADER + id_bytes, size)
        ):
            same_as[index] = known
            continue
        content = np.int64(
            np.uint64(crc32_of(data, first, stop)) | np.uint64(size) << np.uint64(32)
        )
        by_content = _slot(content, bits)
        while firsts[by_content] != -1:
            known = firsts[by_content]
            if hashes[by_content] == content and equal_bytes(
                data, first, events[known]["start"] + _HEADER + id_bytes, size
            ):
                break
            by_content = (by_content + 1) & mask
        if firsts[by_content] == -1:
            used += 1
            firsts[by_content] = index
            hashes[by_content] = content
        same_as[index] = id_first[slot] = firsts[by_content]
        id_size[slot] = size
        if 2 * used > mask:
            return _TOO_SMALL
    return missing
