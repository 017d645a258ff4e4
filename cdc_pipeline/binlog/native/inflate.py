"""zlib's inflate, callable from compiled code, for values that MariaDB compresses one by one.

Rules:
- One stream serves many values: it is set up once and reset for each, without allocation per value.
- The stream is an opaque int64 array of _STREAM_WORDS; every `inflate_start` needs an
  `inflate_end`.
- Importing this module registers the symbols with LLVM, before any kernel that uses them is
  compiled or loaded.

Source: zlib manual (`z_stream`, `inflateInit2`, `inflateReset2`, `inflate`), in its layout on
64-bit machines.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
from llvmlite import binding
from numba import config, types

from cdc_pipeline.binlog.native.arrays import Bytes, Int64s
from cdc_pipeline.binlog.native.checksum import zlib_addresses
from cdc_pipeline.binlog.native.compiling import kernel
from cdc_pipeline.errors import RuntimeSetupError

_STREAM_BYTES: Final = 112
# After the stream: zlib's version as text, whose first character must match.
_VERSION_WORD: Final = 14
_STREAM_WORDS: Final = 15
# Words of z_stream; little-endian machines only.
_NEXT_IN, _AVAILABLE_IN, _NEXT_OUT, _AVAILABLE_OUT = 0, 1, 3, 4

_WINDOW_BITS: Final = 15  # negative: no zlib header and trailer
_FINISH: Final = 4
_STREAM_END: Final = 1
_FUNCTIONS: Final = ("inflateInit2_", "inflateReset2", "inflate", "inflateEnd")


def _register() -> bool:
    """Register zlib's functions with LLVM under our names; False if no zlib is shared."""
    addresses = zlib_addresses(_FUNCTIONS)
    for function, address in zip(_FUNCTIONS, addresses or (), strict=False):
        binding.add_symbol(f"cdc_pipeline_{function}", address)
    return addresses is not None


def new_stream() -> Int64s:
    """Allocate one stream, int64 (_STREAM_WORDS,), not yet set up. Raises RuntimeSetupError: this
    machine has no shared zlib.
    """
    if not HAS_ZLIB:
        raise RuntimeSetupError(
            "the shared library zlib, which compressed MariaDB columns need, was not found",
            expected="libz.so.1 or libz.dylib",
            next_step="install zlib (Debian: apt-get install zlib1g)",
        )
    stream = np.zeros(_STREAM_WORDS, np.int64)
    stream[_VERSION_WORD] = ord("1")
    return stream


if config.DISABLE_JIT:  # type: ignore[attr-defined]
    HAS_ZLIB = True

    def inflate_start(stream: Int64s) -> int:  # noqa: ARG001
        """Do nothing."""
        return 0

    def inflate_at(
        stream: Int64s,  # noqa: ARG001
        data: Bytes,
        first: Any,
        stop: Any,
        raw: Any,
        out: Bytes,
        position: Any,
        size: Any,
    ) -> bool:
        """Unpack as below, with Python's zlib."""
        unpacker = zlib.decompressobj(-_WINDOW_BITS if raw else _WINDOW_BITS)
        try:
            plain = unpacker.decompress(data[first:stop].tobytes(), size + 1)
        except zlib.error:
            return False
        if not unpacker.eof or len(plain) != size:
            return False
        out[position : position + size] = np.frombuffer(plain, np.uint8)
        return True

    def inflate_end(stream: Int64s) -> int:  # noqa: ARG001
        """Do nothing."""
        return 0

else:
    HAS_ZLIB = _register()
    _init: Any = types.ExternalFunction(
        "cdc_pipeline_inflateInit2_",
        types.int32(types.uintp, types.int32, types.uintp, types.int32),
    )
    _reset: Any = types.ExternalFunction(
        "cdc_pipeline_inflateReset2", types.int32(types.uintp, types.int32)
    )
    _inflate: Any = types.ExternalFunction(
        "cdc_pipeline_inflate", types.int32(types.uintp, types.int32)
    )
    _end: Any = types.ExternalFunction("cdc_pipeline_inflateEnd", types.int32(types.uintp))

    @kernel
    def inflate_start(stream: Any) -> Any:
        """Set a stream up. Returns 0, or zlib's error code (memory,
        or another layout of its stream).
        """
        here = stream.ctypes.data
        return _init(here, -_WINDOW_BITS, here + 8 * _VERSION_WORD, _STREAM_BYTES)

    @kernel
    def inflate_at(
        stream: Any, data: Any, first: Any, stop: Any, raw: Any, out: Any, position: Any, size: Any
    ) -> Any:  # fmt: skip
        """Unpack ``data[first:stop]`` (below 4 GiB) to exactly ``out[position:position + size]``;
        False if it does not fit.

        The caller has checked the bounds. raw: deflate without zlib's header and checksum.
        """
        here = stream.ctypes.data
        if _reset(here, -_WINDOW_BITS if raw else _WINDOW_BITS) != 0:
            return False
        stream[_NEXT_IN] = data.ctypes.data + first
        stream[_AVAILABLE_IN] = stop - first
        stream[_NEXT_OUT] = out.ctypes.data + position
        stream[_AVAILABLE_OUT] = size
        return _inflate(here, _FINISH) == _STREAM_END and stream[_AVAILABLE_OUT] & 0xFFFFFFFF == 0

    @kernel
    def inflate_end(stream: Any) -> Any:
        return _end(stream.ctypes.data)
