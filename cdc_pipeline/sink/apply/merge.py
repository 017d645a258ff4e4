"""Apply a recorded batch to one target. Idempotent: committed steps are skipped (K2, K10, K11,
K12, K13).

Rules:
- Each DML statement is a step with an id of its own (`sink/delta/commit.py`): the MERGE is step 0,
  those of a DDL follow (`sink/apply/schema_steps.py`).
  A batch has rows or a DDL for a target, never both.
- A table that has a later batch was not restored with the lake's state: it is refused.
- However staged rows reach a table, it is one commit with the id of step 0: a repeated batch finds
  it. Each mode has one statement that applies a batch (`sink/modes/`). It changes a row only if its
  change is newer than the row: a batch that is applied again must not move a row back.
- Small batches of whole images of a mirror do the same without a MERGE (`upsert`); inserts whose
  keys no row has are appended (`append`). If the table is plain, neither needs a session.
- Spark starts for the first target that needs it, and not at all if none does.
- A batch that brings a side table's content does nothing else to the target (`replace`). One that
  brings a renamed table's content may then change its columns, if one statement did both (K28).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError, LakeStateError, StagingError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.parquet import read_parquet
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.sink.apply.append import add_adopted, add_appended, may_append
from cdc_pipeline.sink.apply.erase import erase
from cdc_pipeline.sink.apply.executors import RunTasks
from cdc_pipeline.sink.apply.external_writes import is_restored, restore
from cdc_pipeline.sink.apply.roll_back_uncut import check_taken_back
from cdc_pipeline.sink.apply.schema_steps import are_done, run_steps
from cdc_pipeline.sink.apply.upsert import add_located, add_upserted
from cdc_pipeline.sink.delta.commit import (
    COMMIT_NOTE,
    MERGE_STEP,
    STEPS_PER_BATCH,
    run_once,
    transaction_version,
)
from cdc_pipeline.sink.delta.engine import PLAIN, SPARK, codec_of, engine_of
from cdc_pipeline.sink.delta.failures import failure_of
from cdc_pipeline.sink.delta.log import commit_note
from cdc_pipeline.sink.delta.plain_commit import PlainCommit, can_commit, write_due_checkpoint
from cdc_pipeline.sink.delta.table_checks import check_batch
from cdc_pipeline.sink.delta.table_log import TableLog, check_owner, read_table_log
from cdc_pipeline.sink.durable.retention import new_properties
from cdc_pipeline.sink.modes.reduce import StagedFiles, key_range
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import add_rescued_column, with_rescued_column
from cdc_pipeline.sink.modes.tables import create_table, create_without_spark
from cdc_pipeline.sink.replace.replace import adopt, is_replaced, replace_by_spark, replacing
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import set_properties_sql
from cdc_pipeline.sink.staging.staging import DATA_FILES, as_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Work(NamedTuple):
    """`run` computes tasks on executors; `cut` is the last."""

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

    @property
    def has_data_files(self) -> bool:
        """Staged ones, which the table may adopt."""
        return any(file.path.endswith(DATA_FILES) for file in self.target.files)

    def with_rows(self) -> Work:
        if not self.has_data_files:
            return self
        lake, spec = self.paths.lake, self.target.spec
        files = tuple(as_rows(file, spec, lake=lake) for file in self.target.files)
        target = self.target.model_copy(update={"files": files})
        return self._replace(target=target, files=[lake / file.path for file in files])

    def has_rows(self, there: TableLog) -> bool:
        version = transaction_version(self.record.batch_number, MERGE_STEP)
        return bool(self.files) and there.transaction_version < version


def add_rows(work: Work, there: TableLog) -> TableLog | None:
    target, engine = work.target, engine_of(work.target.spec, there, work.config)
    if engine.rows or not can_commit(work.path, there):
        return None
    codec = codec_of(work.config)
    if work.has_data_files:
        commit = PlainCommit(work.path, there, note=work.note)
        is_done = may_append(work.record, target, there) and add_adopted(
            commit, target, lake=work.paths.lake, codec=codec
        )
        if is_done:
            reach("before_adopted")
            work.check_lock()
            return _committed(work, commit, there)
        work = work.with_rows()
        target = work.target
    if engine.changes and not target.keys_come_once:
        return None
    commit = PlainCommit(work.path, there, note=work.note)
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
    within = key_range(target, files) if target.spec.key else None
    is_by_key = bool(target.spec.key) and not mode.keeps_past
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
            predicate=within,
            settings=settings,
            codec=codec_of(work.config),
        ):
            _committed(work, commit, there)
            return PLAIN
    settings.large_batch(sum(file.size_bytes for file in target.files))
    staged = StagedFiles(session, path, target, files, within, appends)
    statement = SINK_MODES[target.spec.mode].apply_sql(staged)
    run_once(session, statement, there, record, step=MERGE_STEP)
    return SPARK


def _committed(work: Work, commit: PlainCommit, there: TableLog) -> TableLog:
    version = transaction_version(work.record.batch_number, MERGE_STEP)
    return commit.commit(app_id=there.app_id, version=version)


def applied_log(
    record: BatchRecord, target: RecordedTarget, *, paths: LakePaths, cut: Cut | None = None
) -> TableLog | None:
    """If it has the batch; needs no JVM. LakeStateError: as `check_owner` and `check_batch`."""
    path = paths.table(target.table)
    there = read_table_log(path)
    if there is None or not _has_batch(record, target, there, path=path):
        return None
    check_batch(paths, cut, record, target, there)
    return there


def _has_batch(record: BatchRecord, target: RecordedTarget, there: TableLog, *, path: Path) -> bool:
    if target.content is not None:
        done = is_replaced(there, record, target, path=path)
        return done and are_done(there, record, target)
    if target.replaces and there.app_id == target.replaces:
        return False
    check_owner(there, target.table, target.app_id, path=path)
    _check_order(record, target, there)
    if target.restores >= 0:
        return is_restored(path, record, target, there)
    if target.files:
        return there.transaction_version >= transaction_version(record.batch_number, MERGE_STEP)
    return are_done(there, record, target)


def _check_order(record: BatchRecord, target: RecordedTarget, there: TableLog) -> None:
    newest = there.transaction_version // STEPS_PER_BATCH
    has_id = target.restores < 0  # RESTORE commits none
    if newest > record.batch_number or (newest == record.batch_number and not has_id):
        raise LakeStateError(
            "the table has a batch that comes after this one: the lake's state was restored from a "
            "backup, and the table was not",
            table=target.table,
            expected=f"batch {record.batch_number} or an earlier one",
            got=f"batch {newest}",
            next_step="restore the lake's newest state, or take a new snapshot of the table",
        )


def apply_target(
    session_of: Callable[[], SparkSession],
    record: BatchRecord,
    target: RecordedTarget,
    *,
    paths: LakePaths,
    config: SinkConfig,
    check_lock: Callable[[], None] = lambda: None,
    run: RunTasks | None = None,
    cut: Cut | None = None,
) -> TableLog:
    """Bring one target to the state after the batch and return its log. Safe to call again, and
    from several threads for different targets. Raises StagingError: a staged file is not as
    recorded; LakeStateError: the table is not the record's, or another program has written to it;
    ConcurrentWriterError: another run has written to a table that is being caught up; MergeError.
    """
    target = with_rescued_column(target)
    files = [verify(file, lake=paths.lake, table=target.table) for file in target.files]
    check_taken_back(paths, record, target)
    work = Work(record, target, files, paths, config, check_lock, run, cut)
    try:
        there = None if config.engine == SPARK else _without_spark(work)
        if there is not None:
            return replace(there, engine=PLAIN)
        engine = _with_spark(work, new_session(session_of()))
        return replace(_checked_table(work), engine=engine)
    except CdcError:
        raise
    except Exception as error:
        number = record.batch_number
        raise failure_of(error, table=target.table, batch_number=number) from None


def _without_spark(work: Work) -> TableLog | None:
    """What commits made here can do of it. None if what is left to do is Spark's."""
    path, record, target = work.path, work.record, work.target
    properties = new_properties(work.config)
    if target.content is not None:
        content = replacing(
            path, record, target, paths=work.paths, cut=work.cut, properties=properties
        )
        if content is not None and not adopt(content, note=work.note, check_lock=work.check_lock):
            return None
        there = _checked_table(work)
        if content is not None and not there.needs_spark:
            write_due_checkpoint(path, there)
        return there if are_done(there, record, target) else None
    if target.replaces or target.restores >= 0 or target.erases or target.schema_steps:
        return None
    if target.create and read_table_log(path) is None:
        fixed = work.config.spark.settings
        is_created = create_without_spark(
            path, target, source=record.source, properties=properties, fixed=fixed, note=work.note
        )
        if not is_created:
            return None
    there = _checked_table(work, is_new=False)  # a commit of ours is based on this very version
    if _missing_properties(target, there):
        return None
    return add_rows(work, there) if work.has_rows(there) else there


