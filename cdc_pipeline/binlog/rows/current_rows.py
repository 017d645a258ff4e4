"""The changes of a table's own columns and current rows, from its row images as they were logged.

Rules:
- MariaDB logs each earlier version of a row of a system-versioned table as a row, with the time at
  which it ended in `TableSchema.row_end`. A current row, which SELECT returns, ends at the largest
  time of the column.
- So an update that ends a row's time is its deletion, and rows that were not current before a
  change and are not after it do not count: inserted versions, DELETE HISTORY.
- An image that lacks the column leaves the row as it was, and statements change current rows only.

Source: tests/servers; MariaDB manual, "System-Versioned Tables".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows
from cdc_pipeline.binlog.table_schema import TableSchema

# 2038-01-19 03:14:07.999999, and 2106-02-07 06:28:15.999999 of MariaDB 11.5 and newer.
_NEVER_US: Final = ((1 << 31) * 1_000_000 - 1, (1 << 32) * 1_000_000 - 1)


def own_changes(logged: DecodedRows, schema: TableSchema) -> DecodedRows:
    """The changes of a table; `logged` are those of `schema.logged`."""
    if logged.schema is schema:
        return logged
    current = _of_current_rows(logged, schema.row_end) if schema.row_end else logged
    return _own_columns(current, schema)


def _of_current_rows(rows: DecodedRows, row_end: str) -> DecodedRows:
    index = rows.schema.column_names.index(row_end)
    has_before, has_after = rows.op != INSERT, rows.op != DELETE
    before = has_before & _is_current(rows.before, rows.before_present, index, has_before)
    after = has_after & _is_current(rows.after, rows.after_present, index, before | ~has_before)
    changed = before | after
    op = np.where(before & after, UPDATE, np.where(after, INSERT, DELETE)).astype(np.uint8)
    if not (changed & (op == rows.op)).all():
        rows = replace(
            rows,
            op=op,
            before=_only(rows.before, before),
            after=_only(rows.after, after),
            before_present=rows.before_present * before[:, None].astype(np.uint8),
            after_present=rows.after_present * after[:, None].astype(np.uint8),
            invalid=[
                value
                for value in rows.invalid
                if (before if value.image == "before" else after)[value.row]
            ],
        ).where(changed)
    return rows


def _is_current(
    image: pa.RecordBatch, present: NDArray[np.uint8], index: int, otherwise: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which rows of an image are current; `otherwise` of those that lack the column."""
    ends_us = image.column(index).cast(pa.int64()).fill_null(0).to_numpy()
    current = np.isin(ends_us, _NEVER_US)
    is_absent = (present[:, index // 8] >> (index % 8) & 1) == 0
    return np.where(is_absent, otherwise, current)


def _only(image: pa.RecordBatch, wanted: NDArray[np.bool_]) -> pa.RecordBatch:
    """An image with NULL in all columns of the other rows."""
    import pyarrow.compute as pc  # late: few tables have versions of rows

    mask = pa.array(wanted)
    arrays = [pc.if_else(mask, column, pa.scalar(None, column.type)) for column in image.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=image.schema)


def _own_columns(rows: DecodedRows, schema: TableSchema) -> DecodedRows:
    count = len(schema.columns)
    kept = list(range(count))
    own_bits = np.packbits(np.ones(count, np.uint8), bitorder="little")
    return replace(
        rows,
        schema=schema,
        before=rows.before.select(kept),
        after=rows.after.select(kept),
        before_present=rows.before_present[:, : len(own_bits)] & own_bits,
        after_present=rows.after_present[:, : len(own_bits)] & own_bits,
        invalid=[value for value in rows.invalid if value.column < count],
    )
