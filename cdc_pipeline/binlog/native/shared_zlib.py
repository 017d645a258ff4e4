"""The zlib library of this machine, for compiled code that calls its functions by address."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Sequence

_keep_alive: list[ctypes.CDLL] = []  # the owners of the addresses


def zlib_addresses(functions: Sequence[str]) -> list[int] | None:
    """Addresses of zlib functions, valid for the process's life; None if no shared zlib has all."""
    for name in (ctypes.util.find_library("z"), "libz.so.1", "libz.dylib"):
        if name is None:
            continue
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
