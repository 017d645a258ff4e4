"""Turn the staged rows of a keyed mirror into rows of its table, in Arrow, for `data_file` to write
if Spark is not needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.lake.parquet import read_parquet
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.data_file import (
    DataLayout,
    data_layout,
    plain_type,
    write_data_files,
)
from cdc_pipeline.sink.delta.plain_commit import PlainCommit
from cdc_pipeline.sink.delta.table_log import TableLog
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE
from cdc_pipeline.sink.modes.mode_columns import CDC_COLUMNS, OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.shape import needs_shaping

ROWS_MAX: Final = 500_000
_BYTES_MAX: Final = 64 << 20


def may_reduce_in_memory(target: RecordedTarget) -> bool:
    return (
        sum(file.rows for file in target.files) <= ROWS_MAX
        and sum(file.size_bytes for file in target.files) <= _BYTES_MAX
    )


@dataclass(frozen=True)
class MirrorFiles:
    target: RecordedTarget
    path: Path
    layout: DataLayout

    def write(self, pieces: Iterable[pa.Table]) -> list[dict[str, Any]]:
        """The ``add`` actions of rows with each key once. Raises as `write_data_files`."""
        rows = (mirror_rows(piece, self.target.spec) for piece in pieces)
        return write_data_files(self.path, rows, self.layout)


def mirror_files(commit: PlainCommit, target: RecordedTarget, *, codec: str) -> MirrorFiles | None:
    layout = mirror_layout(target.spec, commit.there, codec=codec)
    return None if layout is None else MirrorFiles(target, commit.path, layout)


def mirror_layout(spec: TargetSpec, there: TableLog, *, codec: str) -> DataLayout | None:
    """None if the table's files are Spark's to write."""
    types: dict[str, pa.DataType] = {}
    for column in (*spec.columns, *CDC_COLUMNS):  # our own last
        kind = plain_type(column.delta_type)
        if kind is None or there.columns.get(column.name) != column.delta_type:
            return None
        types[column.name] = kind
    if needs_shaping(spec):
        return None
    # The next lookup needs bounds of these, in wide tables too.
    bounded = (*spec.key, SEQ_COLUMN)
    return data_layout(
        types, properties=there.properties, mapped=there.mapped, bounded=bounded, codec=codec
    )


def mirror_rows(staged: pa.Table, spec: TargetSpec) -> pa.Table:
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
        for at, column in enumerate(spec.columns)
    }
    return pa.table(
        {
            **columns,
            OP_COLUMN: operation,
            SEQ_COLUMN: staged.column("_seq"),
            TS_COLUMN: staged.column("_ts"),
        }
    )


def staged_rows(rows: pa.Table) -> pa.Table:
    """What `mirror_rows` has made of staged inserts, as they were staged; columns by place."""
    *values, _, seq, ts = rows.columns
    op = pa.array(np.full(len(rows), INSERT, np.int8))
    named = {f"c{at}": column for at, column in enumerate(values)}
    return pa.table({"_op": op, "_seq": seq, "_ts": ts, **named})


def staged_pieces(files: list[Path]) -> Iterator[pa.Table]:
    for file in files:
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            for group in range(opened.num_row_groups):
                yield opened.read_row_group(group)


def _plain(table: pa.Table) -> pa.Table:
    fields = [
        f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(fields))


def last_rows(files: list[Path], layout: Layout) -> pa.Table:
    """The last row of each key in staged files, by seq; columns that one lacks are NULL."""
    tables = [_plain(read_parquet(file)) for file in files]
    rows = pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
    rows = rows.sort_by("_seq")
    keyed = rows.select(layout.keys).append_column("_row", pa.array(np.arange(len(rows))))
    last = keyed.group_by(layout.keys).aggregate([("_row", "max")]).column("_row_max")
    return rows if len(last) == len(rows) else rows.take(np.sort(last))
