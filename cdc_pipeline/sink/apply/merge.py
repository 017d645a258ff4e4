"""Apply a recorded batch to one target. Idempotent: committed steps are skipped (K2, K10, K11,
K13).

Rules:
- Each DML statement is a step with an id of its own (`sink/delta/commit.py`): the MERGE is step 0,
  those of a DDL follow (`sink/apply/schema_steps.py`).
  A batch has rows or a DDL for a target, never both.
- Each mode has one statement that applies a batch (`sink/modes/`). It changes a row only if its
  change is newer than the row: a batch that is applied again must not move a row back.
- A table that has a later batch than the one to apply was not restored with the lake's state. Its
  transaction ids would hide this batch, so it is refused.
- Small batches of whole images of a mirror do the same without a MERGE (`upsert`); inserts whose
  keys no row has are appended (`append`). If the table is plain, neither needs a session: Spark
  starts for the first target that needs it, and not at all if none does.
- A batch that brings a side table's content does nothing else to the target (`replace`). One that
  brings a renamed table's content may then change its columns, if one statement did both (K28).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError, LakeStateError, StagingError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.sink.apply.append import add_appended, append_sql, inserts_only, may_append
from cdc_pipeline.sink.apply.executors import RunTasks
from cdc_pipeline.sink.apply.external_writes import is_restored, restore
from cdc_pipeline.sink.apply.mirror_rows import last_rows, read_staged
from cdc_pipeline.sink.apply.roll_back_uncut import check_taken_back
from cdc_pipeline.sink.apply.schema_steps import are_done, has_steps, run_steps
from cdc_pipeline.sink.apply.upsert import add_located, add_upserted, suits_upsert
from cdc_pipeline.sink.delta.commit import (
    MERGE_STEP,
    STEPS_PER_BATCH,
    run_once,
    transaction_version,
)
from cdc_pipeline.sink.delta.engine import PLAIN, SPARK, codec_of, engine_of
from cdc_pipeline.sink.delta.failures import failure_of
from cdc_pipeline.sink.delta.log import (
    TableLog,
    check_owner,
    commit_note,
    newest_change,
    read_table_log,
)
from cdc_pipeline.sink.delta.plain_commit import PlainCommit, can_commit, write_due_checkpoint
from cdc_pipeline.sink.durable.retention import new_properties
from cdc_pipeline.sink.modes.key_facts import KeyFacts
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import add_rescued_column, with_rescued_column
from cdc_pipeline.sink.modes.sink_mode import StagedFiles
from cdc_pipeline.sink.modes.tables import create_table, create_without_spark
from cdc_pipeline.sink.replace.replace import adopt, is_replaced, replace_by_spark, replacing
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import properties_sql, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MERGE_STEP", "STEPS_PER_BATCH", "apply_target", "is_applied", "transaction_version"]

_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


def is_applied(record: BatchRecord, target: RecordedTarget, *, paths: LakePaths) -> bool:
    """Needs no JVM. Raises LakeStateError: another table lies in the target's place."""
    path = paths.table(target.table)
    there = read_table_log(path)
    done = _has_batch(record, target, there, path=path)
    if done and there is not None:
        _check_newest(path, target, there)
    return done


def _has_batch(
    record: BatchRecord, target: RecordedTarget, there: TableLog | None, *, path: Path
) -> bool:
    if target.content is not None:
        done = is_replaced(there, record, target, path=path)
        return done and there is not None and are_done(there, record, target)
    if there is None or (target.replaces and there.app_id == target.replaces):
        return False
    check_owner(there, target.table, target.app_id, path=path)
    _check_order(record, target, there)
    if target.restores >= 0:
        return is_restored(path, record, target, there)
    if target.files:
        return there.transaction_version >= transaction_version(record.batch_number, MERGE_STEP)
    return are_done(there, record, target)


