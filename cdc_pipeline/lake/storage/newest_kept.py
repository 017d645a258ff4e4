"""Values that this process has read or written last, up to a number of bytes. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class NewestKept(Generic[_Value]):
    def __init__(self, bytes_max: int, size_bytes: Callable[[_Value], int]) -> None:
        self._bytes_max = bytes_max
        self._size_of = size_bytes
        self._values: dict[str, _Value] = {}
        self._size_bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> _Value | None:
        return self._values.get(key)

    def put(self, key: str, value: _Value) -> None:
        with self._lock:
            self._drop(key)
            self._values[key] = value
            self._size_bytes += self._size_of(value)
            while self._size_bytes > self._bytes_max:
                self._drop(next(iter(self._values)))

    def forget(self, key: str) -> None:
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._size_bytes = 0

    def _drop(self, key: str) -> None:
        if key in self._values:
            self._size_bytes -= self._size_of(self._values.pop(key))
