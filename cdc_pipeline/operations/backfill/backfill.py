"""Replay a range of old journals for chosen tables into a separate lake (K18).

Rules:
- Old rows must not reach a live table: a mirror would drop them, or restore deleted keys. They go
  into a side lake (`lake.py`), by the captures that fill any lake.
- The main lake's cursor, lock and tables are not touched: a backfill runs beside the schedule.
- The range is fixed before the first event is read. A killed backfill resumes where it stopped;
  after a finished one, the next run reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cdc_pipeline.clock import microseconds_of
from cdc_pipeline.config.pipeline_config import (
    ArchiveSourceConfig,
    Bound,
    GtidBoundConfig,
    LiveSourceConfig,
    PipelineConfig,
    PositionConfig,
    Start,
)
from cdc_pipeline.config.pipeline_config import TimeBoundConfig as TimeBound
from cdc_pipeline.errors import ConfigError, PositionError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import (
    Operation,
    OperationFolder,
    Progress,
    TableProgress,
    claim,
    claimed,
    new_operation_id,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.backfill.lake import BackfillLake, as_text, parallel_without_archive
from cdc_pipeline.position.cursor import ResumePlace
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.lookup import search_by_time
from cdc_pipeline.position.start.start import resolve_start
from cdc_pipeline.run.capture.commit import cursor_state
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.run.capture.summary import RunSummary, batches_text
from cdc_pipeline.run.observer import RelayObserver, RunObserver
from cdc_pipeline.run.plan.limits import executed_before
from cdc_pipeline.run.report import CaptureReport, ParallelReport, TableReport
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.source.protocol import Source


class BackfillReport(FrozenModel):
    """`partial`: targets whose tables existed before the range (K19): they hold its changes alone;
    `capture`: that filled the lake, or followed the parallel part; None if that was done before.
    """

    source: str
    outcome: Literal["applied", "nothing_new"]
    reason: str
    lake: str
    tables: tuple[str, ...]
    start: ResumePlace
    end: ResumePlace
    partial: tuple[str, ...] = ()
    tables_changed: dict[str, TableReport] = Field(default_factory=dict)
    batches: int = 0
    capture: CaptureReport | None = None
    parallel: ParallelReport | None = None


def backfill(
    config: PipelineConfig,
    *,
    tables: Sequence[str],
    into: str | Path,
    start: Start = "earliest",
    end: Bound = "end_of_log",
    archive: Path | None = None,
    parallel: Parallel | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> BackfillReport:
    """Replay a range of the log for chosen tables into a side lake. A transaction's GTID as `end`
    is its last; `archive`: journals to read in place of the source.

    Raises ConfigError: tables, bounds or a side lake that do not fit; LockError: another process is
    filling it; CdcError: as a capture; the same call resumes there.
    """
    if not isinstance(end, PositionConfig | GtidBoundConfig | TimeBound) and end != "end_of_log":
        raise ConfigError(
            "the end of a backfill must be a position of the log",
            setting="to",
            expected="a journal and an offset, a GTID, or a time",
            got=as_text(end),
            next_step="give such an end, or none to use the end of the log",
        )
    if parallel is not None and archive is None and isinstance(config.source, LiveSourceConfig):
        raise parallel_without_archive()
    observer = observer or RunObserver()
    side = BackfillLake(config, path=into, tables=tables, archive=archive)
    asked = {"into": side.path, "from": as_text(start), "to": as_text(end)}

    def new() -> Operation:
        with ExitStack() as stack:  # what filled a lake that was removed
            claim(config, "backfill", stack, matches=side.is_of, restart=lambda _: None)
        state = _resolved(side, asked, start=start, end=end)
        if archive is not None:
            state = state.model_copy(update={"archive": str(archive.absolute())})
        side.mark(state.operation_id)
        return state

    with claimed(
        config,
        "backfill",
        new,
        matches=lambda state: side.is_of(state) and side.made_by == state.operation_id,
        on_waiting=lambda holder: observer.step(f"waiting for another operation ({holder})"),
    ) as (folder, state):
        side.check_same(state, asked)
        if state.is_over:
            place = f"its lake is at the end of its range, {state.end}"
            reason = f"the backfill was done before: {place}"
            return _report(side, state, outcome="nothing_new", reason=reason)
        with folder.leaving_nothing(unless=side.is_begun):
            return _fill(side, folder, state, parallel, observer, run_id)


def _fill(
    side: BackfillLake,
    folder: OperationFolder,
    state: Operation,
    parallel: Parallel | None,
    observer: RunObserver,
    run_id: str,
) -> BackfillReport:
    counting = _CountingObserver(observer, folder)
    lake = side.filling(state, observer=counting, run_id=run_id)
    report, done = lake.capture(parallel=parallel), counting.done
    cursor = report.cursor
    assert cursor is not None  # a capture that ends well leaves one
    partial = tuple(sorted(name for name, target in cursor.targets.items() if target.partial))
    reason = (
        f"{done.rows:,} row changes in {batches_text(done.batches)}"
        if done.batches
        else report.reason
    )
    seen = {
        name
        for target in cursor.targets.values()
        for name in (*target.source_names, *(target.origin or ()))
    }
    unseen = [name for name in state.sources if name not in seen]
    state = state.model_copy(update={"end": cursor.position, "partial": partial})
    folder.finish(state)
    return _report(
        side,
        state,
        outcome="applied" if done.batches else report.outcome,
        reason=f"{reason}; the range has no change of {', '.join(unseen)}" if unseen else reason,
        tables_changed=done.tables(),
        batches=done.batches,
        capture=report,
        parallel=None if parallel is None else report.parallel or ParallelReport(),
    )


class _CountingObserver(RelayObserver):
    def __init__(self, observer: RunObserver, folder: OperationFolder) -> None:
        super().__init__(observer)
        self.done = RunSummary()
        self._folder = folder
        self._before = folder.read_progress().tables

    def published(self, cut: Cut) -> None:
        self.done.add(cut)
        tables = dict(self._before)
        for name, table in self.done.tables().items():
            changes = table.rows_inserted + table.rows_updated + table.rows_deleted
            before = self._before.get(name, TableProgress()).rows
            tables[name] = TableProgress(rows=before + changes)
        place = cut.cursor.position
        self._folder.write_progress(
            0, Progress(tables=tables, high_journal=place.journal, high_offset=place.offset)
        )
        super().published(cut)


def _report(side: BackfillLake, state: Operation, **more: Any) -> BackfillReport:
    assert state.end is not None  # it is over
    return BackfillReport(
        source=side.main.name,
        lake=side.path,
        tables=state.sources,
        start=state.cursor.position,
        end=state.end,
        partial=state.partial,
        **more,
    )


def _resolved(side: BackfillLake, asked: dict[str, str], *, start: Start, end: Bound) -> Operation:
    with closing(build_source(side.config)) as source:
        source.check()
        log_end = source.end_position()
        first = resolve_start(cursor=None, start=start, source=source).position
        last = last_of(side.config, end, first=first, log_end=log_end, source=source)
        identity = source.identity
    return Operation(
        operation_id=new_operation_id(),
        kind="backfill",
        source=side.main.name,
        sources=side.tables,
        asked=asked,
        cursor=cursor_state(side.main.name, identity, first),
        end=last,
    )


def last_of(
    config: PipelineConfig, end: Bound, *, first: Position, log_end: Position, source: Source
) -> Position | None:
    """None if only a transaction's name, or reading, tells. PositionError: outside the log."""
    if isinstance(end, GtidBoundConfig):
        if executed_before(end, start=first, log_end=log_end, flavor=source.identity.flavor):
            raise PositionError(
                "the last transaction of the range was executed before its start",
                at=first,
                setting="to",
                expected=f"a transaction after {first}",
                got=end.gtid,
                next_step="give an earlier --from, or a later --until",
            )
        return None
    last = log_end
    if isinstance(end, PositionConfig):
        last = Position(end.journal, end.offset)
        if last.order > log_end.order:
            raise PositionError(
                "the end lies beyond the end of the log",
                at=end,
                setting="to",
                expected=f"at most {log_end}",
                next_step="omit --until: the backfill then ends at the current end of the log",
            )
        source.validate_position(last)
    elif not isinstance(end, str) and isinstance(end, TimeBound):
        # Before the first transaction that was committed after the moment.
        after_us = microseconds_of(end.time) + 1
        last = search_by_time(source, t_us=after_us, end=log_end) or log_end
    elif isinstance(config.source, ArchiveSourceConfig):
        try:
            source.validate_position(last)
        except PositionError:
            return None  # the last journal is damaged: the capture meets it and reports it
    if last.order < first.order:
        raise PositionError(
            "the range would end before it begins",
            setting="to",
            expected=f"an end at or after {first}",
            got=str(last),
            next_step="give an earlier --from, or a later --until",
        )
    return last
