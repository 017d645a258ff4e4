"""Read numbers of little-endian bytes; copy, compare and prefetch bytes in words.

It stays our own code: without prefetching, decoding single-row changes (W2) is 35 % dearer, and
byte by byte 50 %, above what `benchmarks.decode` allows.

Rules:
- No byte outside source and target is touched: the last word of a value overlaps the one before it,
  and values of less than a word are handled byte by byte.
- Only `copy_plain` reads and writes up to a word past its value; the caller provides room for that
  in both arrays.
- `prefetch` reads nothing, so any address is allowed.
- Uncompiled or with bounds checks (NUMBA_BOUNDSCHECK), every byte is read and written by its index.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from cdc_pipeline.binlog.native.arrays import Bytes
from cdc_pipeline.binlog.native.compiling import Integer, helper, routine

_WORD_BYTES: Final = 8
_LOOP_BYTES_MAX: Final = 16
_TOP_BITS: Final = np.uint64(0x8080808080808080)
_ONES: Final = np.uint64(0x0101010101010101)
_BLANKS: Final = np.uint64(0x2020202020202020)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
_ALL_BITS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_EIGHT: Final = np.uint64(8)
_BY_BYTES: bool = bool(config.DISABLE_JIT or config.BOUNDSCHECK)  # type: ignore[attr-defined]

_intrinsic: Any = intrinsic  # its type stub counts the typing context as an argument

_raw_memcpy: Any = cgutils.raw_memcpy


@helper
def byte_at(data: Bytes, position: Integer) -> Integer:
    return np.int64(data[np.uint64(position)])


@helper
def unsigned_at(data: Bytes, position: Integer, width: Integer) -> Integer:
    """Read a little-endian unsigned integer of 1 to 4 bytes."""
    value = byte_at(data, position)
    if width > 1:
        value |= byte_at(data, position + 1) << 8
    if width > 2:
        value |= byte_at(data, position + 2) << 16
    if width > 3:
        value |= byte_at(data, position + 3) << 24
    return value


@routine
def length_encoded_at(data: Bytes, position: Integer, end: Integer) -> tuple[Integer, Integer]:
    """A length-encoded integer and the position after it; -1 if there is none before `end`, or it
    is 2**63 or more.
    """
    if position >= end:
        return np.int64(-1), position
    value = byte_at(data, position)
    position += 1
    if value < 251:
        return value, position
    width = np.int64(2) if value == 252 else (np.int64(3) if value == 253 else np.int64(8))
    if value == 251 or value == 255 or position + width > end:
        return np.int64(-1), position
    value = unsigned_at(data, position, min(width, 4))
    if width == 8:
        value |= unsigned_at(data, position + 4, 4) << np.int64(32)
    return max(value, np.int64(-1)), position + width


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [position])


@_intrinsic
def _load_word(typing: Any, data: Any, position: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), generate


@_intrinsic
def _store_word(typing: Any, data: Any, position: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


@_intrinsic
def _move(typing: Any, data: Any, source: Any, length: Any, out: Any, target: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from_array, source_at, count, to_array, target_at = arguments
        source_pointer = _pointer(context, builder, signature.args[0], from_array, source_at)
        target_pointer = _pointer(context, builder, signature.args[3], to_array, target_at)
        _raw_memcpy(builder, target_pointer, source_pointer, count, 1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64, out, types.int64), generate


@_intrinsic
def _prefetch(typing: Any, data: Any, position: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        word = ir.IntType(32)
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [pointer.type],
            ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word]),
        )
        builder.call(
            prefetch, [pointer, ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)]
        )
        return context.get_dummy_value()

    return types.void(data, types.int64), generate


def _copy_by_bytes(
    data: Bytes, source: Integer, length: Integer, out: Bytes, target: Integer
) -> bool:
    seen = np.uint8(0)
    for index in range(length):
        value = data[source + index]
        out[target + index] = value
        seen |= value
    return bool(seen < 128)


def _copy_by_words(
    data: Bytes, source: Integer, length: Integer, out: Bytes, target: Integer
) -> bool:
    """Copy data[source : source + length] to out[target:]. Returns whether all of it is ASCII."""
    if length < _WORD_BYTES:
        few = np.uint8(0)
        for index in range(length):
            value = data[np.uint64(source + index)]
            out[np.uint64(target + index)] = value
            few |= value
        return bool(few < 128)
    seen = np.uint64(0)
    for index in range(0, length - _WORD_BYTES, _WORD_BYTES):
        word = _load_word(data, source + index)
        _store_word(out, target + index, word)
        seen |= word
    last = length - _WORD_BYTES
    word = _load_word(data, source + last)
    _store_word(out, target + last, word)
    return bool((seen | word) & _TOP_BITS == 0)


def _plain_by_bytes(
    data: Bytes, source: Integer, length: Integer, out: Bytes, target: Integer
) -> bool:
    plain = True
    for index in range(length):
        value = data[source + index]
        out[target + index] = value
        plain = plain and 32 <= value < 128 and value != 34 and value != 92
    return plain


def _plain_by_words(
    data: Bytes, source: Integer, length: Integer, out: Bytes, target: Integer
) -> bool:
    """Copy data[source : source + length] to out[target:]. Returns whether it is ASCII that needs
    no JSON escape.

    The seven bytes of `out` after the value must exist; they are written too.
    """
    special = np.uint64(0)
    index = np.int64(0)
    words = min(length, data.shape[0] - _WORD_BYTES - source + 1)
    while index < words:
        word = _load_word(data, source + index)
        _store_word(out, target + index, word)
        left = length - index
        if left < _WORD_BYTES:  # bytes after the value become blanks
            beyond = _ALL_BITS << (_EIGHT * np.uint64(left))
            word = (word & ~beyond) | (_BLANKS & beyond)
        quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
        special |= word | ((word - _BLANKS) & ~word)
        special |= ((quotes - _ONES) & ~quotes) | ((backslashes - _ONES) & ~backslashes)
        index += _WORD_BYTES
    plain = special & _TOP_BITS == 0
    while index < length:  # at the end of `data`
        value = data[np.uint64(source + index)]
        out[np.uint64(target + index)] = value
        plain = plain and value >= 32 and value < 128 and value != 34 and value != 92
        index += 1
    return bool(plain)


def _piece_by_bytes(
    data: Bytes, source: Integer, length: Integer, out: Bytes, target: Integer
) -> Integer:
    for index in range(length):
        out[target + index] = data[source + index]
    return target + length


def _copy_piece(
    data: Bytes, source: Integer, length: Integer, out: Bytes, target: Integer
) -> Integer:
    """Copy data[source : source + length] to out[target:], a separate array. Returns the position
    after it.

    Short pieces are copied in a loop, which costs less than a call.
    """
    if length <= _LOOP_BYTES_MAX:
        for index in range(length):
            out[target + index] = data[source + index]
    else:
        _move(data, source, length, out, target)
    return target + length


def _equal_by_bytes(data: Bytes, left: Integer, right: Integer, length: Integer) -> bool:
    index = 0
    while index < length and data[left + index] == data[right + index]:
        index += 1
    return bool(index == length)


def _equal_by_words(data: Bytes, left: Integer, right: Integer, length: Integer) -> bool:
    """Whether data[left : left + length] and data[right : right + length] are equal."""
    if length < _WORD_BYTES:
        index = 0
        while index < length and data[left + index] == data[right + index]:
            index += 1
        return bool(index == length)
    last = length - _WORD_BYTES
    for index in range(0, last, _WORD_BYTES):
        if _load_word(data, left + index) != _load_word(data, right + index):
            return False
    return bool(_load_word(data, left + last) == _load_word(data, right + last))


def _no_prefetch(data: Bytes, position: Integer) -> None:
    pass


def _do_prefetch(data: Bytes, position: Integer) -> None:
    """Begin to fetch the 64 bytes around `position`, which may be any address."""
    _prefetch(data, position)


copy_bytes: Final = helper(_copy_by_bytes if _BY_BYTES else _copy_by_words)
copy_piece: Final = helper(_piece_by_bytes if _BY_BYTES else _copy_piece)
copy_plain: Final = helper(_plain_by_bytes if _BY_BYTES else _plain_by_words)
equal_bytes: Final = helper(_equal_by_bytes if _BY_BYTES else _equal_by_words)
prefetch: Final = helper(_no_prefetch if _BY_BYTES else _do_prefetch)
