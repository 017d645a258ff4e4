"""CRC32 of events, callable from compiled code.

Rules:
- `crc32_of` calls one fixed symbol, so that cached machine code stays valid in later processes: the
  folding function of `checksum_folding` if the processor supports it, else zlib's `crc32`, also for
  short messages. Without a shared zlib, a compiled table loop (about 1 GB/s) replaces it.
- Importing this module registers the name with LLVM, before any kernel that uses it is compiled or
  loaded.

Source: MySQL "Binlog Event Checksum": CRC-32 of IEEE 802.3 over header and body, stored in the last
four bytes.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from llvmlite import binding
from numba import cfunc, config, types
from numpy.typing import NDArray

from cdc_pipeline.binlog.native import checksum_folding
from cdc_pipeline.binlog.native.arrays import Bytes
from cdc_pipeline.binlog.native.compiling import kernel

CHECKSUM_BYTES: Final = 4
_SYMBOL: Final = "cdc_pipeline_crc32"
_SHORT_SYMBOL: Final = "cdc_pipeline_crc32_short"
_POLYNOMIAL: Final = 0xEDB88320
_keep_alive: list[Any] = []  # the owners of addresses


def zlib_addresses(functions: Sequence[str]) -> list[int] | None:
    """Addresses of zlib functions, valid for the process's life; None if no shared zlib has all."""
    for name in ("libz.so.1", "libz.dylib"):  # asking the system for the name starts a process
        try:
            library = ctypes.CDLL(name)
            found = [
                ctypes.cast(getattr(library, function), ctypes.c_void_p).value
                for function in functions
            ]
        except (OSError, AttributeError):
            continue
        _keep_alive.append(library)
        return [address for address in found if address is not None]
    return None


def _table() -> NDArray[np.uint32]:
    table = np.zeros(256, dtype=np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table[byte] = value
    return table


def table_loop_address() -> int:
    """The address of the compiled table loop that replaces zlib's function, with its signature."""
    table = _table()

    signature = types.uint64(types.uint64, types.CPointer(types.uint8), types.uint32)  # type: ignore[no-untyped-call]

    @cfunc(signature)
    def loop(start: int, data: Any, length: int) -> Any:
        crc = np.uint32(start) ^ np.uint32(0xFFFFFFFF)
        for index in range(length):
            crc = (crc >> np.uint32(8)) ^ table[(crc ^ data[index]) & np.uint32(0xFF)]
        return np.uint64(crc ^ np.uint32(0xFFFFFFFF))

    _keep_alive.append(loop)
    address: int = loop.address  # type: ignore[assignment]
    return address


def _fastest_address() -> int:
    shared = zlib_addresses(["crc32"])
    plain = shared[0] if shared else table_loop_address()
    if not checksum_folding.is_possible():
        return plain
    binding.add_symbol(_SHORT_SYMBOL, plain)
    address, engine = checksum_folding.build(_SHORT_SYMBOL)
    _keep_alive.append(engine)
    return address


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def crc32_of(data: Bytes, first: int, stop: int) -> int:
        return zlib.crc32(data[first:stop].tobytes())

else:
    binding.add_symbol(_SYMBOL, _fastest_address())
    _crc32: Any = types.ExternalFunction(
        _SYMBOL, types.uint64(types.uint64, types.uintp, types.uint32)
    )

    @kernel
    def crc32_of(data: Any, first: int, stop: int) -> Any:
        """The CRC32 of ``data[first:stop]``; the caller has checked the bounds."""
        return _crc32(0, data.ctypes.data + first, stop - first)
