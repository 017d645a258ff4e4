"""Reusable memory of a thread, because fresh pages cost more than writing to them.

Rules:
- An array from `empty` is valid until the thread's next `reset` and must not outlive the call that
  took it.
- At most _KEPT_BYTES_MAX per thread are kept; larger requests are allocated as usual.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

_KEPT_BYTES_MAX: Final = 32 << 20
_ALIGN: Final = 64


class Scratch(threading.local):
    """The memory of one thread, allocated from the front."""

    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0

    def reset(self) -> None:
        """Allow everything allocated before to be overwritten."""
        if len(self._memory) < min(self._used, _KEPT_BYTES_MAX):
            self._memory = np.empty(min(self._used, _KEPT_BYTES_MAX), np.uint8)
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        first = self._used
        self._used += -(-size // _ALIGN) * _ALIGN
        if first + size > len(self._memory):
            return np.empty(shape, kind)
        return self._memory[first : first + size].view(kind).reshape(shape)
