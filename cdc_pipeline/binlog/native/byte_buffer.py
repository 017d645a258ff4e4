"""The buffer between a reader of bytes and the framer.

Rules:
- Bytes returned by `filled` are never moved or written again, so chunks may keep views of them:
  `consume` only skips them, and new bytes are added after them. Small chunks share one allocation.
- When the buffer is full, only bytes that were not consumed are copied to a new, larger allocation:
  an event of n bytes that arrives in pieces costs O(n) copying in total.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DEFAULT_CHUNK_BYTES: Final = 4 << 20


class ByteBuffer:
    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self._data: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._first = 0
        self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._first

    @property
    def filled(self) -> NDArray[np.uint8]:
        """A view of the bytes that were committed and not yet consumed."""
        return self._data[self._first : self._stop]

    def room(self, count: int) -> NDArray[np.uint8]:
        """Return a writable view of `count` bytes after the filled ones;
        `commit` takes the number written.
        """
        if self._stop + count > len(self._data):
            filled = self.filled
            size = max(self.chunk_bytes, 2 * len(filled) + count)
            # Arrow's pool reuses pages.
            grown = np.frombuffer(pa.allocate_buffer(size), dtype=np.uint8)
            grown[: len(filled)] = filled
            self._data, self._first, self._stop = grown, 0, len(filled)
        return self._data[self._stop : self._stop + count]

    def commit(self, count: int) -> None:
        """Count the first `count` bytes of the last `room` as filled."""
        self._stop += count

    def append(self, data: bytes | NDArray[np.uint8]) -> None:
        array = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
        self.room(len(array))[:] = array
        self.commit(len(array))

    def consume(self, count: int) -> None:
        self._first += count
