"""The compiled walk over packets, which also verifies checksums, by the rules of `packets`."""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.event_types import FLAG_ARTIFICIAL, EventType
from cdc_pipeline.binlog.event_types import HEADER_BYTES as EVENT_HEADER_BYTES
from cdc_pipeline.binlog.framing.framing_kernel import CHECKED, PREFIX_BYTES
from cdc_pipeline.binlog.kernels.memory import unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.checksum import CHECKSUM_BYTES, crc32_of
from cdc_pipeline.binlog.native.compiling import kernel

# Why a walk stopped.
NEED_MORE: Final = 0
SPECIAL: Final = 1  # a whole packet that is not an event: Python reads it
BAD_SEQUENCE: Final = 2
EMPTY: Final = 3  # a logical packet without any byte
TOO_LARGE: Final = 4  # a logical packet of more than state[LIMIT] bytes
HEADER_BYTES: Final = 4
PACKET_BYTES_MAX: Final = 0xFFFFFF

# Fields of the state array; the first four are indexes in the block.
STOP: Final = 0  # where received bytes end
WHOLE: Final = 1  # where complete events end; a logical packet begins there
NEXT: Final = 2  # where the current packet ends, received or not: the next header
TOTAL: Final = 3  # payload bytes of the current logical packet, by the headers received so far
IS_LAST: Final = 4  # 1 if the current packet is the last of its logical packet
SEQUENCE: Final = 5  # expected sequence id
GOT: Final = 6  # actual sequence id; or the excessive size, as far as known
HAS_CHECKSUMS: Final = 7  # 1 if events are expected to end with their CRC32
LIMIT: Final = 8  # maximum payload bytes of a logical packet
STATE_FIELDS: Final = 9

_MADE_UP = np.zeros(256, np.uint8)  # by type: 1 in a dump alone, 2 too if without a position
_MADE_UP[[EventType.HEARTBEAT, EventType.HEARTBEAT_V2, EventType.MARIADB_START_ENCRYPTION]] = 1
_MADE_UP[[EventType.ROTATE, EventType.FORMAT_DESCRIPTION]] = 2


@kernel
def walk_packets(data: Bytes, state: Int64s) -> int:
    """Walk over the packets in ``data[:state[STOP]]`` from where the last call stopped. Returns why
    it stopped; unless more bytes are needed, further calls return the same.

    Args:
        data: uint8 (n,), the block; written by the rules of `packets`.
        state: int64 (9,), kept from call to call.
    """
    # In local names: the compiler cannot know that writing to `data` leaves `state` as it is.
    begin, at, stop = state[WHOLE], state[NEXT], state[STOP]
    total, is_last, sequence = state[TOTAL], state[IS_LAST], state[SEQUENCE]
    why = NEED_MORE
    while True:
        if is_last == 1:
            if at > stop:
                break
            for index in range(HEADER_BYTES):
                data[np.uint64(begin + index)] = (total >> (8 * index)) & 0xFF
            end = at - CHECKSUM_BYTES
            if (
                state[HAS_CHECKSUMS] == 1
                and end >= begin + PREFIX_BYTES
                and np.int64(crc32_of(data, begin + PREFIX_BYTES, end)) == unsigned_at(data, end, 4)
            ):
                data[np.uint64(begin + HEADER_BYTES)] = CHECKED
            is_last = 0
            begin = at
        if stop - at < HEADER_BYTES:
            break
        header = unsigned_at(data, at, 4)
        length = header & PACKET_BYTES_MAX
        if header >> 24 != sequence:
            state[GOT] = header >> 24
            why = BAD_SEQUENCE
            break
        if at == begin:
            if length == 0:
                why = EMPTY
                break
            if stop - at < PREFIX_BYTES:
                break
            if data[np.uint64(at + HEADER_BYTES)] != 0:
                if stop - at >= HEADER_BYTES + length:
                    why = SPECIAL
                break
            if length > state[LIMIT]:
                state[GOT] = length
                why = TOO_LARGE
                break
            total = length
            at += HEADER_BYTES + length
        else:
            if total + length > state[LIMIT]:
                state[GOT] = total + length
                why = TOO_LARGE
                break
            for index in range(at, stop - HEADER_BYTES):
                data[index] = data[index + HEADER_BYTES]
            stop -= HEADER_BYTES
            total += length
            at += length
        sequence = (sequence + 1) & 0xFF
        is_last = 1 if length < PACKET_BYTES_MAX else 0
    state[WHOLE], state[NEXT], state[STOP] = begin, at, stop
    state[TOTAL], state[IS_LAST], state[SEQUENCE] = total, is_last, sequence
    return why


def copy_events(packets: Bytes, out: Bytes) -> int:
    """Copy the events that are also in the journal, until `out` is full; returns the bytes."""
    return int(_copy_events(packets, out, _MADE_UP))


@kernel
def _copy_events(packets: Bytes, out: Bytes, made_up: Bytes) -> int:
    at, copied = PREFIX_BYTES, 0
    while copied < len(out) and at + EVENT_HEADER_BYTES <= len(packets):
        length = unsigned_at(packets, at + 9, 4)
        flags = np.int64(packets[at + 17])
        only_sent = made_up[packets[at + 4]]
        if not (
            flags & FLAG_ARTIFICIAL
            or only_sent == 1
            or (only_sent == 2 and unsigned_at(packets, at + 13, 4) == 0)
        ):
            if copied + length > len(out):
                break
            for index in range(length):
                out[np.uint64(copied + index)] = packets[np.uint64(at + index)]
            copied += length
        at += length + PREFIX_BYTES
    return copied
