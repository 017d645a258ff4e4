"""Run one bounded capture from start to end.

    lock -> recover -> plan -> read | interpret, stage, publish -> catch up -> report

Each step takes the state that the step before it has left, and returns the next one.

Rules:
- One capture of a source runs at a time (K16: one writer); the lock ends with the process.
- A recorded batch is finished first, from its own files, before anything is requested from the
  source (K2).
- A run that applies nothing starts no JVM and says why there was nothing: "nothing new" is proved,
  never assumed.
- A run that leaves a target suspended fails at its end, with everything else applied (K4). Targets
  suspended earlier are caught up after the main capture; a run of chosen tables does nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import ConfigError, LakeStateError, PositionError
from cdc_pipeline.lake.prepared import oldest_begin
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.lake.suspensions import suspension
from cdc_pipeline.pipeline.capture.catch_up import CatchUp
from cdc_pipeline.pipeline.capture.commit import Committer, cursor_state
from cdc_pipeline.pipeline.capture.drain import Drain, Drained
from cdc_pipeline.pipeline.capture.stretch import CaptureContext, LogSection, before_begin, open_stretch
from cdc_pipeline.pipeline.capture.summary import RunSummary, reason_of, whole_interval
from cdc_pipeline.pipeline.capture.suspension import plan_to_cursor, suspended_error
from cdc_pipeline.pipeline.decode.schemas import schemas_of
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.plan.planning import resolve
from cdc_pipeline.pipeline.plan.reconcile import Reconciled
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.pipeline.plan.server_switch import overlap_of
from cdc_pipeline.pipeline.plan.starting import ChosenServer, choose, counted
from cdc_pipeline.pipeline.plan.unmatched import nothing_matched
from cdc_pipeline.pipeline.publish import cursor_metadata, empty_interval, start_metadata
from cdc_pipeline.pipeline.recovery import Recovered, recover
from cdc_pipeline.pipeline.report import CaptureReport, LogPlace, needed_place, quarantined
from cdc_pipeline.pipeline.targets.routes import Routes
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.pipeline.wiring import build_dump_errors, build_sink, build_source
from cdc_pipeline.position.cursor import CursorState, CursorStore, Suspension
from cdc_pipeline.position.dump_errors import DumpErrors, DumpErrorStore
from cdc_pipeline.position.failback import MAIN_CONSUMER, AckedPositions, DumpedPosition, FailbackPositions
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.start import StartDecision
from cdc_pipeline.sink.protocol import Sink
from cdc_pipeline.source.protocol import Source


def capture(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    bound: Bound | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
    tables: Sequence[str] | None = None,
    sink: Sink | None = None,
) -> CaptureReport:
    """Capture from the cursor to the bound, and bring the lake's tables up to it.

    Args:
        config: the pipeline.
        cursors: where the cursor is read from and committed to.
        bound: where to stop; the configuration's bound by default.
        observer: receives the progress.
        run_id: of the orchestrator's run, kept in the records.
        tables: only catch these up, if they are suspended; the cursor does not move (K4).
        sink: in place of the configuration's own; its creator hears of its fault points.

    Raises:
        LockError: another capture of this source is running.
        TargetSuspendedError: some tables (of `tables`) are suspended; everything else is done.
        NothingMatchedError: patterns of tables have never matched one; everything else is done.
        CdcError: everything else; the error says what to do; what came before it is merged and
            acked to the last whole transaction.
    """
    if tables is not None and bound is not None:
        raise ConfigError(
            "a run of chosen tables has no bound: it brings them to where the cursor stands",
            setting="bound",
            next_step="leave the bound out, or start a run of the whole source",
        )
    started = (time.monotonic(), time.process_time())
    observer = observer or RunObserver()
    sink = sink or build_sink(config)
    dump_errors = build_dump_errors(config)
    dumped, acked = DumpedPosition(), AckedPositions({MAIN_CONSUMER: cursors})
    context = CaptureContext(config, sink, acked.store(), observer, run_id)
    with files_failing(config.sink.lake_path), sink.lock(), counted(dump_errors):
        state = _recover(context)
        server = choose(config)
        if tables is not None:
            tables = _chosen(config, state.cursor, tables)
            resolved = _plan_to_cursor(context, state.cursor)
            state = _catch_up(context, state, tables, server=server)
            report = _report(context, state, resolved, read=None, started=started)
            check_suspended(state.cursor, tables)
            return _of_chosen(report, tables, resolved)
        with closing(build_source(server.config)) as source:
            bound = bound or config.bound
            resolved = _plan(context, state, bound, source=source, server=server, dump_errors=dump_errors)
            if resolved.start.order != resolved.end.order:
                on_position = FailbackPositions(dumped, acked).persist
                state = _read_and_drain(context, state, resolved, source=source, on_position=on_position)
            else:
                state = _hold_start(context, state, resolved, source=source)
        state = _catch_up(context, state, state.suspended_before, server=server)
        report = _report(context, state, resolved, read=dumped.latest(), started=started)
        check_suspended(state.cursor)
        check_matched(config, state, resolved)
        return report


@dataclass(frozen=True, slots=True)
class RunState:
    """A run between two of its steps.

    Attributes:
        cut: the last one; None before the first.
        cursor: None before the first.
        cursor_reason: how the cursor was found (K3).
        finished: the cut of a batch that an earlier run had recorded.
        suspended_before: targets that earlier runs suspended. One that this run suspends is not
            retried at once.
        main: what was published with the cursor.
        others: what batches published that moved no cursor.
        drained: what the reading came to.
    """

    cut: Cut | None
    cursor: CursorState | None
    cursor_reason: str
    finished: Cut | None
    suspended_before: frozenset[str]
    main: RunSummary = field(default_factory=RunSummary)
    others: tuple[RunSummary, ...] = ()
    drained: Drained = field(default_factory=Drained)

    def after(self, done: RunSummary) -> RunState:
        """Return the state after batches that moved no cursor."""
        cut = done.latest
        if cut is None:
            return self
        reason = f"{self.cursor_reason}; batch {cut.batch_number} moved no cursor"
        return replace(self, cut=cut, cursor=cut.cursor, cursor_reason=reason, others=(*self.others, done))


# -- recover ---------------------------------------------------------------------------------------


def _recover(context: CaptureContext) -> RunState:
    """Bring lake and cursor to one state: finish what is recorded, remove what is not (K2, K3)."""
    sink, is_followed = context.sink, Routes(context.config).is_followed

    def failing(cut: Cut) -> dict[str, LakeStateError]:
        # Perhaps all of them: the remedies that their errors name need a source that goes on (K22).
        states = cut.cursor.targets
        return {name: error for name, error in sink.failing_targets(cut).items() if is_followed(states[name])}

    found = recover(sink, cursors=context.cursors, observer=context.observer, failing_of=failing)
    cursor = found.reconciled.cursor
    sink.discard_parked(None if found.cut is None else found.cut.cursor, cursor)
    state = RunState(found.cut, cursor, found.reconciled.reason, found.finished, found.suspended_before)
    return state.after(_leave_behind(context, found))


def _leave_behind(context: CaptureContext, found: Recovered) -> RunSummary:
    """Suspend targets whose Delta tables are not as expected; drop those no longer captured."""
    done = RunSummary()
    cut, cursor = found.cut, found.reconciled.cursor
    if cut is None or cursor is None:
        return done
    is_followed = Routes(context.config).is_followed
    dropped = [name for name, target in cursor.targets.items() if not is_followed(target)]
    new: dict[str, Suspension | None] = {
        name: suspension(
            error,
            batch_number=cursor.batch_number + 1,
            at=before_begin(cursor.position, oldest_begin(cursor.open_xa, epoch=cursor.epoch)),
            epoch=cursor.epoch,
            needs_reload=True,
        )
        for name, error in found.failing.items()
        if name not in cursor.suspended
    }
    if new or dropped:
        text = "not captured any more: its target has left the cursor"
        notes = [Note(kind="dropped", text=text, table=name) for name in dropped]
        done.add(context.admin_batch(cut, cursor).suspend(new, dropped=dropped, notes=notes))
    return done


# -- plan ------------------------------------------------------------------------------------------


def _plan(
    context: CaptureContext,
    state: RunState,
    bound: Bound,
    *,
    source: Source,
    server: ChosenServer,
    dump_errors: DumpErrorStore,
) -> ResolvedRun:
    """Fix start and end before anything is read."""
    source.check()
    resolved = resolve(
        context.config,
        source=source,
        reconciled=Reconciled(state.cursor, state.cursor_reason, False),
        cut=state.cut,
        bound=bound,
        server=server,
        dump_errors=dump_errors.read(),
        overlap=overlap_of(context.config, source=source, cursor=state.cursor),
    )
    if resolved.decision is not None and resolved.decision.resets_dump_errors:
        dump_errors.write(DumpErrors())
    context.observer.planned(resolved.plan)
    return resolved


# -- read, interpret, stage, publish ---------------------------------------------------------------


def _read_and_drain(
    context: CaptureContext,
    state: RunState,
    resolved: ResolvedRun,
    *,
    source: Source,
    on_position: Callable[[Position], None],
) -> RunState:
    """Run reader and drain, two threads around the store."""
    config, cursor = context.config, state.cursor
    stretch = open_stretch(
        context,
        LogSection(resolved, source, TableFilter(config.tables), cursor, is_sources_own=True),
        targets=Targets(config, state.cut, shadows={} if cursor is None else cursor.shadows),
        parking=context.sink.parking(epoch=resolved.epoch, open_xa=() if cursor is None else cursor.open_xa),
    )
    committer = Committer(context, stretch, start_reasons=resolved.plan.start_reasons)
    drained = Drain(context, stretch, committer, on_position=on_position).run()
    done = committer.done
    return replace(state, cut=done.latest or state.cut, cursor=committer.cursor, main=done, drained=drained)


def _hold_start(context: CaptureContext, state: RunState, resolved: ResolvedRun, *, source: Source) -> RunState:
    """Finish a run that has nothing to read.

    A first run keeps its start nonetheless, so that `latest` does not move on until the next
    run. So does a run that has switched to another server.

    Raises:
        PositionError: that server lags behind what was applied (K7).
    """
    before, at = state.cursor, resolved.start
    if before is not None and not resolved.turns_to_another_server:
        return state
    if resolved.decision is not None and resolved.decision.overlap_until_us is not None:
        raise PositionError(
            "the log of the server that was switched to ends before what was applied: it lags",
            journal=at.journal,
            offset=at.offset,
            expected=f"a commit after {resolved.decision.overlap_until_us} (microseconds since 1970)",
            got="the end of its log",
            next_step="run again when it has caught up. Nothing was published, and the cursor has not moved",
        )
    if before is None:
        schemas_of(context.config, source=source, run=resolved, cursor=None).begin()
    cursor = cursor_state(
        context.config.name,
        source.identity,
        at,
        batch_number=0 if before is None else before.batch_number,
        epoch=resolved.epoch,
        open_xa=() if before is None else before.open_xa,
        targets=None if before is None else before.targets,
    )
    metadata = cursor_metadata(empty_interval(at), None)
    context.cursors.write(cursor, metadata | start_metadata(resolved.plan.start_reasons))
    return replace(state, cursor=cursor)


# -- catch up --------------------------------------------------------------------------------------


def _catch_up(context: CaptureContext, state: RunState, tables: Collection[str], *, server: ChosenServer) -> RunState:
    """Bring those of some targets that earlier runs suspended to the cursor."""
    names = sorted(state.suspended_before.intersection(tables))
    if not names or state.cut is None or state.cursor is None:
        return state
    return state.after(CatchUp(context, server=server.config, cut=state.cut, cursor=state.cursor).run(names))


def _chosen(config: PipelineConfig, cursor: CursorState | None, tables: Sequence[str]) -> Sequence[str]:
    """Return the targets of chosen tables.

    Raises:
        ConfigError: a table that is not captured, or nothing was captured yet.
    """
    targets = cursor.targets if cursor is not None else {}
    captured = set(TableFilter(config.tables).captured_names([name for name in tables if "." in name]))
    unknown = [name for name in tables if name not in captured and name not in targets]
    if unknown or cursor is None:
        raise ConfigError(
            f"no such table is captured: {', '.join(unknown)}" if unknown else "nothing was captured yet",
            setting="tables",
            expected="captured tables of a source that was captured before",
            next_step="name tables as schema.table, or start a run of the whole source",
        )
    return [name for name, state in targets.items() if not {name, *state.source_names}.isdisjoint(tables)] or tables


def _plan_to_cursor(context: CaptureContext, cursor: CursorState | None) -> ResolvedRun:
    """Plan a run of chosen tables, which reads nothing for the source itself."""
    assert cursor is not None
    plan, end = plan_to_cursor(context.config, cursor), cursor.position
    context.observer.planned(plan)
    return ResolvedRun(
        plan=plan,
        decision=StartDecision(end, ()),
        epoch=cursor.epoch,
        start=end,
        end=end,
        limit=None,
        ends_anywhere=False,
    )


# -- report ----------------------------------------------------------------------------------------


def _report(
    context: CaptureContext,
    state: RunState,
    resolved: ResolvedRun,
    *,
    read: Position | None,
    started: tuple[float, float],
) -> CaptureReport:
    """Return what a run did; `read` is the last position that its reader dumped."""
    interval, cursor = whole_interval(state.main.interval, resolved), state.cursor
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
        reason=reason_of(done, interval, resolved, limit_reached=state.drained.limit_reached),
        plan=resolved.plan,
        interval=interval,
        recovered_batch=state.finished.batch_number if state.finished is not None else None,
        batches=done.batches,
        tables=done.tables(),
        unfinished_transactions=state.drained.dropped,
        ddl=tuple(done.ddl),
        notes=tuple(done.notes),
        entries_omitted=done.entries_omitted,
        suspended=cursor.suspended if cursor is not None else {},
        quarantine=quarantined(state.cut),
        cursor=cursor,
        cursor_reason=state.cursor_reason,
        read_up_to=None if read is None else LogPlace.of(read),
        applied_up_to=None if cursor is None else LogPlace.of(cursor.position),
        oldest_needed=needed_place(cursor),
        seconds=time.monotonic() - started[0],
        cpu_seconds=time.process_time() - started[1],
        spark_started=context.sink.spark_started,
    )


def _of_chosen(report: CaptureReport, tables: Sequence[str], resolved: ResolvedRun) -> CaptureReport:
    if report.outcome != "nothing_new":
        return report
    reason = f"nothing to catch up: {', '.join(tables)} stood at {resolved.end} like all others"
    return report.model_copy(update={"reason": reason})


def check_suspended(cursor: CursorState | None, tables: Sequence[str] | None = None) -> None:
    """Fail if tables are suspended.

    Raises:
        TargetSuspendedError: some tables, or some of those given, are suspended.
    """
    if cursor is None:
        return
    found = {name: held for name, held in cursor.suspended.items() if tables is None or name in tables}
    if found:
        raise suspended_error(found, cursor=cursor)


def check_matched(config: PipelineConfig, state: RunState, resolved: ResolvedRun) -> None:
    """Fail if patterns match nothing.

    Raises:
        NothingMatchedError: the log was read to its end, and patterns have never matched a table.
    """
    if resolved.log_end is None or resolved.end.order < resolved.log_end.order or state.drained.limit_reached:
        return
    error = nothing_matched(config, resolved.known, state.cursor)
    if error is not None:
        raise error
