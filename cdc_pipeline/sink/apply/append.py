"""Apply net inserts as plain appends, if no row of the target can have their keys (K12: only an
exact target proves that).

Rules:
- A batch of inserts alone, into an *exact* target: a row that the source inserted did not exist
  there, so it does not exist here either. `RecordedTarget.exact` says so; who clears it, and why,
  is in `position.cursor.TargetState` and `pipeline.targets`.
- The rows of a load are such inserts if its plan calls the target exact: each key is read once.
- Any batch of whole images into a table that only its own CREATE has committed to: it has no rows.
- One commit with the batch's transaction id, as the MERGE's would be: after a crash it is not
  repeated.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.sink.apply.executors import RunTasks
from cdc_pipeline.sink.apply.mirror_files import MirrorFiles
from cdc_pipeline.sink.apply.mirror_rows import may_reduce_in_memory, plain_types
from cdc_pipeline.sink.delta.commit import TableCommit
from cdc_pipeline.sink.delta.data_file import CODEC
from cdc_pipeline.sink.delta.log import TableLog
from cdc_pipeline.sink.delta.plain_commit import PlainCommit
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE
from cdc_pipeline.sink.modes.reduce import Layout, reduced_sql
from cdc_pipeline.sink.modes.shape import needs_shaping, shaped_view
from cdc_pipeline.sink.modes.tables import OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CREATED_VERSION: Final = 0  # of a table that only its CREATE has committed to


def may_append(record: BatchRecord, target: RecordedTarget, there: TableLog) -> bool:
    if not target.all_present or target.partial_key_updates:
        return False
    if there.version == _CREATED_VERSION and there.transaction_version < 0:
        return True
    return (
        target.exact
        and record.kind in ("batch", "load")
        and not target.rows_updated
        and not target.rows_deleted
    )


def append(
    session: SparkSession,
    path: Path,
    target: RecordedTarget,
    files: list[Path],
    *,
    settings: MergeSettings,
    there: TableLog,
    version: int,
    lake: Path,
    run: RunTasks | None = None,
) -> None:
    """Append the staged rows, reduced, in one commit; `run` computes tasks on executors."""
    settings.small_batch()
    commit = TableCommit(session, path)
    if commit.has_transaction(there.app_id, version, there=there):
        return
    codec = settings.codec or CODEC
    if add_appended(commit, path, target, there, lake=lake, codec=codec, run=run):
        commit.commit(app_id=there.app_id, version=version)
        return
    settings.large_batch(sum(file.size_bytes for file in target.files))
    frame = session.read.schema(Layout(target).read_schema()).parquet(
        *[str(file) for file in files]
    )
    shaped_view(session, target, frame, "staged")
    session.sql(reduced_sql(session, target, target_table="")).createOrReplaceTempView("reduced")
    columns = [f"c{at} AS {quoted(column.name)}" for at, column in enumerate(target.spec.columns)]
    operation = f"CASE WHEN _op = {INSERT} THEN 'insert' ELSE 'update' END AS {OP_COLUMN}"
    rows = session.table("reduced").where(f"_op NOT IN ({DELETE}, {LEAVE})")
    commit.append(
        rows.selectExpr(*columns, operation, f"_seq AS {SEQ_COLUMN}", f"_ts AS {TS_COLUMN}")
    )
    settings.small_batch()
    commit.commit(app_id=there.app_id, version=version)


def add_appended(
    commit: TableCommit | PlainCommit,
    path: Path,
    target: RecordedTarget,
    there: TableLog,
    *,
    lake: Path,
    codec: str,
    run: RunTasks | None,
) -> bool:
    """Write the staged rows of a plain table with Arrow and add their files to the commit.
    False, with nothing written, if Spark must do it.
    """
    types = plain_types(target, there, codec=codec)
    if types is None or needs_shaping(target) or commit.version != there.version:
        return False
    # a primary key is not inserted twice without a delete
    is_reduced = not target.rows_updated and not target.rows_deleted
    if not is_reduced and not may_reduce_in_memory(target):
        return False
    files = MirrorFiles(target, path, types, there.properties, codec=codec, is_reduced=is_reduced)
    for add in files.write(lake=lake, run=run):
        commit.add_file(add)
    return True
