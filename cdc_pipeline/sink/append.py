"""Net inserts as plain appends: rows that no row of the target can stand in the way of (K12).

Rules:
- Inserts alone, into a target that is *exact*: what the source inserted was not there, so that it is not here either.
  `RecordedTarget.exact` says so; who clears it, and why, is in `position.cursor.TargetState` and `pipeline.targets`.
- The rows of a load are such inserts where its plan calls the target exact: each of its keys is read once.
- Any batch of whole images into a table that has had nothing but its own CREATE: there is no row at all.
- One commit with the batch's transaction id, as the MERGE's would be: after a crash it is not done twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc_pipeline.sink.delta_commit import TableCommit
from cdc_pipeline.sink.delta_log import TableLog
from cdc_pipeline.sink.expand import DELETE, INSERT, LEAVE
from cdc_pipeline.sink.manifest import BatchRecord, RecordedTarget
from cdc_pipeline.sink.merge_settings import MergeSettings
from cdc_pipeline.sink.reduce import Layout, reduced_sql
from cdc_pipeline.sink.shape import shaped_view
from cdc_pipeline.sink.sql import quoted
from cdc_pipeline.sink.tables import OP_COLUMN, SEQ_COLUMN, TS_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATED_VERSION: Final = 0  # of a table that its CREATE alone has committed to


def may_append(record: BatchRecord, target: RecordedTarget, there: TableLog) -> bool:
    """Whether no row of the target can have a key of the batch's rows."""
    if target.mode != "mirror" or not target.all_present or target.partial_key_updates:
        return False
    if there.version == CREATED_VERSION and there.transaction_version < 0:
        return True
    return target.exact and record.kind in ("batch", "load") and not target.rows_updated and not target.rows_deleted


def append(
    session: SparkSession,
    path: Path,
    target: RecordedTarget,
    files: list[Path],
    *,
    settings: MergeSettings,
    app_id: str,
    version: int,
) -> None:
    """Append the staged rows, reduced, in one commit with the transaction id `version`."""
    settings.small_batch()
    commit = TableCommit(session, path)
    if commit.transaction_version(app_id) >= version:
        return
    settings.large_batch(sum(file.size_bytes for file in target.files))
    frame = session.read.schema(Layout(target).read_schema()).parquet(*[str(file) for file in files])
    shaped_view(session, target, frame, "staged")
    session.sql(reduced_sql(session, target, target_table="")).createOrReplaceTempView("reduced")
    columns = [f"c{at} AS {quoted(column.name)}" for at, column in enumerate(target.columns)]
    operation = f"CASE WHEN _op = {INSERT} THEN 'insert' ELSE 'update' END AS {OP_COLUMN}"
    rows = session.table("reduced").where(f"_op NOT IN ({DELETE}, {LEAVE})")
    commit.append(rows.selectExpr(*columns, operation, f"_seq AS {SEQ_COLUMN}", f"_ts AS {TS_COLUMN}"))
    settings.small_batch()
    commit.commit(app_id=app_id, version=version)
