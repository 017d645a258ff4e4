"""Summary of a run: its interval, its tables, and why it ended where it did.

Rules:
- A run keeps of its past only counters and the latest cut, so that its memory does not grow with
  its batches (K25). The lake has the cuts themselves.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from cdc_pipeline.lake.records import Cut, CutTable, Interval, Note
from cdc_pipeline.run.capture.capture_session import CaptureContext
from cdc_pipeline.run.capture.reader import ReadResult
from cdc_pipeline.run.decode.schemas import Schemas
from cdc_pipeline.run.plan.resolved_run import LOG_END, ResolvedRun
from cdc_pipeline.run.recovery import Recovered
from cdc_pipeline.run.report import (
    CaptureReport,
    ParallelReport,
    TableReport,
    needed_position,
    quarantined,
)
from cdc_pipeline.schema.evolution.steps import DdlDecision

ENTRIES_KEPT_MAX: Final = 1000
_COUNTS: Final = ("rows_inserted", "rows_updated", "rows_deleted", "rescued_rows")
_Entry = TypeVar("_Entry", DdlDecision, Note)


class RunSummary:
    """`interval` covers idle parts, too; of `ddl` and `notes` `ENTRIES_KEPT_MAX` are kept."""

    def __init__(self) -> None:
        self.batches = 0
        self.latest: Cut | None = None
        self.interval: Interval | None = None
        self.rows = 0
        self.ddl: list[DdlDecision] = []
        self.notes: list[Note] = []
        self.entries_omitted = 0
        self._changes: dict[str, TableReport] = {}
        self._stands: dict[str, tuple[int, bool]] = {}  # Delta version, partial

    def add(self, cut: Cut) -> None:
        self.batches += 1
        self.latest = cut
        for name, table in cut.tables.items():
            self._stands[name] = table.table_version, cut.cursor.targets[name].partial
            if table.row_changes or table.rescued_rows or table.engine:
                self._count(name, table)
                self.rows += table.row_changes
        self.moved(cut.interval, cut.ddl, cut.notes)

    def moved(self, interval: Interval, ddl: Sequence[DdlDecision], notes: Sequence[Note]) -> None:
        self.interval = interval if self.interval is None else self.interval.then(interval)
        self._keep(self.ddl, ddl)
        self._keep(self.notes, notes)

    def join(self, other: RunSummary) -> None:
        """Count another part of the same run, except for its interval."""
        self.batches += other.batches
        self.rows += other.rows
        for name, changes in other._changes.items():
            self._count(name, changes)
        if self.latest is None or (
            other.latest is not None and other.latest.batch_number > self.latest.batch_number
        ):
            self.latest = other.latest
            self._stands = self._stands | other._stands
        else:
            self._stands = other._stands | self._stands
        self._keep(self.ddl, other.ddl)
        self._keep(self.notes, other.notes)
        self.entries_omitted += other.entries_omitted

    def tables(self) -> dict[str, TableReport]:
        return {
            name: self._changes.get(name, TableReport()).model_copy(
                update={"delta_version": version, "partial": partial}
            )
            for name, (version, partial) in self._stands.items()
        }

    def _count(self, name: str, changes: TableReport | CutTable) -> None:
        before = self._changes.get(name, TableReport())
        engines = {*before.engine.split(", "), *changes.engine.split(", ")} - {""}
        self._changes[name] = TableReport(
            rescued=dict(Counter(before.rescued) + Counter(changes.rescued)),
            engine=", ".join(sorted(engines)),
            **{count: getattr(before, count) + getattr(changes, count) for count in _COUNTS},
        )

    def _keep(self, kept: list[_Entry], entries: Sequence[_Entry]) -> None:
        taken = entries[: ENTRIES_KEPT_MAX - len(kept)]
        kept.extend(taken)
        self.entries_omitted += len(entries) - len(taken)


@dataclass(frozen=True, slots=True)
class RunState(Recovered):
    """What it suspends itself is not retried at once. `main`: what was published with the cursor;
    `others` moved none. `schemas`: of a session that read in sequence; None if executors have
    since.
    """

    main: RunSummary = field(default_factory=RunSummary)
    others: tuple[RunSummary, ...] = ()
    read: ReadResult = field(default_factory=ReadResult)
    parallel: ParallelReport | None = None
    schemas: Schemas | None = None

    def after(self, done: RunSummary) -> RunState:
        cut = done.latest
        if cut is None:
            return self
        reason = f"{self.cursor_reason}; batch {cut.batch_number} moved no cursor"
        return replace(
            self, cut=cut, cursor=cut.cursor, cursor_reason=reason, others=(*self.others, done)
        )


def whole_interval(done: Interval | None, resolved: ResolvedRun) -> Interval:
    """From the run's planned start to the end of its batches."""
    nothing = Interval(start=resolved.start, end=resolved.start)
    return nothing if done is None else nothing.then(done)


def _reason_of(
    done: RunSummary, interval: Interval, resolved: ResolvedRun, *, limit_reached: bool
) -> str:
    plan, limit = resolved.plan, resolved.limit
    if resolved.start.order == resolved.end.order:
        ended = ""
        reason = f"{plan.identity} is at {resolved.end}, and so is the cursor"
        if plan.end_reason != LOG_END:
            reason = f"the run would end at {resolved.start}, where it starts: {plan.end_reason}"
    else:
        ended = f"at {plan.end_reason if limit is None else LOG_END}"
        if limit is not None and limit_reached:
            ended = limit.text
        reason = (
            f"{plan.identity} moved from {resolved.start} to "
            f"{interval.end}: {interval.transactions_seen} "
            "transactions, none of which changes a captured table"
        )
    if done.batches:
        reason = (
            f"{done.rows:,} row change{'' if done.rows == 1 else 's'} in "
            f"{batches_text(done.batches)}"
        )
    return f"{reason}; the run ended {ended}" if ended else reason


def batches_text(count: int) -> str:
    return f"{count:,} batch{'' if count == 1 else 'es'}"


def report_of(context: CaptureContext, state: RunState, resolved: ResolvedRun) -> CaptureReport:
    interval, cursor = whole_interval(state.main.interval, resolved), state.cursor
    read = None if context.positions is None else context.positions.dumped
    done = RunSummary()
    if state.finished is not None:
        done.add(state.finished)
    for part in (state.main, *state.others):
        done.join(part)
    if cursor is not None and cursor.position.order != resolved.start.order:
        # What is applied was read, even if a bound ended the run before the buffer could report it.
        read = cursor.position if read is None or read.order < cursor.position.order else read
    return CaptureReport(
        source=context.config.name,
        outcome="applied" if done.batches else "nothing_new",
        reason=_reason_of(done, interval, resolved, limit_reached=state.read.limit_reached),
        plan=resolved.plan,
        interval=interval,
        recovered_batch=state.finished.batch_number if state.finished is not None else None,
        batches=done.batches,
        tables=done.tables(),
        unfinished_transactions=state.read.dropped,
        ddl=tuple(done.ddl),
        notes=tuple(done.notes),
        entries_omitted=done.entries_omitted,
        suspended=cursor.suspended if cursor is not None else {},
        quarantine=quarantined(state.cut),
        cursor=cursor,
        cursor_reason=state.cursor_reason,
        read_up_to=read,
        applied_up_to=None if cursor is None else cursor.position,
        oldest_needed=needed_position(cursor),
        seconds=time.monotonic() - context.began_s,
        cpu_seconds=time.process_time() - context.began_cpu_s,
        spark_started=context.sink.spark_started,
        parallel=state.parallel,
    )
