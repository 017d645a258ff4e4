"""The compiled walk over packets, which also verifies checksums, by the rules of `packets`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.framing.framing_kernel import CHECKED, PREFIX_BYTES
from cdc_pipeline.binlog.native.checksum import CHECKSUM_BYTES, crc32_of
from cdc_pipeline.binlog.native.compiling import kernel

# Why a walk stopped.
NEED_MORE: Final = 0
SPECIAL: Final = 1  # a logical packet that is not an event: Python reads it
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


@kernel
def walk_packets(data: NDArray[np.uint8], state: NDArray[np.int64]) -> int:
    """Walk over the packets in ``data[:state[STOP]]`` from where the last call stopped.

    Args:
        data: uint8 (n,), the block; written by the rules of `packets`.
        state: int64 (9,), kept from call to call.

    Returns:
        Why it stopped; unless more bytes are needed, further calls return the same.
    """
    while True:
        begin, at, stop = state[WHOLE], state[NEXT], state[STOP]
        if state[IS_LAST] == 1:
            if at > stop:
                return NEED_MORE
            for index in range(HEADER_BYTES):
                data[begin + index] = (state[TOTAL] >> (8 * index)) & 0xFF
            end = at - CHECKSUM_BYTES
            if state[HAS_CHECKSUMS] == 1 and end >= begin + PREFIX_BYTES:
                stored = np.int64(data[end]) | np.int64(data[end + 1]) << 8
                stored |= np.int64(data[end + 2]) << 16 | np.int64(data[end + 3]) << 24
                if np.int64(crc32_of(data, begin + PREFIX_BYTES, end)) == stored:
                    data[begin + HEADER_BYTES] = CHECKED
            state[IS_LAST] = 0
            state[WHOLE] = at
            continue
        if stop - at < HEADER_BYTES:
            return NEED_MORE
        length = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
        if data[at + 3] != state[SEQUENCE]:
            state[GOT] = data[at + 3]
            return BAD_SEQUENCE
        if at == begin:
            if length == 0:
                return EMPTY
            if stop - at < PREFIX_BYTES:
                return NEED_MORE
            if data[at + HEADER_BYTES] != 0:
                return SPECIAL
            if length > state[LIMIT]:
                state[GOT] = length
                return TOO_LARGE
            state[TOTAL] = length
            state[NEXT] = at + HEADER_BYTES + length
        else:
            if state[TOTAL] + length > state[LIMIT]:
                state[GOT] = state[TOTAL] + length
                return TOO_LARGE
            for index in range(at, stop - HEADER_BYTES):
                data[index] = data[index + HEADER_BYTES]
            state[STOP] = stop - HEADER_BYTES
            state[TOTAL] += length
            state[NEXT] = at + length
        state[SEQUENCE] = (state[SEQUENCE] + 1) & 0xFF
        state[IS_LAST] = 1 if length < PACKET_BYTES_MAX else 0
