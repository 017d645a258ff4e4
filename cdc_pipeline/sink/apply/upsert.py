"""Upsert without MERGE: find the batch's keys once, delete the matching rows with deletion vectors,
append the new ones (K10, K11).

If every image is complete, the new row of a key needs nothing of the old one: the old row, if there
is one, is marked as deleted, and the new one is written beside it. All that is needed of the target
is where the batch's keys are.

Rules:
- One commit with the batch's transaction id, as the MERGE's would be (see `sink/delta/commit.py`).
- A row changes only if the change is newer, so that a batch that is applied again moves no row
  back: the highest seq of a file, by its statistics, is below the batch's lowest. If they do not
  prove it, each row's seq is read, and a change that is not newer than its row neither marks nor
  adds anything.
- The batch is reduced in memory, so it must be small; keys are compared by value here and by Spark,
  so their types must be such that both mean the same by "equal". MERGE handles everything else
  (`suits`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.errors import StagingError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.apply.key_lookup import rows_with_keys
from cdc_pipeline.sink.apply.mirror_rows import (
    last_rows,
    may_reduce_in_memory,
    mirror_rows,
    plain_types,
    read_staged,
)
from cdc_pipeline.sink.delta.active_files import DataFile
from cdc_pipeline.sink.delta.commit import TableCommit
from cdc_pipeline.sink.delta.data_file import CODEC, write_data_files
from cdc_pipeline.sink.delta.log import TableLog
from cdc_pipeline.sink.delta.plain_commit import PlainCommit
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.shape import needs_shaping
from cdc_pipeline.sink.modes.tables import OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.spark.merge_settings import (
    INTERPRETED_BYTES_MAX,
    INTERPRETED_ROWS_MAX,
    MergeSettings,
)
from cdc_pipeline.sink.spark.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Features that the table's owner may have switched on and that a commit made here does not support.
_UNKNOWN_PROPERTIES: Final = re.compile(
    r"delta\.(enableRowTracking|enableChangeDataFeed|constraints\..*|appendOnly|"
    r"enableIcebergCompat.*|universalFormat.*)"
)


def suits(target: RecordedTarget, there: TableLog) -> bool:
    """Whether this module may apply the target's rows."""
    odd = [
        name
        for name, value in there.properties.items()
        if value != "false" and _UNKNOWN_PROPERTIES.fullmatch(name)
    ]
    return (
        not needs_shaping(target)
        and (target.spec.shape is None or not target.spec.shape.partition_by)
        and target.all_present
        and may_reduce_in_memory(target)
        and there.properties.get("delta.enableDeletionVectors") == "true"
        and not odd
    )


def upsert(
    session: SparkSession,
    path: Path,
    target: RecordedTarget,
    files: list[Path],
    *,
    settings: MergeSettings,
    predicate: str | None,
    there: TableLog,
    version: int,
) -> None:
    """Every row with one of the batch's keys satisfies `predicate` (SQL)."""
    app_id = there.app_id
    settings.small_batch()
    commit = TableCommit(session, path)
    if commit.has_transaction(app_id, version, there=there):
        return
    layout = Layout(target)
    rows = last_rows(read_staged(files), layout)
    if add_upserted(commit, path, rows, target, there, codec=settings.codec or CODEC):
        commit.commit(app_id=app_id, version=version)
        return
    frame = commit.scan(predicate)
    settings.interpret(commit.scanned_bytes <= INTERPRETED_BYTES_MAX)
    locations = _row_locations(session, frame, rows, target)
    stale = np.zeros(len(rows), np.bool_)
    if locations.num_rows:
        settings.interpret(True)
        names = pc.unique(locations.column("file")).to_pylist()
        data_files = commit.data_files(names)
        if set(names) - data_files.keys() or any(file.rows is None for file in data_files.values()):
            raise StagingError(
                "files of the table's snapshot are not in its log", table=target.table, got=names
            )
        lowest = int(pc.min(rows.column("_seq")).as_py())
        if not all(_is_older(file, lowest) for file in data_files.values()):
            settings.interpret(commit.scanned_bytes <= INTERPRETED_BYTES_MAX)
            locations = _row_locations(session, frame, rows, target, with_seq=True)
            row_seqs = rows.column("_seq").take(locations.column("_row"))
            newer = pc.greater(row_seqs, locations.column("seq"))
            stale[locations.filter(pc.invert(newer)).column("_row").to_numpy()] = True
            locations = locations.filter(newer)
        commit.mark_deleted(_by_file(locations, data_files))
    op = rows.column("_op").to_numpy()
    added = rows.filter(pa.array(~stale & (op != DELETE) & (op != LEAVE)))
    if len(added):
        settings.interpret(len(added) <= INTERPRETED_ROWS_MAX)
        commit.append(_new_rows(session, added, target))
    settings.interpret(True)
    commit.commit(app_id=app_id, version=version)


