"""CRC32 by folding against zlib: every length around the blocks, every alignment, any start
value."""

from __future__ import annotations

import ctypes
import random
import zlib

import numpy as np
import pytest

from cdc_pipeline.binlog.native import checksum, checksum_folding

SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32)


@pytest.fixture(scope="module", params=[1, 2, 4])
def folding(request: pytest.FixtureRequest) -> object:
    """By so many blocks at once, as far as this processor can."""
    if not checksum_folding.is_possible():  # then there is nothing to compare but zlib with itself
        return SIGNATURE(checksum._fastest_address())
    together = min(request.param, checksum_folding.blocks_together())
    address, engine = checksum_folding.build(checksum._SHORT_SYMBOL, together)
    function = SIGNATURE(address)
    function.engine = engine  # type: ignore[attr-defined]
    return function


def test_all_lengths_and_alignments(folding: object) -> None:
    data = np.frombuffer(random.Random(5).randbytes(2048), np.uint8)
    raw, address = data.tobytes(), data.ctypes.data
    for length in range(801):
        for first in (*range(5), 15, 16, 31, 33, 63):
            found = folding(0, address + first, length)  # type: ignore[operator]
            assert found == zlib.crc32(raw[first : first + length]), (length, first)


def test_start_values_and_large_messages(folding: object) -> None:
    source = random.Random(6)
    data = np.frombuffer(source.randbytes((1 << 20) + 77), np.uint8)
    raw, address = data.tobytes(), data.ctypes.data
    for _ in range(300):
        length = source.choice((source.randrange(200), source.randrange(70_000), len(raw)))
        start = source.randrange(1 << 32)
        assert folding(start, address, length) == zlib.crc32(raw[:length], start), (length, start)  # type: ignore[operator]


def test_kernels_use_it_or_zlib() -> None:
    data = np.frombuffer(random.Random(7).randbytes(5000), np.uint8)
    for first, stop in ((0, 5000), (3, 4), (1, 18), (7, 7), (100, 4099)):
        assert int(checksum.crc32_of(data, first, stop)) == zlib.crc32(data[first:stop].tobytes())
