"""Copying bytes between arrays at the speed of the C library, in kernels that join many pieces.

Rules:
- The caller has made sure that both ranges lie in their arrays, and that they do not overlap.
- Short pieces are copied in a loop, whose cost is less than that of a call. Uncompiled, all are.
"""

from __future__ import annotations

from typing import Any, Final

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.compiling import Integer, helper

_LOOP_BYTES_MAX: Final = 16

_intrinsic: Any = intrinsic  # they have no types
_raw_memcpy: Any = cgutils.raw_memcpy


@_intrinsic
def _memcpy(_typing: Any, source: Any, _first: Any, out: Any, _position: Any, _count: Any) -> Any:
    """memcpy(out + position, source + first, count) for one-dimensional arrays of bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        indexes = [
            context.cast(builder, args[place], signature.args[place], types.intp) for place in (1, 3, 4)
        ]  # fmt: skip
        ends = []
        for place, index in ((0, indexes[0]), (2, indexes[1])):
            array = context.make_array(signature.args[place])(context, builder, args[place])
            ends.append(builder.gep(array.data, [index]))
        _raw_memcpy(builder, ends[1], ends[0], indexes[2], 1)
        return context.get_dummy_value()

    return types.void(source, types.intp, out, types.intp, types.intp), generate


def _copy_by_loop(
    source: NDArray[Any], first: Integer, count: Integer, out: NDArray[Any], position: Integer
) -> Integer:
    for index in range(count):
        out[position + index] = source[first + index]
    return position + count


def _copy(source: NDArray[Any], first: Integer, count: Integer, out: NDArray[Any], position: Integer) -> Integer:
    if count <= _LOOP_BYTES_MAX:
        for index in range(count):
            out[position + index] = source[first + index]
    else:
        _memcpy(source, first, out, position, count)
    return position + count


# Copies source[first : first + count] to out[position :]; returns the position after it.
copy_bytes: Final[Any] = _copy_by_loop if config.DISABLE_JIT else helper(_copy)  # type: ignore[attr-defined]
