"""How a batch's staged rows reach a target's table: appended, marked and added by a commit of ours,
or by a statement of Spark's (K2, K10, K12).

Rules:
- However they do, it is one commit with the id of the batch's step 0: a repeated batch finds it.
- Each mode has one statement that applies a batch (`sink/modes/`). It changes a row only if its
  change is newer than the row: a batch that is applied again must not move a row back.
- Small batches of whole images of a mirror do the same without a MERGE (`upsert`); inserts whose
  keys no row has are appended (`append`). If the table is plain, neither needs a session.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.sink.apply.append import add_appended, inserts_only, may_append
from cdc_pipeline.sink.apply.executors import RunTasks
from cdc_pipeline.sink.apply.upsert import add_located, add_upserted
from cdc_pipeline.sink.delta.commit import MERGE_STEP, run_once, transaction_version
from cdc_pipeline.sink.delta.engine import PLAIN, SPARK, codec_of, engine_of
from cdc_pipeline.sink.delta.log import commit_note
from cdc_pipeline.sink.delta.plain_commit import PlainCommit, can_commit
from cdc_pipeline.sink.delta.table_log import TableLog
from cdc_pipeline.sink.modes.key_facts import KeyFacts
from cdc_pipeline.sink.modes.reduce import StagedFiles
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.spark.merge_settings import MergeSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Work(NamedTuple):
    """What a batch does to one target. For `check_lock` see `adopt`; `run` computes tasks on
    executors; `cut` is the last, where a target is replaced.
    """

    record: BatchRecord
    target: RecordedTarget
    files: list[Path]
    paths: LakePaths
    config: SinkConfig
    check_lock: Callable[[], None]
    run: RunTasks | None
    cut: Cut | None

    @property
    def path(self) -> Path:
        return self.paths.table(self.target.table)

    @property
    def note(self) -> str:
        return commit_note(self.target.app_id, self.record.batch_number)

    def has_rows(self, there: TableLog) -> bool:
        """Rows that the table does not have yet."""
        version = transaction_version(self.record.batch_number, MERGE_STEP)
        return bool(self.files) and there.transaction_version < version


def add_rows(work: Work, there: TableLog) -> TableLog | None:
    """By a commit of ours that needs no session; None if Spark must do it."""
    target, engine = work.target, engine_of(work.target.spec, there, work.config)
    if engine.rows or not can_commit(work.path, there):
        return None
    if (engine.changes and not inserts_only(target)) or KeyFacts(target, work.files).has_null:
        return None
    commit, codec = PlainCommit(work.path, there, note=work.note), codec_of(work.config)
    if may_append(work.record, target, there):
        is_done = add_appended(commit, target, lake=work.paths.lake, codec=codec, run=work.run)
    else:
        is_done = not engine.changes and add_upserted(commit, work.files, target, codec=codec)
    return _committed(work, commit, there) if is_done else None


def apply_rows(
    work: Work, session: SparkSession, there: TableLog, *, settings: MergeSettings
) -> str:
    """With Spark; the engine that committed them."""
    record, target, path, files = work.record, work.target, work.path, work.files
    mode = MODES[target.spec.mode]
    facts = KeyFacts(target, files) if target.spec.key and mode.has_key else None
    is_by_key = facts is not None and not facts.has_null and not mode.keeps_past
    appends = is_by_key and may_append(record, target, there)
    if (
        is_by_key
        and not appends
        and not engine_of(target.spec, there, work.config).changes
        and can_commit(path, there)
    ):
        commit = PlainCommit(path, there, note=work.note)
        if add_located(
            session,
            commit,
            files,
            target,
            predicate=None if facts is None else facts.predicate,
            settings=settings,
            codec=codec_of(work.config),
        ):
            _committed(work, commit, there)
            return PLAIN
    settings.large_batch(sum(file.size_bytes for file in target.files))
    staged = StagedFiles(session, path, target, files, facts, appends)
    statement = SINK_MODES[target.spec.mode].apply_sql(staged)
    run_once(session, statement, there, record, step=MERGE_STEP)
    return SPARK


def _committed(work: Work, commit: PlainCommit, there: TableLog) -> TableLog:
    version = transaction_version(work.record.batch_number, MERGE_STEP)
    return commit.commit(app_id=there.app_id, version=version)
