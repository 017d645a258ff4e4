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

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from cdc_pipeline.collector import modules_kept
from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError, LockError
from cdc_pipeline.lake.run_notes import dump_error_file
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.position.failback import FailbackPositions
from cdc_pipeline.run.capture.capture_session import CaptureContext
from cdc_pipeline.run.capture.catch_up import catch_up, catch_up_selected
from cdc_pipeline.run.capture.in_sequence import hold_start, learn_tables, read_in_sequence
from cdc_pipeline.run.capture.lost_xa import drop_lost
from cdc_pipeline.run.capture.segments.division import Parallel, division
from cdc_pipeline.run.capture.summary import RunState, report_of
from cdc_pipeline.run.capture.suspension import check_suspended, resume
from cdc_pipeline.run.decode.schemas import history_file
from cdc_pipeline.run.keep import check_kept, keep_journals, prune_journals
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.planning import resolve
from cdc_pipeline.run.plan.resolved_run import ResolvedRun
from cdc_pipeline.run.plan.starting import ChosenServer, choose, counted, remember_start
from cdc_pipeline.run.plan.unmatched import nothing_matched
from cdc_pipeline.run.report import CaptureReport, ParallelReport
from cdc_pipeline.run.telemetry import watched
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.sink.lake_sink import Sink
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
    parallel: Parallel | None = None,
) -> CaptureReport:
    """Capture from the cursor to the bound, and bring the lake's tables up to it.

    `bound`: the configuration's by default; `tables`: only catch these up, if they are suspended;
    the cursor does not move (K4); `sink`: in place of the configuration's own; its creator hears of
    its fault points; `parallel`: read an archive on executors so divided, whatever `batch.decode`
    says.

    Raises LockError: another capture of this source is running; CdcError: what came before it is
    merged and acked to the last whole transaction. When everything else is done: PublicationError:
    readers by SQL are not shown the last cut; TargetSuspendedError: some tables (of `tables`) are;
    NothingMatchedError: patterns have never matched a table; TransactionError: the end of a
    prepared XA transaction is lost.
    """
    if tables is not None and bound is not None:
        raise ConfigError(
            "a run of chosen tables takes no bound: it catches them up to the cursor",
            setting="bound",
            next_step="omit the bound, or start a run of the whole source",
        )
    observer = watched(config, observer, run_id=run_id)
    sink = sink or build_sink(config)
    context = CaptureContext(
        sink, cursors, observer, run_id, config=config, positions=FailbackPositions(cursors)
    )
    try:
        report = _capture(context, bound, tables=tables, parallel=parallel)
    except LockError:
        raise  # it waits for another run, and has not begun
    except BaseException as error:
        observer.failed(error)
        raise
    observer.ended(report)
    return report


def _capture(
    context: CaptureContext,
    bound: Bound | None,
    *,
    tables: Sequence[str] | None,
    parallel: Parallel | None,
) -> CaptureReport:
    config, sink, dump_errors = context.config, context.sink, dump_error_file(context.sink.paths)
    with files_failing(config.sink.lake_path), sink.lock(), counted(dump_errors), modules_kept():
        state = resume(context)
        server = choose(config)
        if tables is not None:
            return catch_up_selected(context, state, tables, server=server)
        with closing(build_source(server.config)) as source:
            source.check()
            context = replace(context, config=config.comparing(source.identity.names))
            open_before = () if state.cursor is None else state.cursor.open_xa
            listed = source.prepared_xids() if open_before else None  # before the end is fixed
            resolved = _plan(context, state, bound or config.bound, source=source, server=server)
            if state.cursor is None:
                history_file(config).forget()  # what lies between it and this start is unknown
            state = _read(context, state, resolved, source=source, parallel=parallel)
            is_whole = _is_read_to_its_end(state, resolved)
            unlearned = _learn(context, state, resolved, source=source) if is_whole else None
        lost = None
        if listed is not None and is_whole:
            state, lost = drop_lost(context, state, before=open_before, listed=listed)
        state = catch_up(context, state, state.suspended_before, server=server)
        report = report_of(context, state, resolved)
        unpruned = prune_journals(config, state.cursor, state.cut)
        check_suspended(state.cursor)
        if lost is not None:
            raise lost
        unmatched = nothing_matched(context.config, resolved.known, state.cursor)
        if is_whole and unmatched is not None:
            raise unmatched
        if sink.unpublished is not None:
            raise sink.unpublished
        check_kept(source)
        for failed in (unlearned, unpruned):
            if failed is not None:
                raise failed
        return report


# -- plan ------------------------------------------------------------------------------------------


def _plan(
    context: CaptureContext,
    state: RunState,
    bound: Bound,
    *,
    source: Source,
    server: ChosenServer,
) -> ResolvedRun:
    resolved = resolve(
        context.config,
        source=source,
        cursor=state.cursor,
        cursor_reason=state.cursor_reason,
        cut=state.cut,
        bound=bound,
        server=server,
    )
    remember_start(context.config, resolved.decision, is_first=state.cursor is None)
    context.observer.planned(resolved.plan)
    return resolved


# -- read, interpret, stage, publish ---------------------------------------------------------------


def _read(
    context: CaptureContext,
    state: RunState,
    resolved: ResolvedRun,
    *,
    source: Source,
    parallel: Parallel | None,
) -> RunState:
    keep_journals(context.config, source)
    if resolved.start.order == resolved.end.order:
        return hold_start(context, state, resolved, source=source)
    divided = parallel or division(context.config, bytes_expected=resolved.plan.bytes_between)
    if isinstance(divided, str):
        state = read_in_sequence(context, state, resolved, source=source)
        return replace(state, parallel=ParallelReport(one_after_the_other=(divided,)))
    # Late: other runs need none of it.
    from cdc_pipeline.run.capture.segments.parallel import read_in_parallel

    return read_in_parallel(context, state, resolved, source=source, parallel=divided)


def _learn(
    context: CaptureContext, state: RunState, resolved: ResolvedRun, *, source: Source
) -> CdcError | None:
    """What failed: all that was read is published, and the next run asks again."""
    cursor = state.cursor
    if cursor is None or resolved.start.order == resolved.end.order:
        return None
    try:
        learn_tables(context, state, resolved, cursor.position, source=source)
    except CdcError as error:
        return error
    return None


def _is_read_to_its_end(state: RunState, resolved: ResolvedRun) -> bool:
    return (
        resolved.log_end is not None
        and resolved.end.order >= resolved.log_end.order
        and not state.read.limit_reached
    )