def _with_spark(work: Work, session: SparkSession) -> str:
    work = work.with_rows()
    path, record, target = work.path, work.record, work.target
    properties = new_properties(work.config)
    settings = MergeSettings(session, work.config.spark.settings)
    session.conf.set(COMMIT_NOTE, work.note)
    if target.content is not None:
        content = replacing(
            path, record, target, paths=work.paths, cut=work.cut, properties=properties
        )
        if content is not None:
            replace_by_spark(session, content, settings=settings, check_lock=work.check_lock)
        run_steps(session, path, record, target, _table(work))
        return SPARK
    if target.create or target.replaces:
        create_table(session, path, target, source=record.source, properties=properties)
    if target.restores >= 0:  # what others have written
        restore(session, path, record, target, _table(work))
        return SPARK
    there = _checked_table(work)
    missing = _missing_properties(target, there)
    if missing:
        session.sql(set_properties_sql(path, missing))
        there = _table(work)
    if target.erases:
        erase(session, path, record, target, there, keys=read_parquet(work.files[0]))
        return SPARK
    if add_rescued_column(session, path, there, target):
        there = _table(work)
    if work.files and target.schema_steps:
        raise StagingError(
            "a batch has both a change of a target's columns and rows of it", table=target.table
        )
    run_steps(session, path, record, target, there)
    return apply_rows(work, session, there, settings=settings) if work.has_rows(there) else SPARK


def _missing_properties(target: RecordedTarget, there: TableLog) -> dict[str, str]:
    """Delta knows its own names in any case, and keeps them as it writes them."""
    present = {name.lower(): value for name, value in there.properties.items()}
    wanted = target.spec.properties.items()
    return {name: value for name, value in wanted if present.get(name.lower()) != value}


def _table(work: Work, *, is_new: bool = True) -> TableLog:
    target, there = work.target, read_table_log(work.path, is_new=is_new)
    if there is None:
        raise LakeStateError(
            "the target's Delta table is gone",
            table=target.table,
            expected=f"a Delta table in {work.path}",
            next_step="restore the table from a backup of the lake, or start over with a new lake",
        )
    check_owner(there, target.table, target.app_id, path=work.path)
    return there


def _checked_table(work: Work, *, is_new: bool = True) -> TableLog:
    there = _table(work, is_new=is_new)
    check_batch(work.paths, work.cut, work.record, work.target, there)
    return there
