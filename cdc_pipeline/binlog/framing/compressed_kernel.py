"""Compiled parts of unpacking: find the packed bytes of compressed events and lay out the new
buffer.

Layouts, each after the 19-byte header:
- TRANSACTION_PAYLOAD: fields of (type, length, value), all length-encoded integers, ended by type
  0: 1 = packed bytes, 2 = algorithm (0 zstd, 255 none), 3 = unpacked bytes (absent if the algorithm
  is none). Whole events follow.
- QUERY_COMPRESSED: a query event up to its text; the text is a packed record.
- rows, compressed: a rows event up to its first row (column count, one bitmap, two of an update);
  the rows are a packed record.
- A packed record of MariaDB: one byte (0x80, algorithm in bits 4 to 6, of which 0 is zlib, count of
  length bytes in bits 0 to 2), unpacked bytes (1 to 4, big-endian), zlib data up to the checksum.

Source: MySQL `mysql::binlog::event::Transaction_payload_event`, MariaDB "Compressed events"
(MDEV-11065).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.event_types import HEADER_BYTES, EventType
from cdc_pipeline.binlog.framing.framing_kernel import EVENT_BYTES_MAX
from cdc_pipeline.binlog.kernels.memory import byte_at, copy_piece, length_encoded_at, unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.checksum import crc32_of
from cdc_pipeline.binlog.native.compiling import helper, kernel, routine

ZSTD: Final = 0
ZLIB: Final = 1
STORED: Final = 255

# One block of 4 bytes unpacks to 128 KiB at most (zstd), one bit pair to 258 bytes (deflate).
_ZSTD_RATIO_BITS: Final = 15
_ZLIB_RATIO_BITS: Final = 11


class PackedStatus(IntEnum):
    """The defects of a compressed event."""

    OK = 0
    SHORT = 1  # its fields exceed its end
    ALGORITHM = 2  # neither zstd, zlib nor none
    PACKED_SIZE = 3  # the field differs from the actual size
    UNPACKED_SIZE = 4  # absent, 0, or more than the packed bytes can produce


_OK = int(PackedStatus.OK)
_SHORT = int(PackedStatus.SHORT)
_ALGORITHM = int(PackedStatus.ALGORITHM)
_PACKED_SIZE = int(PackedStatus.PACKED_SIZE)
_UNPACKED_SIZE = int(PackedStatus.UNPACKED_SIZE)
_PAYLOAD = int(EventType.TRANSACTION_PAYLOAD)
_QUERY = int(EventType.MARIADB_QUERY_COMPRESSED)
_UPDATE_V1 = int(EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1)
_UPDATE_V2 = int(EventType.MARIADB_UPDATE_ROWS_COMPRESSED)
_FIRST_V2 = int(EventType.MARIADB_WRITE_ROWS_COMPRESSED)


@helper
def _wide(value: Any) -> Any:
    return np.int64(value)


@routine
def _find_payload(data: Bytes, at: int, stop: int) -> tuple[int, int, int, int]:
    """(status, index of packed bytes, unpacked bytes, algorithm) of a payload in data[at:stop]."""
    packed = unpacked = algorithm = _wide(-1)
    while True:
        field, at = length_encoded_at(data, at, stop)
        if field < 0:
            return _SHORT, at, 0, 0
        if field == 0:
            break
        size, at = length_encoded_at(data, at, stop)
        if size < 0 or size > stop - at:
            return _SHORT, at, 0, 0
        if field <= 3:
            value, after = length_encoded_at(data, at, at + size)
            if value < 0 or after != at + size:
                return _SHORT, at, 0, 0
            if field == 1:
                packed = value
            elif field == 2:
                algorithm = value
            else:
                unpacked = value
        at += size
    if algorithm != ZSTD and algorithm != STORED:
        return _ALGORITHM, at, 0, algorithm
    if packed != stop - at:
        return _PACKED_SIZE, at, 0, algorithm
    if algorithm == STORED:
        if unpacked < 0:
            unpacked = packed
        if unpacked != packed or packed == 0:
            return _UNPACKED_SIZE, at, 0, algorithm
    elif unpacked <= 0 or unpacked >> _ZSTD_RATIO_BITS > packed:
        return _UNPACKED_SIZE, at, 0, algorithm
    return _OK, at, unpacked, algorithm


@routine
def _frame_bytes(data: Bytes, at: int, stop: int) -> int:
    """Return the content size in the header of the zstd frame at `at`; -1 if it has none.

    Source: RFC 8878, "Frame Header".
    """
    if (
        stop - at < 18
        or data[at] != 0x28
        or data[at + 1] != 0xB5
        or data[at + 2] != 0x2F
        or data[at + 3] != 0xFD
    ):
        return -1
    descriptor = byte_at(data, at + 4)
    is_single_segment = descriptor >> 5 & 1
    dictionary = descriptor & 3
    at += 6 - is_single_segment + (4 if dictionary == 3 else dictionary)
    width = 1 << (descriptor >> 6)
    if width == 1 and not is_single_segment:
        return -1
    value = _wide(0)
    for k in range(width):
        value |= byte_at(data, at + k) << _wide(8 * k)
    value += 256 if width == 2 else 0
    return int(value)


@kernel
def gather_packed(data: Bytes, found: Int64s, wanted: Int64s, out: Bytes) -> None:
    """Copy the packed bytes of the rows `wanted` of `found` to `out`, without gaps."""
    at = 0
    for k in wanted:
        first, size = found[k, 1], found[k, 2]
        at = copy_piece(data, first, size, out, at)


@routine
def _skip_query_head(data: Bytes, at: int, stop: int, post_header: int) -> int:
    """The index of the text of a query event in data[at:stop]; -1 if it ends before."""
    if post_header < 13 or at + post_header > stop:
        return -1
    variables = unsigned_at(data, at + 11, 2)
    at += post_header + variables + byte_at(data, at + 8) + 1
    return at if at <= stop else -1


@routine
def _skip_rows_head(data: Bytes, at: int, stop: int, id_bytes: int, kind: int) -> int:
    """The index of the first row of a rows event in data[at:stop]; -1 if it ends before."""
    at += id_bytes + 2
    if kind >= _FIRST_V2:
        if at + 2 > stop:
            return -1
        at += unsigned_at(data, at, 2)  # includes its own two bytes
    columns, at = length_encoded_at(data, at, stop)
    if columns < 0 or columns > stop - at << 3:
        return -1
    bitmap = (columns + 7) >> 3
    at += 2 * bitmap if kind in (_UPDATE_V1, _UPDATE_V2) else bitmap
    return at if at <= stop else -1


@kernel
def find_packed(
    data: Bytes,
    events: Any,
    rows: Int64s,
    checksum_bytes: int,
    id_bytes: int,
    query_post_header: int,
    found: Int64s,
) -> tuple[int, int]:
    """Find the packed bytes of compressed events. Returns (events done, PackedStatus of the bad
    one, or OK).

    Args:
        data: uint8 (n,), bytes of a chunk.
        events: array of EVENT_DTYPE.
        rows: int64 (k,): the compressed ones.
        checksum_bytes: 4 or 0.
        id_bytes: bytes of a table id, 6 or 4.
        query_post_header: post-header length of query events.
        found: int64 (k, 6), written: header and fields before the packed bytes that stay, index in
            `data` and count of the packed bytes, unpacked bytes, algorithm, 1 if the header of a
            zstd frame has the same unpacked bytes.
    """
    for k in range(len(rows)):
        event = events[rows[k]]
        kind = _wide(event["event_type"])
        start = _wide(event["start"])
        at = start + HEADER_BYTES
        stop = start + _wide(event["event_length"]) - checksum_bytes
        if kind == _PAYLOAD:
            status, at, unpacked, algorithm = _find_payload(data, at, stop)
            found[k, 0] = at - start
        else:
            at = (
                _skip_query_head(data, at, stop, query_post_header)
                if kind == _QUERY
                else _skip_rows_head(data, at, stop, id_bytes, kind)
            )
            if at < 0 or at >= stop:
                return k, _SHORT
            found[k, 0] = at - start
            mark = byte_at(data, at)
            if mark & 0xF0 != 0x80:
                return k, _ALGORITHM
            size = mark & 0x0F
            if size < 1 or size > 4 or at + 1 + size > stop:
                return k, _SHORT
            unpacked = _wide(0)
            for i in range(size):
                unpacked = unpacked << 8 | byte_at(data, at + 1 + i)
            at += 1 + size
            algorithm = ZLIB
            room = EVENT_BYTES_MAX - found[k, 0] - checksum_bytes
            is_possible = 0 < unpacked <= room and unpacked >> _ZLIB_RATIO_BITS <= stop - at
            status = _OK if is_possible else _UNPACKED_SIZE
        if status != _OK:
            return k, status
        found[k, 1] = at
        found[k, 2] = stop - at
        found[k, 3] = unpacked
        found[k, 4] = algorithm
        found[k, 5] = 1 if algorithm == ZSTD and _frame_bytes(data, at, stop) == unpacked else 0
    return len(rows), _OK


@kernel
def copy_events(
    data: Bytes,
    events: Any,
    count: int,
    rows: Int64s,
    found: Int64s,
    types: Bytes,
    checksum_bytes: int,
    out: Bytes,
    starts: Int64s,
    lengths: Int64s,
    gaps: Int64s,
) -> None:
    """Copy the first `count` events to `out`, without packed bytes but with room for the unpacked
    ones: inside a rewritten event, after a payload event.

    Args:
        rows, found: of `find_packed`, those below `count`.
        types: uint8 (256,): the type to which an event of each type is rewritten.
        out: uint8, as large as the sum of the new lengths and the payloads' unpacked bytes.
        starts, lengths: int64 (count,), written: index in `out`, new length.
        gaps: int64 (k,), written: index in `out` where the unpacked bytes of each compressed event
            belong.
    """
    at = 0
    k = 0
    for row in range(count):
        event = events[row]
        start = _wide(event["start"])
        size = _wide(event["event_length"])
        starts[row] = at
        if k < len(rows) and rows[k] == row:
            head = found[k, 0]
            copy_piece(data, start, head, out, at)
            kind = _wide(event["event_type"])
            out[at + 4] = types[kind]
            if kind == _PAYLOAD:
                size = head + checksum_bytes
                gaps[k] = at + size
                lengths[row] = size
                size += found[k, 3]
            else:
                size = head + found[k, 3] + checksum_bytes
                gaps[k] = at + head
                lengths[row] = size
            for i in range(4):
                out[at + 9 + i] = lengths[row] >> (8 * i) & 0xFF
            k += 1
        else:
            copy_piece(data, start, size, out, at)
            lengths[row] = size
        at += size


@kernel
def seal_events(out: Bytes, rows: Int64s, starts: Int64s, lengths: Int64s) -> None:
    """Write the checksum of each rewritten event."""
    for k in range(len(rows)):
        first = starts[rows[k]]
        stop = first + lengths[rows[k]] - 4
        crc = _wide(crc32_of(out, first, stop))
        for i in range(4):
            out[stop + i] = crc >> (8 * i) & 0xFF