def _check_newest(path: Path, target: RecordedTarget, there: TableLog) -> None:
    """Raises LakeStateError: another program has written to the table since the batch: the cut
    would name what it wrote. Of a table that a snapshot replaces, or that is new, nothing else
    shows that.
    """
    commit = newest_change(path, there.version)
    if commit is not None and "cdc_app_id" not in commit.user_metadata:
        raise LakeStateError(
            "a table was changed by something other than this pipeline",
            table=target.table,
            expected="only maintenance after the commits of the batch to finish",
            got=f"version {commit.version}: {commit.operation}",
            next_step="take a new snapshot of the table; to prevent this, let other programs write "
            "only to copies of the lake's tables",
        )


def _check_order(record: BatchRecord, target: RecordedTarget, there: TableLog) -> None:
    """Raises LakeStateError: the table has a later batch."""
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
) -> TableLog:
    """Bring one target to the state after the batch and return its log. Safe to call again, and
    from several threads for different targets. For `check_lock` see `adopt`. `run` computes tasks
    on executors.

    Raises:
        StagingError: a staged file is not as recorded.
        LakeStateError: the target's table is not the one that the record means.
        ConcurrentWriterError: another run has written to a table that is being caught up.
        MergeError: Spark or Delta failed.
    """
    path, target = paths.table(target.table), with_rescued_column(target)
    files = [verify(file, lake=paths.lake, table=target.table) for file in target.files]
    check_taken_back(paths, record, target)
    has_rows, properties, fixed = bool(files), new_properties(config), config.spark.settings
    try:
        done = _without_spark(
            path,
            record,
            target,
            files,
            paths=paths,
            config=config,
            check_lock=check_lock,
            run=run,
        )
    except CdcError:
        raise
    except Exception as error:
        raise failure_of(error, table=target.table, batch_number=record.batch_number) from None
    if done is not None:
        return replace(done, engine=PLAIN)
    engine_used = SPARK
    spark = session_of()
    session = new_session(spark)
    note = commit_note(target.app_id, record.batch_number)
    session.conf.set(_NOTE, note)
    try:
        if target.content is not None:
            content = replacing(path, record, target, paths=paths, properties=properties)
            if content is not None:
                replace_by_spark(
                    session, content, settings=MergeSettings(session, fixed), check_lock=check_lock
                )
            run_steps(session, path, record, target, _table(path, target))
            return replace(_table(path, target), engine=engine_used)
        if target.create or target.replaces:
            create_table(session, path, target, source=record.source, properties=properties)
        there = _table(path, target)
        missing = properties_sql(_missing_properties(target, there))
        if missing:
            session.sql(f"ALTER TABLE {table_at(path)} SET TBLPROPERTIES ({missing})")
            there = _table(path, target)
        if target.restores >= 0:
            restore(session, path, record, target, there)
            return replace(_table(path, target), engine=engine_used)
        if add_rescued_column(session, path, there, target):
            there = _table(path, target)
        if has_rows and has_steps(target):
            raise StagingError(
                "a batch has both a change of a target's columns and rows of it", table=target.table
            )
        run_steps(session, path, record, target, there)
        if has_rows and there.transaction_version < transaction_version(
            record.batch_number, MERGE_STEP
        ):
            engine_used = _apply_rows(
                session,
                path,
                record,
                target,
                there,
                files,
                settings=MergeSettings(session, fixed),
                config=config,
                note=note,
            )
    except CdcError:
        raise
    except Exception as error:
        raise failure_of(error, table=target.table, batch_number=record.batch_number) from None
    return replace(_table(path, target), engine=engine_used)


