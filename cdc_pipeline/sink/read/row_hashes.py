"""Hashes of rows that are the same for equal rows, as `row_numbers` has it, compiled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.row_hashes import (
    SEEDS,
    absorb_lists,
    absorb_texts,
    absorb_words,
    finish,
)

_ALL_VALID: Final = np.zeros(0, np.bool_)

Hashes: TypeAlias = NDArray[np.uint64]


class RowHasher:
    def __init__(self, rows: int) -> None:
        self._lanes: Hashes = np.tile(SEEDS, (rows, 1))

    def take(self, columns: Iterable[pa.ChunkedArray]) -> Hashes:
        """Both hashes (n, 2) of all columns so far."""
        for column in columns:
            _absorb(column.combine_chunks(), self._lanes)
        return _finished(self._lanes)


def _finished(lanes: Hashes) -> Hashes:
    hashes = np.empty_like(lanes)
    finish(lanes, hashes)
    return hashes


def _absorb(values: Any, lanes: Hashes) -> None:
    kind = values.type
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else _ALL_VALID
    if pt.is_struct(kind):
        absorb_words(np.zeros(0, np.uint64), 0, valid, lanes)
        for field in values.flatten():
            _absorb(field, lanes)
    elif pt.is_list(kind) or pt.is_map(kind):
        offsets = values.offsets.to_numpy().astype(np.int64)
        parts = [values.keys, values.items] if pt.is_map(kind) else [values.values]
        elements: Hashes = np.tile(SEEDS, (offsets[-1] - offsets[0], 1))
        for part in parts:
            _absorb(part.slice(offsets[0], len(elements)), elements)
        # Entries of a map are the same in any order.
        absorb_lists(_finished(elements), offsets - offsets[0], pt.is_list(kind), valid, lanes)
    elif pt.is_boolean(kind) or pt.is_primitive(kind):
        absorb_words(_words(values), 1, valid, lanes)
    elif pt.is_decimal128(kind):
        words = np.array(np.frombuffer(values.buffers()[1] or b"", np.uint64))
        absorb_words(words[2 * values.offset : 2 * (values.offset + len(values))], 2, valid, lanes)
    else:
        texts = values.cast(pa.large_binary())
        _, offset_bytes, data = texts.buffers()
        offsets = np.frombuffer(offset_bytes or bytes(8), np.int64)
        offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
        absorb_texts(np.frombuffer(data or b"", np.uint8), offsets, valid, lanes)


def _words(values: Any) -> Hashes:
    """NULL is any word."""
    if pt.is_boolean(values.type):
        values = values.cast(pa.uint8())
    bits = values.type.bit_width
    kind = f"f{bits // 8}" if pt.is_floating(values.type) else f"i{bits // 8}"
    plain: Any = np.frombuffer(values.buffers()[1] or b"", kind)
    plain = plain[values.offset : values.offset + len(values)]
    if pt.is_floating(values.type):  # each NaN is the same
        plain = np.where(np.isnan(plain), np.array(np.nan, kind), plain).view(f"i{bits // 8}")
    words: Hashes = plain.astype(np.int64).view(np.uint64)
    return words
