"""Read rows of one table again from the server and bring them into its targets.

    ranges of the condition -> view at place P -> capture to P -> one batch at P

Rules:
- The rows of a range are read in a view whose place is known exactly (`view.py`), and written at a
  cut of that moment (`repair.py`). If other runs have captured further meanwhile, the range is read
  again; after the last round its rows stay as the log has them, and are counted.
- A killed process has written some ranges: the same command goes on after them, and says so. Where
  the key has changed since, it begins again.
- Columns that the source has dropped keep the target's values, as in a repair.
- Rows that the server does not have stay. A comparison finds and deletes them (`verify --repair`).
- Only mirrors and soft deletes with a key are supported: other modes cannot take a row without its
  past (K18).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from cdc_pipeline.binlog.decoded import UPDATE, DecodedRows
from cdc_pipeline.binlog.selected import SelectedRows, next_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError, SnapshotError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import (
    Operation,
    OperationFolder,
    Progress,
    TableProgress,
    claimed,
    new_operation_id,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.operations.snapshot.rows import ReadPosition, RowPath
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.operations.verify.captures import Captures, SourceState
from cdc_pipeline.operations.verify.repair import RepairBatch, check_room
from cdc_pipeline.operations.verify.view import ProvenView, ViewLostError, changes_void_it
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.admin_batch import AdminBatch, UnfinishedBatchError
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.source.rows.key_ranges import key_layout, plan_ranges
from cdc_pipeline.source.rows.table_reader import KeyRange
from cdc_pipeline.targets.targets import targets_at

_ROUNDS_MAX: Final = 5


class RepairReport(FrozenModel):
    """`rows_left` could not be written in any round: they are as the log has them."""

    source: str
    table: str
    rows_written: int = 0
    rows_left: int = 0
    rounds: int = 0
    batches: tuple[int, ...] = ()
    seconds: float = 0.0


def repair(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    table: str,
    where: str,
    restart: bool = False,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> RepairReport:
    """Read the rows of a source table that fulfil `where`, in the server's SQL, again. `restart`:
    give up what is unfinished of the table, under any condition.

    Raises ConfigError: the table or condition is refused; SnapshotError: a target cannot take rows
    this way; CdcError: what was written stays.
    """
    if not isinstance(config.source, LiveSourceConfig):
        raise ConfigError(
            "only a running server can provide its rows", setting="source.kind", expected="live"
        )
    started_s = time.monotonic()
    captures = Captures(config, cursors, observer or RunObserver(), run_id)
    report = _Reread(captures, table).run(where, restart=restart)
    return report.model_copy(update={"seconds": time.monotonic() - started_s})


class _Reread:
    def __init__(self, captures: Captures, table: str) -> None:
        self._config = captures.config
        self._table = table
        self._observer = captures.observer
        self._captures = captures

    def run(self, where: str, *, restart: bool) -> RepairReport:
        self._observer.step("capturing the source")
        source_state = self._captures.run()
        new = Operation(
            operation_id=new_operation_id(),
            kind="reread",
            source=self._config.name,
            sources=(self._table,),
            asked={"where": hashlib.sha256(where.encode()).hexdigest()},  # it may hold values (K26)
            cursor=source_state.cursor,
        )
        with (
            claimed(
                self._config,
                "reread",
                lambda: new,
                matches=new.gives_up if restart else new.is_same,
                restart=restart,
                on_waiting=self._captures.waiting,
            ) as (folder, state),
            folder.leaving_nothing(),
        ):
            self._observer.operation_began(state, resumed=state is not new)
            report = self._ranges(where, source_state, folder)
            folder.remove()
            return report

    def _ranges(
        self, where: str, source_state: SourceState, folder: OperationFolder
    ) -> RepairReport:
        with SnapshotSource(self._config, role="verify") as source:
            schema, new_reader = self._schema(source), source.reader
        targets = self._targets(schema, source_state.cut)
        rows_max = self._config.snapshot.chunk_rows
        done = folder.read_progress().tables.get(self._table, TableProgress())
        report = RepairReport(source=self._config.name, table=self._table, rows_written=done.rows)
        with new_reader() as planner:
            layout = key_layout(planner, schema)
            after = done.after if layout == done.layout else None
            for bounds in plan_ranges(planner, schema, rows_max, where=where, after=after):
                report = self._range(bounds, where, targets, report)
                rows, chunks, after = report.rows_written, done.chunks + 1, bounds.upto
                done = TableProgress(rows=rows, chunks=chunks, after=after, layout=layout)
                if not report.rows_left:  # a killed process begins with such a range
                    folder.write_progress(0, Progress(tables={self._table: done}))
                reach("snapshot_chunks")
        return report

    def _schema(self, source: SnapshotSource) -> TableSchema:
        schema = source.schemas([self._table]).get(self._table)
        if schema is None:
            raise ConfigError(
                f"the source shows no table {self._table}, or one with a column of an unknown type",
                setting="table",
                next_step="name a captured table as schema.table, and GRANT SELECT on it",
            )
        return schema

    def _targets(self, schema: TableSchema, cut: Cut) -> list[str]:
        targets = targets_at(self._config, cut)
        following = targets.following(schema.database, schema.table)
        others = [one.name for one in following if keeps_every_change(one.spec.mode, one.spec.key)]
        left = targets.left_behind(schema.database, schema.table)
        if not following or others or left:
            raise SnapshotError(
                f"single rows of {self._table} cannot be repaired",
                table=self._table,
                expected="mirrors and soft deletes by key, which follow the source",
                got=f"targets that keep every change: {', '.join(others)}"
                if others
                else f"suspended targets: {', '.join(left)}"
                if left
                else "no target that follows it",
                next_step="take a new snapshot of the table: "
                f"{new_snapshot(self._config.name, self._table)}",
            )
        return [target.name for target in following]

    def _range(
        self, bounds: KeyRange, where: str, targets: Sequence[str], report: RepairReport
    ) -> RepairReport:
        rows: list[SelectedRows] = []
        before = self._captures.recent()
        for number in range(1, _ROUNDS_MAX + 1):
            self._observer.step(f"reading rows of {self._table}")
            report = report.model_copy(update={"rounds": report.rounds + 1})
            try:
                rows, proved_at = self._read(bounds, where, targets, before)
            except ViewLostError:
                if number == _ROUNDS_MAX:
                    raise
            else:
                count = sum(map(len, rows))
                if not count:
                    return report
                cut = None
                if proved_at is not None:
                    with suppress(UnfinishedBatchError):  # the next capture finishes it
                        cut = self._captures.locked(partial(self._write, rows, targets, proved_at))
                if cut is not None:
                    written = report.rows_written + count
                    batches = (*report.batches, cut.batch_number)
                    return report.model_copy(update={"rows_written": written, "batches": batches})
            before = self._captures.run()
        return report.model_copy(update={"rows_left": report.rows_left + sum(map(len, rows))})

    def _read(
        self, bounds: KeyRange, where: str, targets: Sequence[str], before: SourceState
    ) -> tuple[list[SelectedRows], SourceState | None]:
        """Of one view, and the cut of its moment, if there is one. ViewLostError: read again."""
        view = ProvenView(self._config, self._captures, self._table, targets=targets, before=before)
        if not view.is_proved:
            raise SnapshotError(
                "nothing proves that everything before the cursor is committed",
                setting="gtid_mode",
                expected="GTIDs, or a new journal since then",
                next_step="repair again after FLUSH BINARY LOGS",
            )
        with view.reader() as reader, changes_void_it():
            place = view.begin(reader, "always")
            if place is None:
                reader.begin_view()
            rows = list(reader.select(view.schema, bounds=bounds, where=where))
        self._observer.step("capturing the source")
        after, exact = view.end(place)
        view.check_undisturbed(after)
        return rows, after if exact else None

    def _write(
        self,
        rows: Sequence[SelectedRows],
        targets: Sequence[str],
        proved_at: SourceState,
        locked: AdminBatch,
    ) -> Cut | None:
        repair = RepairBatch(locked)
        if not repair.is_at(proved_at):
            return None
        count = sum(map(len, rows))
        at = proved_at.position
        first = repair.first_place(targets)
        check_room(first, count, table=self._table)
        following = targets_at(self._config, proved_at.cut, proved_at.cursor)
        path = RowPath(following, ReadPosition(at.journal, at.offset, repair.seq, repair.time_us))
        for part in filter(len, rows):
            seq = next_seq(repair.seq, first)
            inserts = part.as_inserts(seq_first=seq, commit_ts_us=repair.time_us)
            path.take(locked.rows, _as_updates(inserts), first=first)
            first += len(part)
        return repair.publish(f"{count:,} rows were read again", table=self._table)


def _as_updates(rows: DecodedRows) -> DecodedRows:
    """An insert keeps nothing of the row that is there."""
    op = np.full(len(rows), UPDATE, np.uint8)
    return replace(rows, op=op, before=rows.after, before_present=rows.after_present)
