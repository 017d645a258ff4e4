"""Unpack values of MariaDB's COMPRESSED columns before any other kernel reads them.

Format (MariaDB manual, "Storage-Engine Independent Column Compression"; verified on 10.11): a value
is empty or begins with one byte. 0 means that the plain bytes follow. Otherwise the high four bits
are method 8 (zlib), bit 3 is set if the stream has neither zlib header nor checksum, and the low
three bits are the count of bytes (1 to 4) of the plain length, big-endian, before the stream.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cdc_pipeline.binlog.kernels.memory import byte_at, unsigned_at
from cdc_pipeline.binlog.native.arrays import Bytes, Int32s, Int64s
from cdc_pipeline.binlog.native.compiling import Integer, helper, kernel
from cdc_pipeline.binlog.native.inflate import inflate_at, inflate_end, inflate_start

LENGTH_BYTES: Final = 4  # before each unpacked value, little-endian
DAMAGED: Final = -1

_ZLIB: Final = 8
_RAW: Final = 8
_RATIO_MAX: Final = 1032  # of deflate


@helper
def _plain_size(data: Bytes, first: Integer, length: Integer, size_max: Integer) -> Integer:
    if length == 0:
        return np.int64(0)
    head = byte_at(data, first)
    if head == 0:
        return length - 1 if length - 1 <= size_max else np.int64(DAMAGED)
    count = head & 7
    if head >> 4 != _ZLIB or count == 0 or count > 4 or length < 1 + count:
        return np.int64(DAMAGED)
    size = np.int64(0)
    for index in range(count):
        size = size << 8 | byte_at(data, first + 1 + index)
    if size > size_max or size > _RATIO_MAX * (length - 1 - count):
        return np.int64(DAMAGED)
    return size


@kernel
def plain_bytes(
    data: Bytes, base: Int64s, relative: Int32s, prefix: Integer, size_max: Integer
) -> Integer:
    """Return the number of bytes that `unpack_values` writes for these rows.

    Args:
        base, relative: from `walk_rows`. prefix: count of length bytes before each value.
        size_max: bytes of the longest plain value that the column can hold.
    """
    total = np.int64(0)
    for row in range(base.shape[0]):
        if relative[row] >= 0:
            at = base[row] + relative[row]
            size = _plain_size(data, at + prefix, unsigned_at(data, at, prefix), size_max)
            if size >= 0:
                total += LENGTH_BYTES + size
    return total


@kernel
def unpack_values(
    data: Bytes,
    base: Int64s,
    relative: Int32s,
    prefix: Integer,
    size_max: Integer,
    stream: Int64s,
    out: Bytes,
    out_base: Int64s,
    out_relative: Int32s,
    damaged: Bytes,
) -> Integer:
    """Write LENGTH_BYTES and the plain bytes of every value. Returns 0, or zlib's code if it could
    not begin.

    Args:
        stream: from `inflate.new_stream`. out: uint8 with room for the result of `plain_bytes`.
        out_base: int64 (rows,), index into `out` of each value. out_relative: int32 (rows,), 0, or
            -1 for NULL and for values that cannot be unpacked, which are 1 in damaged: uint8
            (rows,).
    """
    code = inflate_start(stream)
    if code != 0:
        return code
    position = np.int64(0)
    for row in range(base.shape[0]):
        out_base[row] = position
        out_relative[row] = -1
        damaged[row] = 0
        if relative[row] < 0:
            continue
        first = base[row] + relative[row]
        length = unsigned_at(data, first, prefix)
        first += prefix
        size = _plain_size(data, first, length, size_max)
        good = size >= 0
        start = position + LENGTH_BYTES
        if good and length > 0:
            head = byte_at(data, first)
            if head == 0:
                for index in range(size):
                    out[start + index] = data[first + 1 + index]
            else:
                good = inflate_at(
                    stream,
                    data,
                    first + 1 + (head & 7),
                    first + length,
                    head & _RAW != 0,
                    out,
                    start,
                    size,
                )
        if good:
            for index in range(LENGTH_BYTES):
                out[position + index] = (size >> (8 * index)) & 0xFF
            out_relative[row] = 0
            position = start + size
        else:
            damaged[row] = 1
    inflate_end(stream)
    return code
