"""A sink whose tables are rows in memory: the whole way of the changes in milliseconds, without a
JVM.

Records, cuts, staged files, parked transactions and suspensions are the product's own, on a lake's
disk; only what Delta and Spark do is done here. `MemoryLake` is what outlives a run: give it to
every sink of the same lake.

A table is a list of commits, each of which happens at once: to make it, a step of a DDL, its rows,
a replaced content. A batch that was killed between two of them goes on behind the last one.
`MemoryLake.fault` is called before each. What needs Spark's own judgement (expressions beyond
`spark_expressions`, loads into a history or changelog that keep rows) raises NotInMemoryError.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cdc_pipeline.binlog.seq import journal_number, pack_seq
from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError, LakeStateError, StagingError, UnsupportedDdlError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedContent, RecordedTarget
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.schema.evolution.steps import (
    AddColumn,
    CheckRows,
    Describe,
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
)
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.commit import MERGE_STEP, transaction_version
from cdc_pipeline.sink.delta.data_file import DataLayout
from cdc_pipeline.sink.delta.failures import failure_of
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    DELETED_COLUMN,
    END_COLUMN,
    END_TS_COLUMN,
    OP_COLUMN,
    ORDINAL_COLUMN,
    SEQ_COLUMN,
    TRANSACTION_COLUMN,
    TS_COLUMN,
)
from cdc_pipeline.sink.modes.rescue import with_rescued_column
from cdc_pipeline.sink.protocol import Applied, OnMerged, RowsWithin, TableVersion
from tests.support.memory_modes import Row, applied
from tests.support.spark_expressions import NotInMemoryError, as_type, evaluated

STEPS = ("log", "create", "schema", "rows", "log_after", "register")
"""Where one target can fail, in the order of a batch; ``content`` stands in the place of create and rows."""  # noqa: E501


@dataclass(frozen=True)
class Commit:
    app_id: str
    batch: int | None  # None: made by another program
    name: str
    rows: tuple[Row, ...]


@dataclass
class MemoryTable:
    app_id: str
    commits: list[Commit] = field(default_factory=list)

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.commits[-1].rows if self.commits else ()

    @property
    def version(self) -> int:
        return len(self.commits) - 1

    @property
    def transaction_version(self) -> int:
        """Of the newest commit of this program, as Delta's tables have it."""
        own = [
            commit.batch
            for commit in self.commits
            if commit.app_id == self.app_id and commit.batch is not None
        ]
        return transaction_version(own[-1], MERGE_STEP) if own else -1

    def has(self, app_id: str, batch: int, name: str) -> bool:
        return any(
            (commit.app_id, commit.batch, commit.name) == (app_id, batch, name)
            for commit in self.commits
        )


@dataclass(frozen=True)
class At:
    version: int
    transaction_version: int
    engine: str = ""


@dataclass
class MemoryLake:
    tables: dict[Path, MemoryTable] = field(default_factory=dict)
    fault: Callable[[str, str], None] = lambda _table, _step: None
    machine_fails: Exception | None = None
    registered: list[str] = field(default_factory=list)

    def rows(self, folder: Path, version: int | None = None) -> list[Row]:
        table = self.tables[folder]
        return list(table.rows if version is None else table.commits[version].rows)

    def write(self, folder: Path, *, rows: Sequence[Row] | None = None) -> None:
        """Write to a table as another program would: all that it holds then, or what it held."""
        table = self.tables[folder]
        table.commits.append(
            Commit(table.app_id, None, "write", table.rows if rows is None else tuple(rows))
        )

    def undo(self, folder: Path) -> None:
        self.tables[folder].commits.pop()


