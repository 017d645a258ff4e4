"""Bytes copied in words: the inner loop of everything that is text.

Rules:
- Not a byte outside source and target is touched: the last word of a value overlaps the one before it, and values of
  less than a word are taken byte by byte.
- With bounds checks on (NUMBA_BOUNDSCHECK) and uncompiled, every byte is read and written by its index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.compiling import Integer, helper

_WORD_BYTES = 8
_BY_BYTES = bool(config.DISABLE_JIT or config.BOUNDSCHECK)  # type: ignore[attr-defined]


def _word_pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), ir.IntType(64).as_pointer())


@intrinsic
def _load_word(typing: Any, data: Any, position: Any) -> Any:  # noqa: ARG001
    """Eight bytes at any address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_word_pointer(context, builder, signature.args[0], *arguments), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def _store_word(typing: Any, data: Any, position: Any, value: Any) -> Any:  # noqa: ARG001
    """Eight bytes to any address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, word = arguments
        builder.store(word, _word_pointer(context, builder, signature.args[0], array, at), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


if _BY_BYTES:

    @helper
    def copy_bytes(
        data: NDArray[np.uint8], source: Integer, length: Integer, out: NDArray[np.uint8], target: Integer
    ) -> bool:
        """Copy data[source : source + length] to out[target:]. True where no byte has its top bit set (ASCII)."""
        seen = np.uint8(0)
        for index in range(length):
            value = data[source + index]
            out[target + index] = value
            seen |= value
        return seen < 128

else:
    _TOP_BITS = np.uint64(0x8080808080808080)

    @helper
    def copy_bytes(
        data: NDArray[np.uint8], source: Integer, length: Integer, out: NDArray[np.uint8], target: Integer
    ) -> bool:
        """Copy data[source : source + length] to out[target:]. True where no byte has its top bit set (ASCII)."""
        if length < _WORD_BYTES:
            few = np.uint8(0)
            for index in range(length):
                value = data[np.uint64(source + index)]
                out[np.uint64(target + index)] = value
                few |= value
            return few < 128
        seen = np.uint64(0)
        for index in range(0, length - _WORD_BYTES, _WORD_BYTES):
            word = _load_word(data, source + index)
            _store_word(out, target + index, word)
            seen |= word
        last = length - _WORD_BYTES
        word = _load_word(data, source + last)
        _store_word(out, target + last, word)
        return (seen | word) & _TOP_BITS == 0
