"""The sink: batches of one source into the Delta tables of a lake, each exactly once (K2, K3, K16).

Rules:
- Order: `lock` -> `last_cut`, `pending_record`, `discard_unrecorded`, `check_targets` -> `finish` what is pending ->
  `begin`, stage, `record`, `finish` -> (cursor, ack) -> `cleanup`.
- `finish` alone starts a JVM, and only where a target still lacks the batch. Everything else imports no pyspark.
- Whatever fails in the work of one target, at any step, suspends that target: the cut of the batch is published
  without it (K4, K22). A failure that can be gone at the next try fails the batch before its cut, and suspends when the
  recorded batch is taken up again: so every recorded batch can be finished. It must be the target that fails and not
  the machine: nothing is suspended while lake, Spark or catalog do not pass a probe.
- Only the holder of the lock writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CatalogError, CdcError, LakeStateError, LockError, MergeError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.column_defaults import given_after
from cdc_pipeline.lake.paths import TEMPORARY_PREFIX, LakePaths, list_numbers, remove_tree
from cdc_pipeline.lake.prepared import XaParking, remove_unreferenced
from cdc_pipeline.lake.quarantine import damaged_files, lost_note, publish_quarantine
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable, Note, QuarantineFile, RecordedTarget
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.storage import check_reachable, refused
from cdc_pipeline.lake.suspensions import LOAD_FAILED_NOTE, UNREGISTERED_NOTE, cause_of, left_behind, note_of
from cdc_pipeline.lake.table_facts import put_cut
from cdc_pipeline.position.cursor import CursorState, OpenXa, TargetState
from cdc_pipeline.sink.apply.executors import lack_of_executors
from cdc_pipeline.sink.apply.failures import failure_of, is_of_the_machine
from cdc_pipeline.sink.apply.merge import apply_target, is_applied
from cdc_pipeline.sink.delta import table_checks
from cdc_pipeline.sink.delta.commit import forget_logs
from cdc_pipeline.sink.delta.conflicts import again_on_conflict
from cdc_pipeline.sink.delta.features import allowed, creation_properties
from cdc_pipeline.sink.delta.log import LOG_FOLDER, TableLog, read_table_log
from cdc_pipeline.sink.delta.row_count import log_files
from cdc_pipeline.sink.durable.durability import Commits, make_durable
from cdc_pipeline.sink.durable.power_cut import distrust, undo_unsynced
from cdc_pipeline.sink.durable.retention import over_maintenance, prune_cuts, retention_properties
from cdc_pipeline.sink.maintain.log_cleanup import remove_old_log_files
from cdc_pipeline.sink.modes.rescue import summed
from cdc_pipeline.sink.probe import probe_delta, probe_lake
from cdc_pipeline.sink.replace.content import forget, is_of_load
from cdc_pipeline.sink.spark.catalog import check_answers, register
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.time_limit import time_limit
from cdc_pipeline.sink.staging.staging import StagedBatch

_RECORDS_KEPT: Final = 1000
_CHECKPOINT_EVERY: Final = 10  # commits, by Delta's default


def _no_joint(_name: str) -> None:
    """Nobody watches."""


class DeltaSink:
    """The Delta side of one source.

    Args:
        source: the source's name.
        config: lake path, threads, Spark settings.
        on_joint: is told "staging", "parking", "before_record", "after_record", "between_merges" (after each target)
            and "before_cut", in the calling thread; and "before_replaced" (a loaded table's files are there, its commit
            comes next), in a merging thread.
        spark: a session shared with others; the sink makes its own otherwise.
    """

    def __init__(
        self,
        *,
        source: str,
        config: SinkConfig,
        on_joint: Callable[[str], None] | None = None,
        spark: SparkProvider | None = None,
    ) -> None:
        self.paths = LakePaths(config.lake_path.absolute(), source)
        self.spark = spark or SparkProvider.of(config)
        self._config = config
        self._told = on_joint or _no_joint
        self._lock_check: Callable[[], None] | None = None

    @property
    def spark_started(self) -> bool:
        """Whether this sink's Spark session runs."""
        return self.spark.started

    def lack_of_executors(self) -> str:
        """Why Spark's executors cannot run this package's code; empty where they can. Starts the session."""
        return lack_of_executors(self.spark.session())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer of the source.

        Raises:
            LockError: another process is.
            SinkError: the lake's disk refuses a file, while the context lasts.
        """
        check_reachable(self.paths.lake)
        with writer_lock(self.paths.lock, on_lost=self.spark.cancel) as check:
            self._lock_check = check
            try:
                if undo_unsynced(self.paths) and self.spark.started:
                    forget_logs(self.spark.session())
                yield
            except OSError as error:
                if not str(error.filename or "").startswith(str(self.paths.lake)):
                    raise
                raise refused(error, Path(error.filename)) from error
            finally:
                self._lock_check = None

    def check_reachable(self) -> None:
        """See that the lake can be read, before its emptiness is taken for a new lake. Raises CdcError."""
        check_reachable(self.paths.lake)

    # -- state, without a JVM -----------------------------------------------------------------------------------------

    def last_cut(self) -> Cut | None:
        """The newest cut; None in a new lake. Raises LakeStateError where it is damaged."""
        return state.last_cut(self.paths)

    def cuts(self) -> list[int]:
        """Numbers of the cuts that are kept, ascending."""
        return list_numbers(self.paths.cuts)

    def read_cut(self, number: int) -> Cut:
        """One cut. Raises LakeStateError where it is absent or damaged."""
        return state.read_cut(self.paths, number)

    def pending_record(self) -> BatchRecord | None:
        """The batch that was recorded and has no cut. Raises LakeStateError where records and cuts do not join."""
        return state.pending_record(self.paths)

    def check_targets(self, cut: Cut) -> None:
        """Compare the tables with a cut, the pending batch considered (K3). Raises LakeStateError."""
        table_checks.check_targets(self.paths, cut, self.pending_record())

    def check_target(self, cut: Cut, table: str) -> None:
        """Compare one table with a cut (K3). Raises LakeStateError."""
        table_checks.check_target(self.paths, cut, table, self.pending_record())

    def failing_targets(self, cut: Cut) -> dict[str, LakeStateError]:
        """Tables that are not as a cut says, the pending batch considered (K3), each with its error."""
        return table_checks.failing_targets(self.paths, cut, self.pending_record())

    def discard_unrecorded(self) -> int:
        """Remove staged files that no pending record needs, and what interrupted writes left; the number of files.

        Raises:
            LockError: the sink is not locked.
        """
        self._check_locked()
        pending = self.pending_record()
        keep = None if pending is None else self.paths.staging(pending.batch_number)
        removed = 0
        if self.paths.staging_root.is_dir():
            for folder in self.paths.staging_root.iterdir():
                if folder != keep:
                    removed += remove_tree(folder, check=self._check_locked)
        for folder in (self.paths.batches, self.paths.cuts):
            if folder.is_dir():
                for left in folder.glob(f"{TEMPORARY_PREFIX}*"):
                    left.unlink()
                    removed += 1
        return removed

    def discard_parked(self, *cursors: CursorState | None) -> int:
        """Remove parked rows of XA transactions that none of these cursors refers to (K8); the number of files."""
        self._check_locked()
        return remove_unreferenced(self.paths, cursors, check=self._check_locked)

    # -- writing ------------------------------------------------------------------------------------------------------

    def parking(self, *, epoch: int, open_xa: Sequence[OpenXa] = ()) -> XaParking:
        """The prepared transactions of the source, from those that the cursor holds."""
        self._check_locked()
        return XaParking(self.paths, epoch=epoch, open_xa=open_xa, on_joint=self._on_joint)

    def begin(self, number: int) -> StagedBatch:
        """Start staging batch `number`.

        Raises:
            LockError: the sink is not locked.
            LakeStateError: it is not the batch after the last cut, or it is recorded already.
        """
        self._check_locked()
        cuts = self.cuts()
        following = (cuts[-1] if cuts else 0) + 1
        if number != following or self.pending_record() is not None:
            raise LakeStateError(
                f"batch {number} cannot begin",
                expected=f"batch {following}, not recorded yet",
                got=f"batch {number}" if number != following else "a record of it",
                next_step="start the run again: it takes up the lake's own state first",
            )
        return StagedBatch(number, paths=self.paths, on_joint=self._on_joint)

    def finish(
        self, record: BatchRecord, *, recovered: bool = False, given_up: Mapping[str, CdcError] | None = None
    ) -> Cut:
        """Merge the targets of a recorded batch and publish its cut; what is done already is not done again. A target
        that fails is suspended in the cut (K4).

        Args:
            record: the batch.
            recovered: the batch is taken up again: a failure that could have been gone by now suspends too.
            given_up: targets that are suspended without a try, each with its cause.

        Raises:
            LockError: the sink is not locked.
            SinkError: of a target that failed and is not suspended, after all others ended: it can be gone at the next
                try, or it is the machine that fails.
            RuntimeSetupError: Spark cannot start.
        """
        self._check_locked()
        number = record.batch_number
        if self.paths.cut(number).exists():
            return self.read_cut(number)
        previous = self.read_cut(number - 1) if number > 1 else None
        failing = dict(given_up or {})
        logs, failures, merged = self._apply(record, without=failing)
        failures |= self._make_durable(record, previous, logs)
        self._on_joint("before_cut")
        unregistered = self._register(record, logs)
        damaged = damaged_files(self.paths, record)
        failures |= unregistered | _fed_by(damaged, record, previous)
        if failures:
            again = recovered or record.kind == "catch_up"  # who is caught up is suspended already
            self._check_suspendable(failures, merged=merged, recovered=again)
        notes = [lost_note(file, error) for file, error in damaged if file.table not in _sources_of(record, previous)]
        for name, error in failures.items():
            if name in unregistered and _is_loaded(record, name):
                # What a load has put in place cannot be given up any more.
                notes.append(Note(kind=UNREGISTERED_NOTE, text=cause_of(error), table=name))
            else:
                failing[name] = error
        waiting = publish_quarantine(
            self.paths, record, previous, failing=failing, without={file.path for file, _ in damaged}
        )
        made = _cut_of(record, previous, logs, failing)
        made = made.model_copy(update={"quarantine": waiting, "notes": (*made.notes, *notes)})
        cut = put_cut(self.paths, over_maintenance(self.paths, made), previous)
        if cut is None:
            return self.read_cut(number)
        self._remove_old_log_files(previous, logs)
        for target in record.targets:
            if is_of_load(target) and target.content is not None and target.table in failing:
                with suppress(CdcError, OSError):  # a vacuum takes what is left
                    forget(self.paths, target.content, target.table)
        return cut

    def cleanup(self, cut: Cut) -> None:
        """Remove staged files of batches up to a cut, records that are older than the newest 1000, and cuts whose time
        to be readable is over (K15).

        Raises:
            LockError: the sink is not locked.
        """
        self._check_locked()
        if self.paths.staging_root.is_dir():
            for folder in self.paths.staging_root.iterdir():
                if folder.name.isdecimal() and int(folder.name) <= cut.batch_number:
                    remove_tree(folder)
        for number in list_numbers(self.paths.batches):
            if number <= cut.batch_number - _RECORDS_KEPT:
                self.paths.batch(number).unlink()
        prune_cuts(self.paths, retention=self._config.cut_retention)

    def _register(self, record: BatchRecord, logs: Mapping[str, TableLog]) -> dict[str, CdcError]:
        """Register the tables that the batch has made in the session's catalog, where that is asked for.

        Returns:
            What the catalog refused, by target.
        """
        refused: dict[str, CdcError] = {}
        made = [t.table for t in record.targets if t.table in logs and (t.create or t.content is not None)]
        if self._config.catalog is None or not made:
            return refused
        session = self.spark.session()
        for table in made:
            try:
                register(session, self.paths, self._config.catalog, table)
            except Exception as error:
                refused[table] = failure_of(error, table=table, batch_number=record.batch_number)
        return refused

    def _apply(
        self, record: BatchRecord, *, without: Mapping[str, CdcError]
    ) -> tuple[dict[str, TableLog], dict[str, CdcError], bool]:
        """Logs of the targets that have the batch, what the others failed with, and whether Spark merged any now."""
        logs: dict[str, TableLog] = {}
        failures: dict[str, CdcError] = {}
        number = record.batch_number
        open_targets: list[RecordedTarget] = []
        for target in record.targets:
            if target.table in without:
                continue
            try:
                if is_applied(record, target, paths=self.paths):
                    logs[target.table] = _log(self.paths, target)
                else:
                    open_targets.append(target)
            except Exception as error:
                failures[target.table] = failure_of(error, table=target.table, batch_number=number)
        if not open_targets:
            return logs, failures, False
        merged = False
        session = self.spark.session()
        properties = creation_properties(allowed(self._config)) | retention_properties(self._config)
        with (
            time_limit(self._config.batch_timeout_s, self.spark.cancel) as is_late,
            ThreadPoolExecutor(min(self._config.merge_threads, len(open_targets)), "merge") as threads,
        ):
            fixed = self._config.spark.settings
            running = {
                threads.submit(
                    again_on_conflict,
                    apply_target,
                    session,
                    record,
                    t,
                    paths=self.paths,
                    properties=properties,
                    fixed=fixed,
                    on_joint=self._on_joint,
                ): t
                for t in open_targets
            }
            for done in as_completed(running):
                table, failure = running[done].table, done.exception()
                if isinstance(failure, Exception):
                    failures[table] = failure_of(failure, table=table, batch_number=number)
                    continue
                logs[table] = done.result()  # raises what ends the process
                merged = True
                self._on_joint("between_merges")
        if is_late():
            for failure in failures.values():
                if isinstance(failure, MergeError):
                    failure.setting = "sink.batch_timeout_s"  # it was cancelled because of it
        return logs, failures, merged

    def _make_durable(
        self, record: BatchRecord, previous: Cut | None, logs: Mapping[str, TableLog]
    ) -> dict[str, CdcError]:
        """Wait for the disk to take all that the batch's targets have and the previous cut does not name (K21), those
        that fail included: a later cut may build on what they have. The targets that it does not take, each with its
        error; what they have of the batch is undone before they are tried again."""
        commits = {}
        for target in record.targets:
            table = self.paths.table(target.table)
            log = logs.get(target.table)
            upto = log.version if log is not None else log_files(table / LOG_FOLDER)[0]
            commits[target.table] = Commits(table, _named(previous, target, upto), upto)
        failures = make_durable(commits, lake=self.paths.lake)
        failures = {name: error for name, error in failures.items() if name in logs}
        if failures:
            distrust(self.paths)
        return failures

    def _remove_old_log_files(self, previous: Cut | None, logs: Mapping[str, TableLog]) -> None:
        """Let Delta remove what its newest checkpoints sum up; those are durable, and named by a cut (K21)."""
        for name, log in logs.items():
            every = int(log.properties.get("delta.checkpointInterval", _CHECKPOINT_EVERY))
            there = previous.tables.get(name) if previous is not None else None
            if self.spark.started and there is not None and log.version // every > there.delta_version // every:
                remove_old_log_files(self.spark.session(), self.paths.table(name))

    def _check_suspendable(self, failures: Mapping[str, CdcError], *, merged: bool, recovered: bool) -> None:
        """See that the targets failed by themselves, and would fail again.

        Raises:
            CdcError: one of the failures: it can be gone at the next try, or it is the machine that fails.
        """
        found = list(failures.values())
        for failure in found:
            if is_of_the_machine(failure) or (failure.retryable and not recovered):
                raise failure
        try:
            probe_lake(self.paths)
            if not merged and any(failure.retryable for failure in found):
                probe_delta(self.spark.session(), self.paths)
            if any(isinstance(failure, CatalogError) for failure in found):
                check_answers(self.spark.session())
        except Exception as broken:
            raise found[0] from (broken if isinstance(broken, CdcError) else None)

    def _check_locked(self) -> None:
        if self._lock_check is None:
            raise LockError("the sink writes without its lock", expected="within `with sink.lock()`")
        self._lock_check()

    def _on_joint(self, name: str) -> None:
        """Each joint lies before a step that acts: the lock is looked at again (K16)."""
        self._told(name)
        if self._lock_check is not None:
            self._lock_check()

    # -- reading, with a JVM ------------------------------------------------------------------------------------------

    def read_rows(self, table: str, *columns: str, version: int | None = None) -> pa.Table:
        """Rows of a target as an Arrow table; all columns, or those named. Starts Spark."""
        from cdc_pipeline.sink.read.read import table_frame
        from cdc_pipeline.sink.spark.sql import quoted

        frame: Any = table_frame(self.spark.session(), self.paths.table(table), version=version)
        return frame.select(*map(quoted, columns)).toArrow() if columns else frame.toArrow()

    def count(self, table: str) -> int:
        """Number of rows of a target. Starts Spark."""
        from cdc_pipeline.sink.read.read import table_frame

        return int(table_frame(self.spark.session(), self.paths.table(table)).count())


def _log(paths: LakePaths, target: RecordedTarget) -> TableLog:
    log = read_table_log(paths.table(target.table))
    assert log is not None, "is_applied has just read it"
    return log


def _is_loaded(record: BatchRecord, name: str) -> bool:
    return any(target.table == name and target.content is not None for target in record.targets)


def _sources_of(record: BatchRecord, previous: Cut | None) -> dict[str, set[str]]:
    """The targets of each source table, of the batch and of the cut before."""
    found: dict[str, set[str]] = {}
    for target in record.targets:
        for source in target.sources or (target.table,):
            found.setdefault(source, set()).add(target.table)
    for name, before in (previous.cursor.targets if previous is not None else {}).items():
        for source in before.source_names:
            found.setdefault(source, set()).add(name)
    return found


def _fed_by(
    damaged: Sequence[tuple[QuarantineFile, CdcError]], record: BatchRecord, previous: Cut | None
) -> dict[str, CdcError]:
    """The targets whose rows for the quarantine cannot be read any more: they read the log again."""
    sources = _sources_of(record, previous)
    return {name: error for file, error in damaged for name in sorted(sources.get(file.table, ()))}


def _named(previous: Cut | None, target: RecordedTarget, version: int) -> int:
    """The version of a target that the previous cut names; -1 if there is none, or its folder holds another log now."""
    there = previous.cursor.targets.get(target.table) if previous is not None else None
    if previous is None or there is None or target.table not in previous.tables:
        return -1
    named = previous.tables[target.table].delta_version
    goes_on = there.app_id in (target.app_id, target.replaces)
    return named if goes_on and (named < version or target.content is None) else -1


def _stays_exact(
    record: BatchRecord, target: RecordedTarget, before: TargetState | None, planned: TargetState | None
) -> bool:
    """Whether a target is exact after a batch that it has (K12); catching up may bring rows that it has already."""
    was = target.exact if before is None or before.delta_version < 0 else target.exact and before.exact
    follows = planned is None or planned.suspended is None
    return was and follows and record.kind == "batch"


def _cut_of(
    record: BatchRecord, previous: Cut | None, logs: dict[str, TableLog], failing: Mapping[str, CdcError]
) -> Cut:
    """The cut of a batch: its targets as they are now, all others as the previous cut has them. Who is suspended is in
    the record's cursor, and who fails now is added."""
    unchanged = {"rows_inserted": 0, "rows_updated": 0, "rows_deleted": 0, "rescued": {}, "rescued_rows": 0}
    tables: dict[str, CutTable] = {}
    states: dict[str, TargetState] = {}
    if previous is not None:
        tables = {name: table.model_copy(update=unchanged) for name, table in previous.tables.items()}
        # A moved cursor may label tables anew (K19): its record says how each stands.
        is_set = record.kind == "cursor_set"
        states = dict(record.cursor_after.targets if is_set else previous.cursor.targets)
        if is_set:  # rows may come a second time, or never (K12)
            states = {name: state.model_copy(update={"exact": False}) for name, state in states.items()}
    for name in record.dropped:
        tables.pop(name, None)
        states.pop(name, None)
    kept = {target.table for target in record.targets if is_of_load(target) and target.table in failing}
    for name, after in record.cursor_after.targets.items():
        if name in kept:
            continue
        if name in states:
            exact = states[name].exact and after.exact and after.suspended is None
            states[name] = states[name].model_copy(update={"suspended": after.suspended, "exact": exact})
        elif after.suspended is not None:
            states[name] = after
    notes = list(record.notes)
    mine = {target.table for target in record.targets}
    for name, error in failing.items():
        if name in states and name not in mine:
            left = left_behind(record, error, held=states[name].suspended)
            notes.append(note_of(name, left))
            states[name] = states[name].model_copy(update={"suspended": left, "exact": False})
    for target in record.targets:
        before = states.get(target.table)
        planned = record.cursor_after.targets.get(target.table, before)
        if target.table in failing:
            error = failing[target.table]
            if is_of_load(target):
                notes.append(Note(kind=LOAD_FAILED_NOTE, text=cause_of(error), table=target.table))
                continue
            there = previous.cursor.targets.get(target.table) if previous is not None else None
            held = there.suspended if there is not None else None
            left = left_behind(record, error, held=held)
            if target.content is not None:  # it holds the rows of another table than that of its name (K28)
                left = left.model_copy(update={"needs_reload": True})
            notes.append(note_of(target.table, left))
            state_of = there or TargetState(
                table=target.table,
                app_id=target.app_id,
                delta_version=-1,
                applied_batch=-1,
                partial=target.partial,
                sources=tuple(target.sources),
            )
            states[target.table] = state_of.model_copy(update={"suspended": left, "exact": False})
            continue
        log, content = logs[target.table], target.content
        ever = tables[target.table].rescued_ever if target.table in tables else {}
        tables[target.table] = CutTable(
            delta_version=log.version,
            transaction_version=log.transaction_version,
            rows_inserted=target.rows_inserted,
            rows_updated=target.rows_updated,
            rows_deleted=target.rows_deleted,
            mode=target.mode,
            columns=target.columns,
            key=target.key,
            key_reason=target.key_reason,
            sources=target.sources,
            shape=target.shape,
            rescues=target.rescues,
            rescued=target.rescued,
            rescued_rows=target.rescued_rows,
            rescued_ever=summed(ever, target.rescued) if content is None else content.rescued_ever,
            given=given_after(tables.get(target.table), target),
        )
        states[target.table] = TargetState(
            table=target.table,
            app_id=target.app_id,
            delta_version=log.version,
            applied_batch=record.batch_number,
            # A shard that joins later may make a whole target partial (K19).
            partial=target.partial
            or (content is None and before is not None and before.delta_version >= 0 and before.partial),
            suspended=planned.suspended if planned is not None and content is None else None,
            sources=tuple(target.sources),
            exact=_stays_exact(record, target, before, planned),
            origin=planned.origin if planned is not None else None,
        )
    return Cut(
        source=record.source,
        batch_number=record.batch_number,
        kind=record.kind,
        published_at_us=time.time_ns() // 1000,
        source_time_us=record.source_time_us,
        interval=record.interval,
        cursor=record.cursor_after.model_copy(update={"targets": dict(sorted(states.items()))}),
        tables=dict(sorted(tables.items())),
        ddl=record.ddl,
        notes=tuple(notes),
    )