class MemoryTables:
    spark_started = False

    def __init__(self, paths: LakePaths, lake: MemoryLake, *, has_catalog: bool) -> None:
        self._paths = paths
        self._lake = lake
        self._has_catalog = has_catalog

    def executor_refusal(self) -> str:
        return ""

    def run_tasks(self, tasks: Sequence[str], work: Callable[[str], str]) -> list[str]:
        """This process is the executor."""
        return [work(task) for task in tasks]

    def recover(self) -> None:
        """Nothing here outlasts a power cut."""

    def cancel(self) -> None:
        """Nothing runs beside the caller."""

    def check(self, cut: Cut, table: str, pending: BatchRecord | None) -> None:
        replaced = pending is not None and any(
            target.table == table and (target.content is not None or target.replaces)
            for target in pending.targets
        )
        there, state = self._table(table), cut.cursor.targets[table]
        if replaced or (table not in cut.tables and there is None):
            return
        if there is None:
            raise _changed(table, self._paths, "a table of the last cut is gone")
        if there.app_id != state.app_id:
            raise _changed(table, self._paths, "another table lies in the target's place")
        if table not in cut.tables:
            return
        named = cut.tables[table].table_version
        if there.version < named:
            raise _changed(table, self._paths, "a table is older than the last cut")
        own = {pending.batch_number} if pending is not None else set()
        if state.suspended is not None:
            own.update(
                number
                for number in range(state.suspended.batch_number, cut.batch_number + 1)
                if any(of.table == table for of in read_record(self._paths, number).targets)
            )
        if any(commit.batch not in own for commit in there.commits[named + 1 :]):
            raise _changed(
                table, self._paths, "a table was changed by something other than this pipeline"
            )

    def roll_back_uncut(self, cut: Cut, table: str) -> int | None:
        there, state = self._table(table), cut.cursor.targets[table]
        if there is None:
            return None
        named = cut.tables.get(table)
        if named is None:
            del self._lake.tables[self._paths.table(table)]
            return None
        if state.suspended is None or not keeps_every_change(named.spec.mode, named.spec.key):
            return None
        own = range(state.suspended.batch_number, cut.batch_number + 1)
        after = there.commits[named.table_version + 1 :]
        return named.table_version if any(commit.batch in own for commit in after) else None

    def failing(
        self, cut: Cut, pending: BatchRecord | None, *, is_locked: bool = False
    ) -> dict[str, LakeStateError]:
        found = {}
        for name in sorted(cut.tables):
            try:
                self.check(cut, name, pending)
            except LakeStateError as error:
                found[name] = error
        return found

    def apply(
        self,
        record: BatchRecord,
        previous: Cut | None,
        *,
        without: Mapping[str, CdcError],
        check_lock: Callable[[], None],
        on_merged: OnMerged = lambda _tables, _of: None,
    ) -> Applied:
        there: dict[str, TableVersion] = {}
        failures: dict[str, CdcError] = {}
        is_proved = False
        for target in record.targets:
            if target.table in without:
                continue
            try:
                self._lake.fault(target.table, "log")
                self._check_others(previous, target)
                is_new = self._apply(record, with_rescued_column(target))
                if is_new:
                    self._lake.fault(target.table, "log_after")
            except Exception as error:
                number = record.batch_number
                failures[target.table] = failure_of(error, table=target.table, batch_number=number)
                continue
            table = self._lake.tables[self._paths.table(target.table)]
            there[target.table] = At(table.version, table.transaction_version)
            is_proved |= is_new
            if is_new:
                reach("between_merges")
                check_lock()
        return Applied(there, failures, is_proved=is_proved)

    def data_layout(self, table: str, spec: TargetSpec) -> DataLayout | None:
        return None

    def make_durable(
        self, record: BatchRecord, previous: Cut | None, there: Mapping[str, TableVersion]
    ) -> dict[str, CdcError]:
        return {}

    def register(
        self, record: BatchRecord, there: Mapping[str, TableVersion]
    ) -> dict[str, CdcError]:
        refused: dict[str, CdcError] = {}
        for target in record.targets if self._has_catalog else ():
            if target.table not in there or not (target.create or target.content is not None):
                continue
            try:
                self._lake.fault(target.table, "register")
                self._lake.registered.append(target.table)
            except Exception as error:
                number = record.batch_number
                refused[target.table] = failure_of(error, table=target.table, batch_number=number)
        return refused

    def check_machine(self, failures: Sequence[CdcError], *, is_proved: bool) -> None:
        if self._lake.machine_fails is not None:
            raise self._lake.machine_fails

    def over_maintenance(self, cut: Cut) -> Cut:
        return cut

    def published(self, previous: Cut | None, there: Mapping[str, TableVersion]) -> None:
        """Every version is kept."""

    def publish(self, cut: Cut, check_lock: Callable[[], None]) -> CdcError | None:
        """Nobody reads these by SQL."""
        return None

    def content_of(
        self, cut: Cut, table: str, *, lake: Path, seq: int, ts_us: int
    ) -> RecordedContent:
        there, state = cut.tables[table], cut.cursor.targets[table]
        folder = self._paths.table(table)
        return RecordedContent(
            path=folder.relative_to(lake).as_posix(),
            version=there.table_version,
            app_id=state.app_id,
            rows=len(self._lake.rows(folder, there.table_version)),
            seq=str(seq),
            ts_us=ts_us,
            rescued_ever=there.rescued_ever,
            column_defaults=there.column_defaults,
        )

    def rows_within(self, table: str, *, low: int, high: int) -> RowsWithin:
        there = self._table(table)
        seqs = [row[SEQ_COLUMN] for row in there.rows] if there is not None else []
        found = [int(seq) for seq in seqs if low <= seq <= high]
        return RowsWithin(len(found), max(found, default=None))

    def forget(self, target: RecordedTarget) -> None:
        """A replacement leaves nothing before its commit."""

    # -- one target --------------------------------------------------------------------------------

    def _table(self, name: str) -> MemoryTable | None:
        return self._lake.tables.get(self._paths.table(name))

    def _apply(self, record: BatchRecord, target: RecordedTarget) -> bool:
        there = self._table(target.table)
        is_other = there is not None and there.app_id not in (target.app_id, target.replaces)
        if is_other and target.content is None:
            raise LakeStateError("another table lies in the target's place", table=target.table)
        is_new = False
        for name, step, change in self._changes(record, target):
            if there is not None and there.has(target.app_id, record.batch_number, name):
                continue
            self._lake.fault(target.table, step)
            rows = change(list(there.rows) if there is not None else [])
            if there is None:
                there = self._lake.tables[self._paths.table(target.table)] = MemoryTable(
                    target.app_id
                )
            there.app_id = target.app_id
            there.commits.append(Commit(target.app_id, record.batch_number, name, tuple(rows)))
            is_new = True
        if there is None:
            raise LakeStateError("the target's table is gone", table=target.table)
        return is_new

    def _check_others(self, previous: Cut | None, target: RecordedTarget) -> None:
        table = None if previous is None else previous.tables.get(target.table)
        there = self._table(target.table)
        goes_on = target.content is None and target.restores < 0
        if previous is None or table is None or there is None or not goes_on:
            return
        since = there.commits[table.table_version + 1 :]
        is_same = previous.cursor.targets[target.table].app_id == there.app_id
        if is_same and any(commit.batch is None for commit in since):
            what = "a table was changed by something other than this pipeline"
            raise _changed(target.table, self._paths, what)

    def _changes(
        self, record: BatchRecord, target: RecordedTarget
    ) -> Iterator[tuple[str, str, Callable[[list[Row]], list[Row]]]]:
        """Name, kind of step, and a function from the rows before to those after."""
        there = self._table(target.table)
        if target.content is not None:
            yield "content", "content", lambda rows: self._replaced(record, target, rows)
        elif target.replaces and not (there is not None and there.app_id == target.app_id):
            yield "replace", "create", lambda _rows: []
        elif target.create and (
            there is None or there.has(target.app_id, record.batch_number, "create")
        ):
            yield "create", "create", lambda _rows: []
        if target.restores >= 0:
            assert there is not None
            yield "restore", "rows", lambda _rows: list(there.commits[target.restores].rows)
        for at, step in enumerate(target.schema_steps):
            yield (
                f"step {at}",
                "schema",
                lambda rows, step=step: _after_step(record, target, step, rows),
            )
        if target.files:
            yield "rows", "rows", lambda rows: applied(target, rows, self._staged(target))

    def _staged(self, target: RecordedTarget) -> list[Row]:
        found: list[Row] = []
        for file in target.files:
            path = verify(file, lake=self._paths.lake, table=target.table)
            # A few rows: threads and a dataset cost more than reading them.
            with pq.ParquetFile(storage_of(path).arrow_source(path)) as rows:
                found += rows.read(use_threads=False).to_pylist(maps_as_pydicts="strict")
        if target.schema_steps:
            raise StagingError(
                "a batch has both a change of a target's columns and rows of it", table=target.table
            )
        return found

    def _replaced(self, record: BatchRecord, target: RecordedTarget, there: list[Row]) -> list[Row]:
        content = target.content
        assert content is not None
        side = self._lake.tables[self._paths.lake / content.path]
        loaded = list(side.commits[content.version].rows)
        if content.carried:
            by_key = {_key(target, row): row for row in there}
            loaded = [
                {
                    **row,
                    **{
                        name: by_key.get(_key(target, row), {}).get(name)
                        for name in content.carried
                    },
                }
                for row in loaded
            ]
        if not content.keeps_rows:
            return loaded
        if target.spec.mode != "soft_delete":
            raise NotInMemoryError(f"a load into a {target.spec.mode} that keeps rows")
        cursor = record.cursor_after
        place = pack_seq(cursor.epoch, journal_number(cursor.journal), cursor.offset)
        moment = max(record.source_time_us, content.ts_us)
        marked = {
            OP_COLUMN: "delete",
            SEQ_COLUMN: place,
            TS_COLUMN: _instant(moment),
            DELETED_COLUMN: True,
        }
        known = {_key(target, row) for row in loaded}
        gone = [row for row in there if _key(target, row) not in known]
        return [*loaded, *(row if row[DELETED_COLUMN] else {**row, **marked} for row in gone)]


