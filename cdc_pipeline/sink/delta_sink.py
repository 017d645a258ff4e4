"""Delta tables through Spark, and the sink that changes them (K2, K3, K16, K21).

Rules:
- Only `apply`, and the methods that say so, start a JVM, and `apply` only if a target still lacks
  the batch. Nothing else imports pyspark.
- The files that a cut names are on the disk before the cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CatalogError, CdcError, LakeStateError, MergeError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.cut_retention import oldest_kept
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedContent, RecordedTarget
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.processes import boot_id
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.apply.executors import executor_refusal, run_tasks
from cdc_pipeline.sink.apply.merge import applied_log, apply_target
from cdc_pipeline.sink.apply.roll_back_uncut import roll_back_uncut
from cdc_pipeline.sink.delta import table_checks
from cdc_pipeline.sink.delta.data_file import DataLayout
from cdc_pipeline.sink.delta.engine import codec_of, engine_of
from cdc_pipeline.sink.delta.failures import again_on_conflict, failure_of
from cdc_pipeline.sink.delta.log import LOG_FOLDER
from cdc_pipeline.sink.delta.plain_commit import checkpoint_interval
from cdc_pipeline.sink.delta.replay import log_files
from cdc_pipeline.sink.delta.table_log import TableLog, read_table_log
from cdc_pipeline.sink.durable.durability import Commits, make_durable
from cdc_pipeline.sink.durable.power_cut import distrust, undo_unsynced
from cdc_pipeline.sink.durable.retention import over_maintenance, remove_old_log_files
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.modes.mirror_rows import mirror_layout
from cdc_pipeline.sink.probe import probe_delta, probe_lake
from cdc_pipeline.sink.protocol import Applied, OnMerged, RowsWithin, TableVersion
from cdc_pipeline.sink.replace.content import content_of, forget
from cdc_pipeline.sink.spark.catalog import check_answers, register
from cdc_pipeline.sink.spark.session import SparkProvider


class _DeltaTables:
    def __init__(self, paths: LakePaths, *, config: SinkConfig, spark: SparkProvider) -> None:
        self._paths = paths
        self._config = config
        self._spark = spark
        self._has_executors = False
        self._compared: table_checks.TableCheckCache | None = None  # of the lock's holder

    @property
    def spark_started(self) -> bool:
        return self._spark.started

    def executor_refusal(self) -> str:
        """Is "" if they can, and do so from then on. Starts the session."""
        lack = executor_refusal(self._spark.session(), self._paths)
        self._has_executors = not lack
        return lack

    def run_tasks(self, tasks: Sequence[str], work: Callable[[str], str]) -> list[str]:
        return run_tasks(self._spark.session(), tasks, work)

    def recover(self) -> None:
        undo_unsynced(self._paths)
        if boot := boot_id():
            self._compared = table_checks.TableCheckCache(self._paths, boot=boot)

    def cancel(self) -> None:
        self._spark.cancel()

    def check(self, cut: Cut, table: str, pending: BatchRecord | None) -> None:
        table_checks.check_target(self._paths, cut, table, pending)

    def roll_back_uncut(self, cut: Cut, table: str) -> int | None:
        return roll_back_uncut(self._paths, cut, table)

    def failing(
        self, cut: Cut, pending: BatchRecord | None, *, is_locked: bool
    ) -> dict[str, LakeStateError]:
        compared = self._compared if is_locked else None
        return table_checks.failing_targets(self._paths, cut, pending, compared=compared)

    def apply(
        self,
        record: BatchRecord,
        previous: Cut | None,
        *,
        without: Mapping[str, CdcError],
        check_lock: Callable[[], None],
        on_merged: OnMerged = lambda _tables, _of: None,
    ) -> Applied:
        logs: dict[str, TableLog] = {}
        failures: dict[str, CdcError] = {}
        number = record.batch_number
        open_targets: list[RecordedTarget] = []
        for target in record.targets:
            if target.table in without:
                continue
            try:
                log = applied_log(record, target, paths=self._paths, cut=previous)
                if log is not None:
                    logs[target.table] = log
                else:
                    open_targets.append(target)
            except Exception as error:
                failures[target.table] = failure_of(error, table=target.table, batch_number=number)
        if not open_targets:
            return Applied(logs, failures)
        merged = False
        with (
            time_limit(self._config.batch_timeout_s, self._spark.cancel) as is_late,
            ThreadPoolExecutor(
                min(self._config.merge_threads, len(open_targets)), "merge"
            ) as threads,
        ):
            running = {
                threads.submit(
                    again_on_conflict,
                    apply_target,
                    self._spark.session,
                    record,
                    t,
                    paths=self._paths,
                    config=self._config,
                    check_lock=check_lock,
                    run=self.run_tasks if self._has_executors else None,
                    cut=previous,
                ): t
                for t in open_targets
            }
            for count, done in enumerate(as_completed(running), 1):
                on_merged(count, len(running))
                table, failure = running[done].table, done.exception()
                if isinstance(failure, Exception):
                    failures[table] = failure_of(failure, table=table, batch_number=number)
                    continue
                logs[table] = done.result()  # raises what ends the process
                merged = True
                reach("between_merges")
                check_lock()
        if is_late():
            for failure in failures.values():
                if isinstance(failure, MergeError):
                    failure.setting = "sink.batch_timeout_s"  # it was cancelled because of it
        return Applied(logs, failures, is_proved=merged)

    def data_layout(self, table: str, spec: TargetSpec) -> DataLayout | None:
        there = read_table_log(self._paths.table(table))
        if there is None or engine_of(spec, there, self._config).rows:
            return None
        return mirror_layout(spec, there, codec=codec_of(self._config))

    def make_durable(
        self, record: BatchRecord, previous: Cut | None, there: Mapping[str, TableVersion]
    ) -> dict[str, CdcError]:
        """Failed targets are included: a later cut may build on what they have."""
        commits = {}
        for target in record.targets:
            table = self._paths.table(target.table)
            now = there.get(target.table)
            upto = now.version if now is not None else log_files(table / LOG_FOLDER)[0]
            commits[target.table] = Commits(table, _named(previous, target, upto), upto)
        failures = make_durable(commits, lake=self._paths.lake)
        failures = {name: error for name, error in failures.items() if name in there}
        if failures:
            distrust(self._paths)
        return failures

    def register(
        self, record: BatchRecord, there: Mapping[str, TableVersion]
    ) -> dict[str, CdcError]:
        refused: dict[str, CdcError] = {}
        created = [
            t.table
            for t in record.targets
            if t.table in there and (t.create or t.content is not None)
        ]
        if self._config.catalog is None or not created:
            return refused
        session = self._spark.session()
        for table in created:
            try:
                register(session, self._paths, self._config.catalog, table)
            except Exception as error:
                refused[table] = failure_of(error, table=table, batch_number=record.batch_number)
        return refused

    def check_machine(self, failures: Sequence[CdcError], *, is_proved: bool) -> None:
        probe_lake(self._paths)
        if not is_proved and any(failure.retryable for failure in failures):
            probe_delta(self._spark.session(), self._paths)
        if any(isinstance(failure, CatalogError) for failure in failures):
            check_answers(self._spark.session())

    def over_maintenance(self, cut: Cut) -> Cut:
        return over_maintenance(self._paths, cut, self._compared)

    def published(self, previous: Cut | None, there: Mapping[str, TableVersion]) -> None:
        """Remove log files that the newest checkpoints, durable and in a cut (K21), cover."""
        if self._compared is not None and is_object(self._paths.lake):
            self._compared.remember({})
        due = dict[str, TableLog]()
        for name, log in there.items():
            assert isinstance(log, TableLog), "it is what `apply` returned"
            every = checkpoint_interval(log)
            before = previous.tables.get(name) if previous is not None else None
            if before is not None and log.version // every > before.table_version // every:
                due[name] = log
        if not due:
            return
        views: dict[str, int] | None = {}
        if self._config.publish is not None:
            from cdc_pipeline.sink.maintain.publish import published_versions

            views = published_versions(self._paths)
        if views is None:
            return
        with suppress(OSError, CdcError):  # it is not known what the oldest cut reads
            kept = oldest_kept(self._paths, retention=self._config.cut_retention)
            oldest = None if kept is None else read_cut(self._paths, kept[0])
            for name, log in due.items():
                read = views.get(name, log.version)
                if oldest is not None:
                    of_cut = oldest.tables.get(name)
                    read = min(read, 0 if of_cut is None else of_cut.table_version)
                remove_old_log_files(self._paths.table(name), log, read=read)

    def publish(self, cut: Cut, check_lock: Callable[[], None]) -> CdcError | None:
        if self._config.publish is None:
            return None
        from cdc_pipeline.sink.maintain.publish import publish

        return publish(
            self._paths,
            self._config,
            cut,
            newest=self.over_maintenance,
            session=self._spark.session,
            check_lock=check_lock,
        )

    def content_of(
        self, cut: Cut, table: str, *, lake: Path, seq: int, ts_us: int
    ) -> RecordedContent:
        return content_of(self._paths, cut, table, lake=lake, seq=seq, ts_us=ts_us)

    def rows_within(self, table: str, *, low: int, high: int) -> RowsWithin:
        from cdc_pipeline.sink.read.rows import read_errors, seqs_within

        with read_errors(table):
            return RowsWithin(*seqs_within(self._paths.table(table), low, high))

    def forget(self, target: RecordedTarget) -> None:
        if target.content is not None:
            forget(self._paths, target.content, target.table)


class DeltaSink(Sink):
    """The Delta side of one source; by default it creates its own session."""

    def __init__(
        self, *, source: str, config: SinkConfig, spark: SparkProvider | None = None
    ) -> None:
        paths = LakePaths(config.lake_path, source)
        self.spark = spark or SparkProvider.from_config(config)
        tables = _DeltaTables(paths, config=config, spark=self.spark)
        super().__init__(paths, tables=tables, cut_retention=config.cut_retention)


def _named(previous: Cut | None, target: RecordedTarget, version: int) -> int:
    """The version that the previous cut names; -1 without one, or if the folder has another log."""
    there = previous.cursor.targets.get(target.table) if previous is not None else None
    if previous is None or there is None or target.table not in previous.tables:
        return -1
    named = previous.tables[target.table].table_version
    goes_on = there.app_id in (target.app_id, target.replaces)
    return named if goes_on and (named < version or target.content is None) else -1


_AGAIN_S: Final = 5.0


@contextmanager
def time_limit(limit_s: float, cancel: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `cancel` while the body runs for longer than `limit_s`; yields whether it was called
    (K25). A lock or lease is renewed for as long as its process lives, so a Spark job that hangs
    would hold its source forever. It is called repeatedly: a retry, or the next target, may have
    started another job. Cancelled work fails like other Spark failures, and the next run finishes
    the batch.
    """
    done, late = threading.Event(), threading.Event()

    def watch() -> None:
        wait_s = limit_s
        while not done.wait(wait_s):
            late.set()
            cancel()
            wait_s = _AGAIN_S

    watcher = threading.Thread(target=watch, name="batch time limit", daemon=True)
    watcher.start()
    try:
        yield late.is_set
    finally:
        done.set()
        watcher.join()
