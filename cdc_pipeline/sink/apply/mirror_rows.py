"""Turn the staged rows of a keyed mirror into rows of its table, in Arrow, for `data_file` to write
if Spark is not needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.lake.parquet import read_parquet
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.data_file import plain_type
from cdc_pipeline.sink.delta.log import TableLog
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE
from cdc_pipeline.sink.modes.mode_columns import CDC_COLUMNS, OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout

ROWS_MAX: Final = 500_000
_BYTES_MAX: Final = 64 << 20


def may_reduce_in_memory(target: RecordedTarget) -> bool:
    return (
        sum(file.rows for file in target.files) <= ROWS_MAX
        and sum(file.size_bytes for file in target.files) <= _BYTES_MAX
    )


def plain_types(target: RecordedTarget, there: TableLog) -> dict[str, pa.DataType] | None:
    """By column name, our own last; None if the table's files are Spark's to write."""
    types: dict[str, pa.DataType] = {}
    for column in (*target.spec.columns, *CDC_COLUMNS):
        kind = plain_type(column.delta_type)
        if kind is None or there.columns.get(column.name) != column.delta_type:
            return None
        types[column.name] = kind
    return types


def mirror_rows(staged: pa.Table, target: RecordedTarget) -> pa.Table:
    """After n staged inserts and updates, in which each key occurs at most once."""
    op = staged.column("_op").to_numpy()
    gone = np.isin(op, (DELETE, LEAVE))
    if gone.any():
        staged = staged.filter(pa.array(~gone))
    is_insert = pc.equal(staged.column("_op"), INSERT)
    operation = pc.if_else(is_insert, "insert", "update")
    names = set(staged.column_names)
    columns = {
        column.name: staged.column(f"c{at}") if f"c{at}" in names else pa.nulls(len(staged))
        for at, column in enumerate(target.spec.columns)
    }
    return pa.table(
        {
            **columns,
            OP_COLUMN: operation,
            SEQ_COLUMN: staged.column("_seq"),
            TS_COLUMN: staged.column("_ts"),
        }
    )


def staged_pieces(files: list[Path]) -> Iterator[pa.Table]:
    for file in files:
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            for group in range(opened.num_row_groups):
                yield opened.read_row_group(group)


def read_staged(files: list[Path]) -> pa.Table:
    """Columns that a file lacks are NULL."""
    tables = [read_parquet(file) for file in files]
    tables = [_plain(table) for table in tables]
    return pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]


def _plain(table: pa.Table) -> pa.Table:
    fields = [
        f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(fields))


def last_rows(rows: pa.Table, layout: Layout) -> pa.Table:
    order = pc.sort_indices(rows, sort_keys=[("_seq", "descending")])
    rows = rows.take(order)
    keyed = rows.select(layout.keys).append_column("_row", pa.array(np.arange(len(rows))))
    last = keyed.group_by(layout.keys).aggregate([("_row", "min")]).column("_row_min")
    return rows if len(last) == len(rows) else rows.take(last)
