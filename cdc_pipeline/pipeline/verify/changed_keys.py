"""Find the keys of a table that changed in a stretch of the source's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.pipeline.capture.suspension import plan_to_cursor
from cdc_pipeline.pipeline.decode.schemas import schemas_of
from cdc_pipeline.pipeline.inspect.change_log import ChangeLog
from cdc_pipeline.pipeline.inspect.selection import Selection
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.live.live import LiveSource
from cdc_pipeline.text.table_names import exact_pattern
from cdc_pipeline.transaction.table_maps import TableMaps


def changed_keys(
    config: PipelineConfig,
    live: LiveSource,
    schema: TableSchema,
    key: tuple[str, ...],
    *,
    cursor: CursorState,
    end: Position,
) -> pa.Table:
    """Return the old and new keys of all rows changed by row events between `cursor` and `end`.

    Rows of transactions prepared before `cursor` are not included.

    Args:
        schema: of the table; there must be no DDL in between.
        key: names of its columns.

    Raises:
        SourceError, BinlogError: reading the log failed.
    """
    start = cursor.position
    run = ResolvedRun(
        plan=plan_to_cursor(config, cursor), start=start, end=end, limit=None, ends_anywhere=False, epoch=cursor.epoch
    )
    schemas = schemas_of(config, source=live, run=run, cursor=cursor)
    selection = Selection(tables=(exact_pattern(schema.full_name),))
    log = ChangeLog(selection, table_maps=lambda wants: TableMaps(wants, schemas=schemas))
    found: list[pa.RecordBatch] = []
    if start.order < end.order:
        with closing(cast(Any, live.chunks(start, end))) as chunks:
            for chunk in chunks:
                for piece in log.feed(chunk):
                    for _, rows in piece.decoded():
                        found += _keys(rows.before, key)
                        found += _keys(rows.after, key)
    log.finish()
    empty = pa.schema([pa.field(name, _type_of(schema, name)) for name in key])
    return pa.Table.from_batches(found, schema=empty)


def _keys(image: pa.RecordBatch, key: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    yield image.select(list(key))


def _type_of(schema: TableSchema, name: str) -> pa.DataType:
    return arrow_type(schema.columns[schema.column_names.index(name)])


def among(rows: pa.Table, keys: pa.Table, key: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which rows have one of the given keys: bool (n,)."""
    names = [f"k{at}" for at in range(len(key))]
    left = rows.select(list(key)).rename_columns(names).append_column("at", pa.array(np.arange(rows.num_rows)))
    right = keys.select(list(key)).rename_columns(names)
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[left.join(right, keys=names, join_type="left semi").column("at").to_numpy()] = True
    return mask
