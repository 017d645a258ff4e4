"""Find commits of other programs in a target's Delta table, and undo them (K3: a cut names exactly
what its tables hold).

Rules:
- After the version of the last cut a target holds only our own and maintenance commits. Any other
  commit stops the target.
- The undo is a separate batch: RESTORE to the version of the cut, which is a commit like any other,
  with the batch's note, so that a repeated one does nothing. The table then holds exactly what the
  cut says, in every mode. Delta keeps the transaction ids that the table has; no batch number
  occurs twice, so no replay is skipped because of them.
- No undo is possible if the table is gone, was created again or set back, or if the rows of that
  version are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.sink.delta import table_checks
from cdc_pipeline.sink.delta.log import commits_after, newest_change
from cdc_pipeline.sink.delta.table_log import TableLog, read_table_log
from cdc_pipeline.sink.read.cuts import is_readable
from cdc_pipeline.sink.read.read import old_commits_readable
from cdc_pipeline.sink.spark.sql import table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ExternalWrite:
    """`versions`: other programs' commits after the cut's, by operation; `newest`: the version now,
    -1 if the table is gone.
    """

    table: str
    error: LakeStateError
    versions: Mapping[int, str] = field(default_factory=dict)
    newest: int = -1
    is_restorable: bool = False


def find_external_write(
    paths: LakePaths, cut: Cut, name: str, pending: BatchRecord | None = None
) -> ExternalWrite | None:
    try:
        table_checks.check_target(paths, cut, name, pending)
        return None
    except LakeStateError as error:
        lake_error = error
    path, table, app_id = paths.table(name), cut.tables.get(name), cut.cursor.targets[name].app_id
    try:
        there = read_table_log(path)
    except LakeStateError:  # it is what was lake_error
        there = None
    if (
        table is None
        or there is None
        or there.app_id != app_id
        or there.version <= table.table_version
    ):
        return ExternalWrite(name, lake_error, newest=-1 if there is None else there.version)
    versions = {
        commit.version: commit.operation
        for commit in commits_after(path, table.table_version, there.version)
        if commit.user_metadata.get("cdc_app_id") != app_id and not commit.is_maintenance(app_id)
    }
    restorable = bool(versions) and is_readable(paths, cut, name)
    return ExternalWrite(name, lake_error, versions, there.version, restorable)


def is_restored(path: Path, record: BatchRecord, target: RecordedTarget, there: TableLog) -> bool:
    """Its commit has no transaction id. If the lake's state was put back, a commit of an earlier
    batch may have its number: it counts if it put the same rows back, and nothing has come after
    it.
    """
    commit = newest_change(path, there.version)
    return (
        commit is not None
        and commit.restored == target.restores
        and commit.batch_of(target.app_id) == record.batch_number
    )


def restore(
    session: SparkSession, path: Path, record: BatchRecord, target: RecordedTarget, there: TableLog
) -> None:
    if is_restored(path, record, target, there):
        return
    with old_commits_readable(session):
        session.sql(
            f"RESTORE TABLE {table_at(path)} TO VERSION AS OF {int(target.restores)}"
        ).collect()