def memory_sink(lake: MemoryLake, *, source: str, config: SinkConfig) -> Sink:
    """A sink over tables in memory, made as a `DeltaSink` is."""
    paths = LakePaths(config.lake_path.absolute(), source)
    tables = MemoryTables(paths, lake, has_catalog=config.catalog is not None)
    return Sink(paths, tables=tables, cut_retention=config.cut_retention)


def _changed(table: str, paths: LakePaths, what: str) -> LakeStateError:
    return LakeStateError(
        what, table=table, next_step=f"`cdc-pipeline verify {paths.source} --table {table}`"
    )


def _key(target: RecordedTarget, row: Row) -> Any:
    return tuple(row[name] for name in target.spec.key)


def _instant(us: int) -> Any:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)


# -- steps of a DDL --------------------------------------------------------------------------------


def _after_step(
    record: BatchRecord, target: RecordedTarget, step: Step, rows: list[Row]
) -> list[Row]:
    if isinstance(step, RemoveRows):
        return _removed(record, target, step, rows)
    if isinstance(step, CheckRows):
        if target.spec.mode != "changelog" and any(
            evaluated(step.condition, row) is False for row in rows
        ):
            raise UnsupportedDdlError(
                f"the source may have rewritten values without row events: {step.reason}",
                table=target.table,
            )
        return rows
    if isinstance(step, Describe):  # rows alone are held here
        return rows
    changed = [_changed_row(target, step, row) for row in rows]
    if target.spec.mode != "changelog":
        return changed
    return [
        row
        if row[BEFORE_COLUMN] is None
        else {**row, BEFORE_COLUMN: _changed_row(target, step, row[BEFORE_COLUMN])}
        for row in changed
    ]


