"""CRC32 from compiled code: zlib's own, and the loop that stands in for it, against Python's
zlib."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_pipeline.binlog.native.checksum import crc32_of, table_loop_address

LOOP = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint32)


@pytest.fixture(scope="module")
def loop() -> Any:
    return LOOP(table_loop_address())  # compiled here, and not by each worker that collects


@settings(deadline=None)  # the first call loads compiled code
@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_both_ways_give_zlibs_value(loop: Any, data: bytes, first: int, stop: int) -> None:
    first, stop = sorted((min(first, len(data)), min(stop, len(data))))
    expected = zlib.crc32(data[first:stop])
    assert crc32_of(np.frombuffer(data, dtype=np.uint8), first, stop) == expected
    assert loop(0, data[first:stop], stop - first) == expected
