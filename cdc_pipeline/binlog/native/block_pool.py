"""Memory blocks that are reused as soon as nothing refers to them.

A fresh page costs a page fault and its clearing, which is more than receiving data into it.

Rules:
- `take` returns a new array over a block. Every view keeps the array alive (numpy, Arrow and
  memoryviews alike), and the block returns to the pool when the array dies, in whatever thread. So
  a block is never written while a view of it exists.
- At most `spare_blocks_max` spare blocks are kept, and freed with the pool. Blocks in use at that
  time are freed with their last view.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LARGE_PAGES: Final = getattr(mmap, "MADV_HUGEPAGE", None)


class BlockPool:
    def __init__(self, block_bytes: int, *, spare_blocks_max: int) -> None:
        self.block_bytes = block_bytes
        self._spare: list[mmap.mmap] = []
        # By id of the reference.
        self._taken: dict[int, tuple[weakref.ref[NDArray[np.uint8]], mmap.mmap]] = {}
        own = weakref.ref(self)  # weak, so that the pool dies with its user

        def gave_back(block: weakref.ref[NDArray[np.uint8]]) -> None:
            pool = own()
            if pool is not None:
                _, pages = pool._taken.pop(id(block))
                if len(pool._spare) < spare_blocks_max:
                    pool._spare.append(pages)

        self._gave_back = gave_back

    def take(self, size_bytes: int = 0) -> NDArray[np.uint8]:
        """A block, larger if `size_bytes` is larger. Its content is undefined."""
        if size_bytes > self.block_bytes:
            return np.frombuffer(_pages(size_bytes), dtype=np.uint8)
        try:
            pages = self._spare.pop()
        except IndexError:
            pages = _pages(self.block_bytes)
        block = np.frombuffer(pages, dtype=np.uint8)
        reference = weakref.ref(block, self._gave_back)
        self._taken[id(reference)] = reference, pages
        return block


def _pages(size_bytes: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _LARGE_PAGES is not None:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(_LARGE_PAGES)
    return pages