def _without_spark(
    path: Path,
    record: BatchRecord,
    target: RecordedTarget,
    files: list[Path],
    *,
    paths: LakePaths,
    config: SinkConfig,
    check_lock: Callable[[], None],
    run: RunTasks | None,
) -> TableLog | None:
    """Create a target, if the batch does, and apply its staged rows, or take over its content,
    with commits that are made here. None if what is left to do is Spark's.
    """
    if config.engine == SPARK:
        return None
    properties, fixed = new_properties(config), config.spark.settings
    note = commit_note(target.app_id, record.batch_number)
    if target.content is not None:
        content = replacing(path, record, target, paths=paths, properties=properties)
        if content is not None and not adopt(content, note=note, check_lock=check_lock):
            return None
        there = _table(path, target)
        if content is not None and not there.needs_spark:
            write_due_checkpoint(path, there)
        return there if are_done(there, record, target) else None
    if target.replaces or target.restores >= 0 or has_steps(target):
        return None
    if target.create and read_table_log(path) is None:
        is_created = create_without_spark(
            path, target, source=record.source, properties=properties, fixed=fixed, note=note
        )
        if not is_created:
            return None
    there = _table(path, target, is_new=False)
    if _missing_properties(target, there):
        return None
    if not files:
        return there
    engine = engine_of(target.spec, there, config)
    if engine.rows or not can_commit(path, there):
        return None
    if engine.changes and not inserts_only(target):
        return None
    if KeyFacts(target, files).has_null:
        return None
    version = transaction_version(record.batch_number, MERGE_STEP)
    if there.transaction_version >= version:
        return there
    commit = PlainCommit(path, there, note=note)
    codec = codec_of(config)
    if may_append(record, target, there):
        is_done = add_appended(commit, path, target, there, lake=paths.lake, codec=codec, run=run)
    elif not engine.changes and suits_upsert(target):
        rows = last_rows(read_staged(files), Layout(target))
        is_done = add_upserted(commit, path, rows, target, there, codec=codec)
    else:
        is_done = False
    return commit.commit(app_id=there.app_id, version=version) if is_done else None


def _missing_properties(target: RecordedTarget, there: TableLog) -> dict[str, str]:
    """Delta knows its own names in any case, and keeps them as it writes them."""
    present = {name.lower(): value for name, value in there.properties.items()}
    wanted = target.spec.properties.items()
    return {name: value for name, value in wanted if present.get(name.lower()) != value}


def _apply_rows(
    session: SparkSession,
    path: Path,
    record: BatchRecord,
    target: RecordedTarget,
    there: TableLog,
    files: list[Path],
    *,
    settings: MergeSettings,
    config: SinkConfig,
    note: str,
) -> str:
    """The engine that committed them."""
    mode = SINK_MODES[target.spec.mode]
    facts = KeyFacts(target, files) if target.spec.key and MODES[target.spec.mode].has_key else None
    version = transaction_version(record.batch_number, MERGE_STEP)
    if not MODES[target.spec.mode].keeps_past and facts is not None and not facts.has_null:
        if may_append(record, target, there):
            statement = append_sql(session, path, target, files, settings=settings)
            run_once(session, statement, there, record, step=MERGE_STEP)
            return SPARK
        is_plain = not engine_of(target.spec, there, config).changes
        if is_plain and can_commit(path, there) and suits_upsert(target):
            commit = PlainCommit(path, there, note=note)
            rows = last_rows(read_staged(files), Layout(target))
            if add_located(
                session,
                commit,
                path,
                rows,
                target,
                there,
                predicate=facts.predicate,
                settings=settings,
                codec=codec_of(config),
            ):
                commit.commit(app_id=there.app_id, version=version)
                return PLAIN
    settings.large_batch(sum(file.size_bytes for file in target.files))
    statement = mode.apply_sql(StagedFiles(session, path, target, files, facts))
    run_once(session, statement, there, record, step=MERGE_STEP)
    return SPARK


def _table(path: Path, target: RecordedTarget, *, is_new: bool = True) -> TableLog:
    there = read_table_log(path, is_new=is_new)
    if there is None:
        raise LakeStateError(
            "the target's Delta table is gone",
            table=target.table,
            expected=f"a Delta table in {path}",
            next_step="restore the table from a backup of the lake, or start over with a new lake",
        )
    check_owner(there, target.table, target.app_id, path=path)
    return there