def _changed_row(target: RecordedTarget, step: Step, row: Row) -> Row:
    if isinstance(step, AddColumn):
        return {**row, step.name: None}
    if isinstance(step, DropColumn):
        return {name: value for name, value in row.items() if name != step.name}
    if isinstance(step, RenameColumn):
        return {step.new_name if name == step.name else name: value for name, value in row.items()}
    if isinstance(step, WidenColumn):
        return {**row, step.name: as_type(row[step.name], step.delta_type)}
    assert isinstance(step, FillColumns)
    is_live = row.get(END_COLUMN) is None and not row.get(DELETED_COLUMN)
    made = {
        name: as_type(evaluated(text, row), kind)
        for name, kind, text in step.values
        if name not in step.defaults or (is_live and target.spec.mode != "changelog")
    }
    return {**row, **made}


def _removed(
    record: BatchRecord, target: RecordedTarget, step: RemoveRows, rows: list[Row]
) -> list[Row]:
    seq, moment = int(step.seq), _instant(step.ts_us)
    if target.spec.mode == "mirror":
        return []
    if target.spec.mode == "soft_delete":
        told = {DELETED_COLUMN: True, OP_COLUMN: "delete", SEQ_COLUMN: seq, TS_COLUMN: moment}
        return [row if row[DELETED_COLUMN] else {**row, **told} for row in rows]
    if target.spec.mode == "history":
        told = {END_COLUMN: seq, END_TS_COLUMN: moment}
        return [row if row[END_COLUMN] is not None else {**row, **told} for row in rows]
    begin = str(record.interval.start)
    own = {
        OP_COLUMN: "truncate",
        SEQ_COLUMN: seq,
        TS_COLUMN: moment,
        TRANSACTION_COLUMN: step.transaction or begin,
        ORDINAL_COLUMN: 0,
        BEFORE_COLUMN: None,
        ABSENT_COLUMN: None,
        BEFORE_ABSENT_COLUMN: None,
    }
    return [*rows, {**{column.name: None for column in target.spec.columns}, **own}]