def add_upserted(
    commit: TableCommit | PlainCommit,
    path: Path,
    rows: pa.Table,
    target: RecordedTarget,
    there: TableLog,
    *,
    codec: str,
) -> bool:
    """Look up keys and write rows (the last of each key) of a plain table with Arrow, and add
    the result to the commit. False, with nothing added, if Spark must do it.
    """
    types = plain_types(target, there, codec=codec)
    if types is None or commit.version != there.version:
        return False
    names = zip(target.spec.key, Layout(target).keys, strict=True)
    keys = pa.table({name: rows.column(key).cast(types[name]) for name, key in names})
    lowest = int(pc.min(rows.column("_seq")).as_py())
    rows_by_file = rows_with_keys(path, there.version, keys, lowest_seq=lowest)
    if rows_by_file is None or not commit.can_mark([file for file, _ in rows_by_file]):
        return False
    commit.read_whole_table()
    commit.mark_deleted(rows_by_file)
    bounded = (*target.spec.key, SEQ_COLUMN)  # the next lookup needs them, in wide tables too
    for add in write_data_files(
        path,
        [mirror_rows(rows, target)],
        types,
        properties=there.properties,
        bounded=bounded,
        codec=codec,
    ):
        commit.add_file(add)
    return True


def _row_locations(
    session: SparkSession,
    frame: DataFrame | None,
    rows: pa.Table,
    target: RecordedTarget,
    *,
    with_seq: bool = False,
) -> pa.Table:
    """Where the target has the rows' keys: ``_row`` (index in `rows`), ``file``, ``index`` (of
    the row in it), and with `with_seq` ``seq``.
    """
    if frame is None:
        return pa.table({"_row": pa.array([], pa.int64()), "file": pa.array([], pa.string())})
    layout = Layout(target)
    keys = rows.select(layout.keys).append_column("_row", pa.array(np.arange(len(rows))))
    there = [f"{quoted(name)} AS k{at}" for at, name in enumerate(target.spec.key)]
    there += ["_metadata.file_name AS file", "_metadata.row_index AS index"]
    if with_seq:
        there.append(f"{SEQ_COLUMN} AS seq")
    wanted: Any = session.createDataFrame(
        keys.rename_columns([*(f"k{at}" for at in range(len(target.spec.key))), "_row"])
    )
    joined = frame.selectExpr(*there).join(
        wanted.hint("broadcast"), [f"k{at}" for at in range(len(target.spec.key))]
    )
    names = ["_row", "file", "index", *(["seq"] if with_seq else [])]
    locations: pa.Table = joined.select(*names).toArrow()
    return locations


def _is_older(file: DataFile, seq: int) -> bool:
    """Whether statistics prove that all rows of a file have a seq below `seq`."""
    highest = file.statistics.get("maxValues", {}).get(SEQ_COLUMN)
    return isinstance(highest, int) and highest < seq


def _by_file(
    found: pa.Table, files: dict[str, DataFile]
) -> list[tuple[DataFile, NDArray[np.int64]]]:
    names = found.column("file").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    index = found.column("index").to_numpy()
    return [
        (files[name], index[codes == code])
        for code, name in enumerate(names.dictionary.to_pylist())
    ]


def _new_rows(session: SparkSession, rows: pa.Table, target: RecordedTarget) -> Any:
    """In one partition."""
    from pyspark.sql import functions

    operation = pc.if_else(pc.equal(rows.column("_op"), INSERT), "insert", "update")
    names = rows.column_names
    columns = {
        column.name: rows.column(f"c{at}") if f"c{at}" in names else pa.nulls(len(rows))
        for at, column in enumerate(target.spec.columns)
    }
    table = pa.table(
        [*columns.values(), operation, rows.column("_seq"), rows.column("_ts")],
        names=[f"v{at}" for at in range(len(columns) + 3)],
    )
    frame: Any = session.createDataFrame(table)
    types = [*((column.name, column.delta_type) for column in target.spec.columns)]
    types += [(OP_COLUMN, "string"), (SEQ_COLUMN, "decimal(38,0)"), (TS_COLUMN, "timestamp")]
    return frame.select(
        *[functions.col(f"v{at}").cast(kind).alias(name) for at, (name, kind) in enumerate(types)]
    ).coalesce(1)
