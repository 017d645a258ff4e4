"""Blocks of memory that are used again as soon as nothing refers to them.

Fresh memory costs a page fault and the clearing of each page: more than receiving into it.

Rules:
- `take` gives an array of its own for a block; every view of it keeps it alive (numpy, Arrow and memoryviews alike),
  and the block comes back when it dies, from whatever thread. So a block is never written while somebody can see it.
- At most `spare_blocks_max` wait to be used again; they go with the pool. What is still seen then is freed by its last
  user.
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
    """Blocks of one size."""

    def __init__(self, block_bytes: int, *, spare_blocks_max: int) -> None:
        self.block_bytes = block_bytes
        self._spare_blocks_max = spare_blocks_max
        self._spare: list[mmap.mmap] = []
        self._taken: dict[int, tuple[weakref.ref[NDArray[np.uint8]], mmap.mmap]] = {}  # by id of the reference
        own = weakref.ref(self)  # not through itself: it goes when its user does

        def gave_back(block: weakref.ref[NDArray[np.uint8]]) -> None:
            pool = own()
            if pool is not None:
                pool._give_back(block)

        self._gave_back = gave_back

    def take(self, size_bytes: int = 0) -> NDArray[np.uint8]:
        """A block, of more bytes where `size_bytes` is more. Its content is whatever was there."""
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

    def _give_back(self, block: weakref.ref[NDArray[np.uint8]]) -> None:
        _, pages = self._taken.pop(id(block))
        if len(self._spare) < self._spare_blocks_max:
            self._spare.append(pages)


def _pages(size_bytes: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _LARGE_PAGES is not None:
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(_LARGE_PAGES)
    return pages
