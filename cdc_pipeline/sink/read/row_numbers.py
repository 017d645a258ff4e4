"""Which rows are equal, and which of a target's are the source's now, in Arrow.

Rules:
- Rows are numbered by what `exact` calls equal (`modes/rescue.py`): floats by their text, so that
  -0.0 is not 0.0; maps without their order; all else by value; NULL equals NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.column_types import DELTA_TYPES_COMPARED_AS_TEXT
from cdc_pipeline.config.modes import ModeSpec
from cdc_pipeline.sink.modes.mode_columns import DELETED_COLUMN, END_COLUMN

_NESTED_ROWS: Final = 10_000  # of which Python has the values at once

Numbers: TypeAlias = NDArray[np.int64]


def live_rows(rows: pa.Table, mode: ModeSpec) -> pa.Table:
    """Without rows that are marked as deleted and versions that have ended."""
    if mode.marks_deleted_rows:
        rows = rows.filter(pc.invert(rows.column(DELETED_COLUMN)))
    if mode.keeps_versions:
        rows = rows.filter(pc.is_null(rows.column(END_COLUMN)))
    return rows


def number_rows(rows: pa.Table, delta_types: Sequence[str]) -> Numbers:
    """The same number, from 0, for equal rows; `delta_types` of the columns."""
    combined = np.zeros(len(rows), np.int64)
    for column, delta_type in zip(rows.columns, delta_types, strict=True):
        numbers = combined * (len(rows) + 1) + _numbers(column, delta_type)
        combined = _encoded(pa.chunked_array([numbers]))
    return combined


def _numbers(column: pa.ChunkedArray, delta_type: str) -> Numbers:
    if delta_type in DELTA_TYPES_COMPARED_AS_TEXT:
        is_list = pa.types.is_list(column.type)
        column = column.cast(pa.list_(pa.string()) if is_list else pa.string())
    if pa.types.is_nested(column.type):
        parts = (column.slice(at, _NESTED_ROWS) for at in range(0, len(column), _NESTED_ROWS))
        column = pa.chunked_array(map(_texts, parts), pa.string())
    return _encoded(column)


def _encoded(column: pa.ChunkedArray) -> Numbers:
    encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    numbers: Numbers = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def _texts(nested: pa.ChunkedArray) -> pa.Array:
    values = nested.to_pylist()
    if pa.types.is_map(nested.type):
        values = [None if entries is None else sorted(entries) for entries in values]
    return pa.array([None if value is None else repr(value) for value in values], pa.string())
