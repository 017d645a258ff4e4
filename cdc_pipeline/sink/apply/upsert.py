"""Upsert without MERGE: find the batch's keys once, delete the matching rows with deletion vectors,
append the new ones (K10, K11).

If every image is complete, the new row of a key needs nothing of the old one: the old row, if there
is one, is marked as deleted, and the new one is written beside it. All that is needed of the target
is where the batch's keys are.

Rules:
- A row changes only if the change is newer: the highest seq of a file, by its statistics, is below
  the batch's lowest. If they do not prove it, each row's seq is read, and a change that is not
  newer than its row neither marks nor adds anything.
- The batch is reduced in memory, so it must be small; keys are compared by value here and by Spark,
  so their types must be such that both mean the same by "equal". MERGE handles everything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.errors import StagingError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.apply.key_lookup import rows_with_keys
from cdc_pipeline.sink.delta.plain_commit import PlainCommit, can_mark
from cdc_pipeline.sink.delta.replay import DataFile, data_files
from cdc_pipeline.sink.modes.mirror_rows import (
    MirrorFiles,
    last_rows,
    may_reduce_in_memory,
    mirror_files,
)
from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _files(commit: PlainCommit, target: RecordedTarget, codec: str) -> MirrorFiles | None:
    """None if this module may not apply the target's rows."""
    is_suited = target.all_present and may_reduce_in_memory(target)
    return mirror_files(commit, target, codec=codec) if is_suited else None


def add_upserted(
    commit: PlainCommit, staged: list[Path], target: RecordedTarget, *, codec: str
) -> bool:
    """Look up keys, write the last row of each. False, with nothing added, if Spark must do it."""
    files, there = _files(commit, target, codec), commit.there
    if files is None:
        return False
    rows = last_rows(staged, Layout(target))
    names = zip(target.spec.key, Layout(target).keys, strict=True)
    at = {there.physical(name): rows.column(key) for name, key in names}
    schema = files.layout.schema
    keys = pa.table({name: column.cast(schema.field(name).type) for name, column in at.items()})
    lowest = int(pc.min(rows.column("_seq")).as_py())
    rows_by_file = rows_with_keys(
        commit.path, there.version, keys, seq_column=there.physical(SEQ_COLUMN), lowest_seq=lowest
    )
    if rows_by_file is None or not can_mark([file for file, _ in rows_by_file]):
        return False
    commit.mark_deleted(rows_by_file)
    commit.add_files(files.write([rows]))
    return True


def add_located(
    session: SparkSession,
    commit: PlainCommit,
    staged: list[Path],
    target: RecordedTarget,
    *,
    predicate: str | None,
    settings: MergeSettings,
    codec: str,
) -> bool:
    """As `add_upserted`, where Spark finds the keys: the table is too large to look here, or may
    have rows newer than their changes. `predicate` (SQL) holds for every row with one of the keys.
    """
    files, path, there = _files(commit, target, codec), commit.path, commit.there
    if files is None:
        return False
    rows = last_rows(staged, Layout(target))
    settings.lookup()
    with old_commits_readable(session):
        frame = table_frame(session, path, version=there.version)
        frame = frame if predicate is None else frame.where(predicate)
        locations = _row_locations(session, frame, rows, target)
        names = pc.unique(locations.column("file")).to_pylist()
        marked = data_files(path, there.version, names=set(names))
        if marked is None or not can_mark(marked):
            return False
        by_name = {file.name.rpartition("/")[2]: file for file in marked}
        if set(names) - by_name.keys():
            raise StagingError(
                "files of the table's snapshot are not in its log", table=target.table, got=names
            )
        stale = np.zeros(len(rows), np.bool_)
        lowest, seq_column = int(pc.min(rows.column("_seq")).as_py()), there.physical(SEQ_COLUMN)
        if not all(file.is_below(seq_column, lowest) for file in by_name.values()):
            locations = _row_locations(session, frame, rows, target, with_seq=True)
            row_seqs = rows.column("_seq").take(locations.column("_row"))
            newer = pc.greater(row_seqs, locations.column("seq"))
            stale[locations.filter(pc.invert(newer)).column("_row").to_numpy()] = True
            locations = locations.filter(newer)
    commit.mark_deleted(_by_file(locations, by_name))
    commit.add_files(files.write([rows.filter(pa.array(~stale))]))
    return True


def _row_locations(
    session: SparkSession,
    frame: DataFrame,
    rows: pa.Table,
    target: RecordedTarget,
    *,
    with_seq: bool = False,
) -> pa.Table:
    """``_row`` (index in `rows`), ``file``, ``index`` (of the row in it), `with_seq` ``seq``."""
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
