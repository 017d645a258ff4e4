"""Build bitmaps of deleted rows, as Delta keeps them beside its data files, from row numbers
without a loop over rows.

Source: Delta's protocol, "Deletion Vectors"; the portable serialization of Roaring bitmaps.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MAGIC: Final = 1681511377
_NO_RUNS: Final = 12346
_ARRAY_ROWS_MAX: Final = 4096  # above it a container is 65,536 bits


def bitmap_bytes(rows: NDArray[np.int64]) -> bytes:
    """Return the 64-bit bitmap array of the given row numbers (any order, any number of times),
    portable serialization."""
    values = np.unique(rows)
    high, first = np.unique(values >> 32, return_index=True)
    stop = np.append(first[1:], len(values))
    parts = [struct.pack("<IQ", _MAGIC, len(high))]
    for key, begin, end in zip(high.tolist(), first.tolist(), stop.tolist(), strict=True):
        parts += [struct.pack("<I", key), _roaring(values[begin:end] & 0xFFFFFFFF)]
    return b"".join(parts)


def _roaring(values: NDArray[np.int64]) -> bytes:
    """Return a 32-bit bitmap of ascending values, in containers of 65,536 values each."""
    low = (values & 0xFFFF).astype("<u2")
    keys, first = np.unique(values >> 16, return_index=True)
    sizes = np.diff(np.append(first, len(values)))
    described = np.stack([keys, sizes - 1], axis=1).astype("<u2").tobytes()
    bodies = [
        _container(low[begin : begin + size])
        for begin, size in zip(first.tolist(), sizes.tolist(), strict=True)
    ]
    begins = 8 + 8 * len(keys) + np.cumsum([0, *map(len, bodies[:-1])])
    return (
        struct.pack("<II", _NO_RUNS, len(keys))
        + described
        + begins.astype("<u4").tobytes()
        + b"".join(bodies)
    )


def _container(low: NDArray[np.uint16]) -> bytes:
    if len(low) <= _ARRAY_ROWS_MAX:
        return low.tobytes()
    bits = np.zeros(1 << 16, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()
