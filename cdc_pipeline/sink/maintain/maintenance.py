"""Compact and vacuum a source's tables if their logs' figures say that it pays.

Rules:
- Nothing here changes a row; every commit is one that a cut may pass over (K3,
  `log.is_maintenance`).
- The sync is not blocked: only a change of properties takes the writer's lock. OPTIMIZE and a batch
  may rewrite the same files; Delta refuses the second commit, and its writer repeats the work.
- VACUUM keeps to the table's own retention, and runs only if that is ``sink.cut_retention``: no
  readable cut loses a file (K15). The newest cut is readable however old it is, and the one before
  until the newest is as old as the retention: a vacuum reaches back to when that was published.
- Each commit that a vacuum relies on is made durable first (K21), those of a batch under way
  included.
- A full vacuum also takes files that no commit names, and a merge under way has such files: it
  needs a retention of a day or more, longer than any merge. A vacuum by the log alone (LITE) never
  takes them.
- ``_cdc/<source>/maintenance.json`` records which table was vacuumed when.
- Spark starts only if something is due, or if tables are to be registered in a catalog.
- Only the first and the last of the changes that no vacuum has covered are kept. There may be
  others in between, so a vacuum is due again as soon as the retention of any of them could be over.
- Earlier changes are not known at first, so the first vacuum is due at once.
- A time in the future is of a clock that was ahead; it is as good as none. VACUUM itself goes by
  the table's own retention, so one too many removes nothing that is young.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import MaintenanceConfig, SinkConfig
from cdc_pipeline.errors import CdcError, ConfigError, LakeStateError, LockError, MergeError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.cut_retention import oldest_kept, prune_cuts
from cdc_pipeline.lake.paths import LakePaths, read_if_there, replace_file
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.lock import wait_for_lock, writer_lock
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.sink.delta.commit import COMMIT_NOTE
from cdc_pipeline.sink.delta.failures import TRIES, is_conflict, reading_failed
from cdc_pipeline.sink.delta.log import LOG_FOLDER, maintenance_note, read_commit_lines
from cdc_pipeline.sink.delta.replay import log_files, readable_state
from cdc_pipeline.sink.delta.table_checks import log_of_cut
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.durable.durability import Commits, make_durable
from cdc_pipeline.sink.durable.power_cut import is_trusted, undo_unsynced
from cdc_pipeline.sink.durable.retention import differing_properties, over_maintenance
from cdc_pipeline.sink.maintain.publish import is_read, publish, replaces_files
from cdc_pipeline.sink.spark.catalog import register_all
from cdc_pipeline.sink.spark.session import SparkProvider, new_session
from cdc_pipeline.sink.spark.sql import set_properties_sql, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOCK_WAIT_S: Final = 30.0
_FULL_VACUUM_RETENTION_MIN: Final = timedelta(days=1)
_HOUR_US: Final = 3_600_000_000
# A vacuum lists folders in as many tasks as this says; Spark's own default of 10,000 takes minutes.
_LISTING_TASKS: Final = ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "8")
# Else Delta goes by the table's own retention, whatever a RETAIN clause says.
_RETAIN_COUNTS: Final = ("spark.databricks.delta.vacuum.retentionWindowIgnore.enabled", "false")


class _Memory(BaseModel):
    tables: dict[str, VacuumState] = Field(default_factory=dict)


class TableMaintenance(BaseModel):
    """`properties` that were set; files that compaction removed and added; a ``lite`` or ``full``
    vacuum, and how many files it deleted (-1 unknown).
    """

    table: str
    files: int = 0
    small_files: int = 0
    size_bytes: int = 0
    deleted_share: float = 0.0
    properties: dict[str, str] = Field(default_factory=dict)
    optimized: bool = False
    files_removed: int = 0
    files_added: int = 0
    vacuum: str = ""
    files_deleted: int = 0
    skipped: str = ""
    failed: bool = False
    seconds: float = 0.0


class MaintenanceReport(BaseModel):
    source: str
    tables: list[TableMaintenance]
    cuts_removed: int = 0
    spark_started: bool = False

    @property
    def failed(self) -> list[str]:
        return [table.table for table in self.tables if table.failed]


@dataclass
class _Due:
    table: str
    app_id: str
    version: int  # Delta's, before this maintenance
    durable: int  # Delta version that the last cut names
    properties: dict[str, str] = field(default_factory=dict)
    optimize: bool = False
    vacuum: str = ""
    may_list: bool = False  # a full vacuum is safe
    retention_us: int = 0


class _Round(NamedTuple):
    paths: LakePaths
    config: SinkConfig
    thresholds: MaintenanceConfig
    cut: Cut
    memory: _Memory
    spark: SparkProvider
    hours_kept: int  # what a vacuum spares, if that is more than the retention; else 0


def maintain(
    paths: LakePaths,
    config: SinkConfig,
    thresholds: MaintenanceConfig,
    *,
    tables: Sequence[str] | None = None,
    spark: SparkProvider | None = None,
    on_table: Callable[[TableMaintenance], None] = lambda _done: None,
) -> MaintenanceReport:
    """Check every table of the last cut, or `tables`, and do what is due.

    Raises ConfigError: a name in `tables` is no table of the last cut; LockError: another
    maintenance runs; LakeStateError: the last cut is damaged; RuntimeSetupError: Spark cannot
    start.
    """
    cut = state.last_cut(paths)
    if cut is None:
        return MaintenanceReport(source=paths.source, tables=[])
    unknown = sorted(set(tables or ()) - cut.tables.keys())
    if unknown:
        raise ConfigError(
            f"these tables are not in the last cut of {paths.source}: {', '.join(unknown)}",
            expected=f"some of {', '.join(list(cut.tables)[:20])}",
            next_step="name tables of the lake as schema.table",
        )
    provider = spark or SparkProvider.from_config(config)
    report = MaintenanceReport(source=paths.source, tables=[])
    if not is_object(paths.lake) and not is_trusted(paths):
        with _writer_lock(paths):
            undo_unsynced(paths)
    with writer_lock(paths.state / "maintenance.lock"):
        memory = _remembered(paths)
        hours = _hours_kept(paths, config)
        this = _Round(paths, config, thresholds, cut, memory, provider, hours)
        for name in sorted(tables or cut.tables):
            done = _maintain_table(this, name)
            report.tables.append(done)
            on_table(done)
            # Saved after each table, in case the next one ends the process.
            replace_file(
                paths.state / "maintenance.json", memory.model_dump_json(indent=1).encode()
            )
        report.cuts_removed = prune_cuts(paths, retention=config.cut_retention)
        if config.catalog is not None:
            register_all(provider.session(), paths, config.catalog, sorted(tables or cut.tables))
        _publish(this)
    report.spark_started = provider.started
    if spark is None:
        provider.stop()
    return report


def _publish(this: _Round) -> None:
    if this.config.publish is None:
        return
    with suppress(LockError), _writer_lock(this.paths) as check:  # else a run
        newest, session = partial(over_maintenance, this.paths), this.spark.session
        cut = state.last_cut(this.paths) or this.cut
        error = publish(
            this.paths,
            this.config,
            cut,
            newest=newest,
            session=session,
            check_lock=check,
            again=True,
        )
        if error is not None:
            raise error


def _maintain_table(this: _Round, name: str) -> TableMaintenance:
    began = time.monotonic()
    done = TableMaintenance(table=name)
    if this.cut.cursor.targets[name].suspended is not None:
        done.skipped = "suspended: its table is left alone until it is caught up"
        return done
    try:
        due = _due(this, name, done)
        _spare_what_is_read(this, due, done)
        if due.properties or due.optimize or due.vacuum:
            _work(this, new_session(this.spark.session()), due, done)
    except CdcError as error:
        done.skipped, done.failed = "; ".join(filter(None, (error.what, error.next_step))), True
    done.seconds = round(time.monotonic() - began, 2)
    return done


def _due(this: _Round, name: str, done: TableMaintenance) -> _Due:
    import pyarrow.compute as pc

    thresholds, config = this.thresholds, this.config
    target = this.cut.cursor.targets[name]
    log = log_of_cut(this.paths, this.cut, name)
    state = readable_state(this.paths.table(name))
    is_small = pc.less(state.sizes, thresholds.small_file_bytes)
    done.files, done.size_bytes = state.files, state.size_bytes
    done.small_files = int(pc.sum(is_small, min_count=0).as_py())
    if state.rows is not None and (rows := state.rows + state.deleted_rows):
        done.deleted_share = state.deleted_rows / rows
    due = _Due(name, target.app_id, state.version, this.cut.tables[name].table_version)
    due.properties = differing_properties(config, log.properties)
    due.optimize = (
        done.small_files >= thresholds.small_files or done.deleted_share >= thresholds.deleted_rows
    )
    done.deleted_share = round(done.deleted_share, 4)
    at_us = now_us()
    known = this.memory.tables.get(name)
    if known is None or known.app_id != target.app_id:
        known = VacuumState(
            app_id=target.app_id, applied_batch=target.applied_batch, changed_last_us=at_us
        )
    elif known.applied_batch != target.applied_batch:
        known = known.changed(at_us, applied_batch=target.applied_batch)
    this.memory.tables[name] = known
    due.retention_us = this.hours_kept * _HOUR_US or _retention_us(config)
    if known.is_due(
        at_us, retention_us=due.retention_us, every_us=round(thresholds.vacuum_hours * _HOUR_US)
    ):
        due.may_list = config.cut_retention >= _FULL_VACUUM_RETENTION_MIN
        is_full = known.is_full_due(
            at_us, every_us=round(thresholds.full_vacuum_days * 24 * _HOUR_US)
        )
        due.vacuum = "full" if is_full and due.may_list else "lite"
    return due


def _hours_kept(paths: LakePaths, config: SinkConfig) -> int:
    """An hour or two more than since the oldest readable cut, if a newer one has followed."""
    kept = oldest_kept(paths, retention=config.cut_retention)
    if kept is None or kept[1] + _retention_us(config) > now_us():
        return 0
    return (now_us() - kept[1]) // _HOUR_US + 2


def _retention_us(config: SinkConfig) -> int:
    return round(config.cut_retention.total_seconds() * 1e6)


def _work(this: _Round, session: SparkSession, due: _Due, done: TableMaintenance) -> None:
    paths, known = this.paths, this.memory.tables
    table = table_at(paths.table(due.table))
    if due.properties:
        try:
            with _writer_lock(paths):
                session.conf.set(COMMIT_NOTE, maintenance_note(due.app_id))
                try:
                    statement = set_properties_sql(paths.table(due.table), due.properties)
                    _run(session, statement, due.table)
                finally:
                    session.conf.unset(COMMIT_NOTE)
            done.properties = due.properties
        except LockError as error:
            done.skipped = f"its retention could not be set, and it was not vacuumed: {error.what}"
    if due.optimize:
        _optimize(session, table, this.thresholds, done)
        if done.optimized:
            _wait_for_disk(paths, due)
            known[due.table] = known[due.table].changed(now_us())
            _spare_what_is_read(this, due, done)
    if due.vacuum and done.properties == due.properties:
        _wait_for_disk(paths, due)
        _vacuum(this, session, table, due, done)
        if done.vacuum:
            known[due.table] = known[due.table].vacuumed(
                now_us(), retention_us=due.retention_us, is_full=done.vacuum == "full"
            )


def _spare_what_is_read(this: _Round, due: _Due, done: TableMaintenance) -> None:
    """No vacuum takes files that published views read, or the newest cut: of a source at rest that
    is older than the retention, and names a version from before a compaction.
    """
    if not due.vacuum:
        return
    path, cut_us = this.paths.table(due.table), _past(this.cut.published_at_us, now_us())
    if replaces_files(path, due.durable, cut_us, retention_us=due.retention_us):
        reader, following = "the newest cut reads", "the next cut"
    elif this.config.publish is not None and is_read(
        this.paths, due.table, retention_us=due.retention_us
    ):
        reader, following = "published views read", "a publication"
    else:
        return
    due.vacuum = ""
    done.skipped = (
        f"not vacuumed, because {reader} files that it would remove; the next maintenance after "
        f"{following} does it"
    )


@contextmanager
def _writer_lock(paths: LakePaths) -> Iterator[Callable[[], None]]:
    """Wait for a run that is writing. Raise LockError if that takes too long."""
    with ExitStack() as locks:
        yield wait_for_lock(
            lambda: locks.enter_context(writer_lock(paths.lock)), wait_s=_LOCK_WAIT_S
        )


def _wait_for_disk(paths: LakePaths, due: _Due) -> None:
    """Make durable what the last cut does not name. Raises CdcError: the disk fails."""
    table = paths.table(due.table)
    commits = Commits(table, due.durable, log_files(table / LOG_FOLDER)[0])
    for error in make_durable({due.table: commits}, lake=paths.lake).values():
        raise error


def _optimize(
    session: SparkSession, table: str, thresholds: MaintenanceConfig, done: TableMaintenance
) -> None:
    session.conf.set(
        "spark.databricks.delta.optimize.minFileSize", str(thresholds.small_file_bytes)
    )
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(thresholds.file_bytes))
    for left in reversed(range(TRIES)):
        try:
            metrics = _run(session, f"OPTIMIZE {table}", done.table)[0]["metrics"]
        except MergeError as error:
            if not is_conflict(error):
                raise
            if not left:
                done.skipped = (
                    "not compacted, because a run changed the same files each time; the next "
                    "maintenance tries again"
                )
            continue
        done.optimized = True
        done.files_added, done.files_removed = metrics["numFilesAdded"], metrics["numFilesRemoved"]
        return


def _vacuum(
    this: _Round, session: SparkSession, table: str, due: _Due, done: TableMaintenance
) -> None:
    session.conf.set(*_LISTING_TASKS)
    # Never for less than the table's own retention, on which its cuts rely.
    session.conf.set(*_RETAIN_COUNTS)
    retain = f" RETAIN {this.hours_kept} HOURS" if this.hours_kept else ""
    try:
        _run(session, f"VACUUM {table} {due.vacuum.upper()}{retain}", due.table)
        done.vacuum = due.vacuum
    except MergeError as error:
        if due.vacuum == "full" or "VACUUM_LITE" not in str(error):
            raise
        if not due.may_list:
            done.skipped = (
                "not vacuumed, because its log does not go back far enough, and a "
                "full vacuum needs a retention of a day"
            )
            return
        # The log does not reach back to the last vacuum: only a listing shows what can be removed.
        _run(session, f"VACUUM {table} FULL{retain}", due.table)
        done.vacuum = "full"
    done.files_deleted = _files_deleted(this.paths, due)


def _files_deleted(paths: LakePaths, due: _Due) -> int:
    """As the newest VACUUM END commit says."""
    path = paths.table(due.table)
    log = read_table_log(path)
    for version in range(log.version if log is not None else -1, due.version, -1):
        for line in read_commit_lines(path, version) or []:
            info: dict[str, Any] = json.loads(line).get("commitInfo", {})
            if info.get("operation") == "VACUUM END":
                return int(info.get("operationMetrics", {}).get("numDeletedFiles", -1))
    return -1


def _run(session: SparkSession, statement: str, table: str) -> list[Any]:
    try:
        return session.sql(statement).collect()
    except Exception as error:
        what = f"{statement.split(' ', 1)[0]} failed"
        raise reading_failed(error, table=table, what=what) from None


def _remembered(paths: LakePaths) -> _Memory:
    file = paths.state / "maintenance.json"
    try:
        return read_if_there(file, _Memory.model_validate_json, absent=_Memory(), next_step="")
    except (OSError, LakeStateError):
        # A convenience: without it every table is checked as if for the first time.
        return _Memory()


class VacuumState(BaseModel):
    """The last batch that was seen to have changed the table, the first and last change that no
    vacuum has covered, the last vacuum and the last full one (or the first); 0: none.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    app_id: str
    applied_batch: int
    changed_first_us: int | None = 0
    changed_last_us: int
    vacuum_us: int = 0
    full_vacuum_us: int = 0

    def changed(self, now_us: int, *, applied_batch: int | None = None) -> Self:
        first = now_us if self.changed_first_us is None else self.changed_first_us
        batch = self.applied_batch if applied_batch is None else applied_batch
        return self.model_copy(
            update={"applied_batch": batch, "changed_first_us": first, "changed_last_us": now_us}
        )

    def is_due(self, now_us: int, *, retention_us: int, every_us: int) -> bool:
        """Whether a vacuum may find something, and the last one was long enough ago."""
        first = self.changed_first_us
        return (
            first is not None
            and _past(first, now_us) + retention_us <= now_us
            and _past(self.vacuum_us, now_us) + every_us <= now_us
        )

    def is_full_due(self, now_us: int, *, every_us: int) -> bool:
        """Whether that vacuum is to list the folder. The first of a table never is."""
        return self.vacuum_us > 0 and _past(self.full_vacuum_us, now_us) + every_us <= now_us

    def vacuumed(self, now_us: int, *, retention_us: int, is_full: bool) -> Self:
        passed_us = now_us - retention_us
        first = self.changed_first_us
        if first is not None:
            first = None if self.changed_last_us <= passed_us else max(first, passed_us)
            if first is not None and self.changed_first_us == self.changed_last_us:
                first = self.changed_first_us
        full = now_us if is_full or not self.full_vacuum_us else self.full_vacuum_us
        return self.model_copy(
            update={"changed_first_us": first, "vacuum_us": now_us, "full_vacuum_us": full}
        )


def _past(at_us: int, now_us: int) -> int:
    """0 if the clock was ahead when it was noted."""
    return at_us if at_us <= now_us else 0
