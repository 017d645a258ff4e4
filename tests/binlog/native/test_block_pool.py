"""Blocks come back when nothing sees them, and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.native.block_pool import BlockPool

BLOCK_BYTES = 8192


def address(block: Any) -> int:
    return int(block.ctypes.data)


@pytest.mark.parametrize(
    "look",
    [
        lambda block: block[5:100],
        lambda block: block[4:][4:].view(np.int64)[::2],
        lambda block: pa.py_buffer(block[8:]),
        lambda block: pa.Array.from_buffers(pa.uint8(), 50, [None, pa.py_buffer(block[8:])]).slice(
            3
        ),
        lambda block: memoryview(block[:9]),
        lambda block: np.frombuffer(memoryview(block)[3:], np.uint8),
    ],
)
def test_a_block_is_not_used_again_while_something_sees_it(look: Callable[[Any], object]) -> None:
    pool = BlockPool(BLOCK_BYTES, spare_blocks_max=2)
    block = pool.take()
    first, seen = address(block), look(block)
    del block
    other = pool.take()
    assert address(other) != first
    del seen
    assert address(pool.take()) == first


def test_spare_blocks_are_bounded_and_larger_ones_are_not_kept() -> None:
    pool = BlockPool(BLOCK_BYTES, spare_blocks_max=2)
    blocks = [pool.take() for _ in range(5)]
    assert len({address(block) for block in blocks}) == 5
    large = pool.take(3 * BLOCK_BYTES)
    assert len(large) == 3 * BLOCK_BYTES
    assert {len(block) for block in blocks} == {BLOCK_BYTES}
    del large
    blocks.clear()
    assert len(pool._spare) == 2
    assert not pool._taken


def test_a_pool_goes_with_its_user_and_leaves_what_is_seen() -> None:
    pool = BlockPool(BLOCK_BYTES, spare_blocks_max=2)
    block = pool.take()
    block[:] = 7
    part = block[10:20]
    del pool, block
    assert part.tolist() == [7] * 10
