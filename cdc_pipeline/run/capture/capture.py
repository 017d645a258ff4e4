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
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from cdc_pipeline.collector import modules_kept
from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import ConfigError, LockError, PositionError
from cdc_pipeline.lake.records import Note
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.dump_errors import DumpErrors, DumpErrorStore
from cdc_pipeline.position.failback import FailbackPositions
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture_session import CaptureContext, ReadRange, open_session
from cdc_pipeline.run.capture.catch_up import catch_up, catch_up_selected
from cdc_pipeline.run.capture.commit import Committer, cursor_state
from cdc_pipeline.run.capture.drain import Drain
from cdc_pipeline.run.capture.lost_xa import drop_lost
from cdc_pipeline.run.capture.segments.division import Parallel, division
from cdc_pipeline.run.capture.summary import RunState, report_of
from cdc_pipeline.run.capture.suspension import check_suspended, resume
from cdc_pipeline.run.decode.schemas import schemas_of
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.planning import resolve
from cdc_pipeline.run.plan.reconcile import Reconciled
from cdc_pipeline.run.plan.resolved_run import ResolvedRun
from cdc_pipeline.run.plan.server_switch import overlap_of
from cdc_pipeline.run.plan.starting import ChosenServer, choose, counted
from cdc_pipeline.run.plan.unmatched import nothing_matched
from cdc_pipeline.run.publish import cursor_metadata, empty_interval, start_metadata
from cdc_pipeline.run.report import CaptureReport, ParallelReport
from cdc_pipeline.run.telemetry import watched
from cdc_pipeline.run.wiring import (
    build_dump_errors,
    build_first_start,
    build_sink,
    build_source,
)
from cdc_pipeline.schema.history.history import LogPosition
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import Targets


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

    Args:
        bound: the configuration's by default.
        tables: only catch these up, if they are suspended; the cursor does not move (K4).
        sink: in place of the configuration's own; its creator hears of its fault points.
        parallel: read an archive on executors so divided, whatever `batch.decode` says.

    Raises:
        LockError: another capture of this source is running.
        TargetSuspendedError: some tables (of `tables`) are suspended; everything else is done.
        NothingMatchedError: patterns of tables have never matched one; everything else is done.
        TransactionError: the end of a prepared XA transaction is lost; everything else is done.
        CdcError: everything else; what came before it is merged and acked to the last whole
            transaction.
    """
    if tables is not None and bound is not None:
        raise ConfigError(
            "a run of chosen tables takes no bound: it catches them up to the cursor",
            setting="bound",
            next_step="omit the bound, or start a run of the whole source",
        )
    observer = watched(config, observer, run_id=run_id)
    try:
        report = _capture(
            config,
            cursors=cursors,
            bound=bound,
            observer=observer,
            run_id=run_id,
            tables=tables,
            sink=sink,
            parallel=parallel,
        )
    except LockError:
        raise  # it waits for another run, and has not begun
    except BaseException as error:
        observer.failed(error)
        raise
    observer.ended(report)
    return report


def _capture(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    bound: Bound | None,
    observer: RunObserver,
    run_id: str,
    tables: Sequence[str] | None,
    sink: Sink | None,
    parallel: Parallel | None,
) -> CaptureReport:
    started = (time.monotonic(), time.process_time())
    sink = sink or build_sink(config)
    dump_errors = build_dump_errors(config)
    positions = FailbackPositions(cursors)
    context = CaptureContext(config, sink, cursors, observer, run_id)
    with files_failing(config.sink.lake_path), sink.lock(), counted(dump_errors), modules_kept():
        state = resume(context)
        server = choose(config)
        if tables is not None:
            return catch_up_selected(context, state, tables, server=server, started=started)
        with closing(build_source(server.config)) as source:
            source.check()
            context = replace(context, config=config.comparing(source.identity.names))
            bound, in_parallel = bound or config.bound, None
            open_before = () if state.cursor is None else state.cursor.open_xa
            listed = source.prepared_xids() if open_before else None  # before the end is fixed
            resolved = _plan(
                context, state, bound, source=source, server=server, dump_errors=dump_errors
            )
            if resolved.start.order != resolved.end.order:
                state, in_parallel = _read(
                    context,
                    state,
                    resolved,
                    source=source,
                    parallel=parallel,
                    on_position=positions.persist,
                )
            else:
                state = _hold_start(context, state, resolved, source=source)
        lost = None
        if listed is not None and _is_read_to_its_end(state, resolved):
            state, lost = drop_lost(context, state, before=open_before, listed=listed)
        state = catch_up(context, state, state.suspended_before, server=server)
        report = report_of(context, state, resolved, read=positions.dumped, started=started)
        report = report.model_copy(update={"parallel": in_parallel})
        check_suspended(state.cursor)
        if lost is not None:
            raise lost
        _check_matched(context.config, state, resolved)
        return report


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
    if state.cursor is None:
        build_first_start(context.config).write(context.config.start)
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
    on_position: Callable[[Position], None],
) -> tuple[RunState, ParallelReport | None]:
    bytes_expected = resolved.plan.bytes_between
    parallel = parallel or division(context.config, bytes_expected=bytes_expected)
    in_sequence = partial(_read_and_drain, context, source=source, on_position=on_position)
    if parallel is None:
        return in_sequence(state, resolved, ()), None
    # Late: other runs need none of it.
    from cdc_pipeline.run.capture.segments.parallel import read_in_parallel

    return read_in_parallel(
        context, state, resolved, source=source, parallel=parallel, in_sequence=in_sequence
    )


def _read_and_drain(
    context: CaptureContext,
    state: RunState,
    resolved: ResolvedRun,
    notes: Sequence[Note],
    *,
    source: Source,
    on_position: Callable[[Position], None],
) -> RunState:
    """Two threads around the store. The first record gets the notes."""
    config, cursor = context.config, state.cursor
    session = open_session(
        context,
        ReadRange(
            resolved,
            source,
            TableFilter(config),
            cursor,
            left=_left(resolved, cursor),
            is_sources_own=True,
        ),
        targets=Targets(config, state.cut, shadows={} if cursor is None else cursor.shadows),
        parking=context.sink.parking(
            epoch=resolved.epoch, open_xa=() if cursor is None else cursor.open_xa
        ),
    )
    for note in notes:
        session.stager.note(note)
    committer = Committer(context, session, start_reasons=resolved.plan.start_reasons)
    read = Drain(context, session, committer, on_position=on_position).run()
    done = committer.done
    state.main.go_on(done)
    dropped = state.read.dropped + read.dropped
    return replace(
        state,
        cut=done.latest or state.cut,
        cursor=committer.cursor,
        read=replace(read, dropped=dropped),
    )


def _left(resolved: ResolvedRun, cursor: CursorState | None) -> LogPosition | None:
    """Where another server's log was left, if the run goes on at just that transaction."""
    decision = resolved.decision
    if cursor is None or decision is None or not decision.epoch_grows:
        return None
    if decision.overlap_until_us is not None:
        return None  # it begins somewhere before, and reads DDL again
    return LogPosition(cursor.epoch, *cursor.position.order)


def _hold_start(
    context: CaptureContext, state: RunState, resolved: ResolvedRun, *, source: Source
) -> RunState:
    """Finish a run that has nothing to read.

    A first run keeps its start nonetheless, so that `latest` does not move on until the next
    run. So does a run that has switched to another server; PositionError if that lags behind
    what was applied (K7).
    """
    before, at = state.cursor, resolved.start
    if before is not None and not resolved.turns_to_another_server:
        return state
    if resolved.decision is not None and resolved.decision.overlap_until_us is not None:
        raise PositionError(
            "the new server's log ends before the changes that were applied: the server lags",
            journal=at.journal,
            offset=at.offset,
            expected=f"a commit after {resolved.decision.overlap_until_us} "
            "(microseconds since 1970)",
            got="the end of its log",
            next_step="run again when the server has caught up; nothing was published, and the "
            "cursor has not moved",
        )
    schemas = schemas_of(
        context.config, source=source, run=resolved, cursor=before, left=_left(resolved, before)
    )
    if before is None:
        schemas.begin()
    else:
        schemas.reached(at)
        schemas.save(None, source_time_us=-1)
    cursor = cursor_state(
        context.config.name,
        source.identity,
        at,
        batch_number=0 if before is None else before.batch_number,
        epoch=resolved.epoch,
        open_xa=() if before is None else before.open_xa,
        targets=None if before is None else before.targets,
        shadows=None if before is None else before.shadows,
    )
    metadata = cursor_metadata(empty_interval(at), None)
    context.cursors.write(cursor, metadata | start_metadata(resolved.plan.start_reasons))
    return replace(state, cursor=cursor)


def _check_matched(config: PipelineConfig, state: RunState, resolved: ResolvedRun) -> None:
    """The log was read to its end, and patterns have never matched a table: NothingMatchedError."""
    if not _is_read_to_its_end(state, resolved):
        return
    error = nothing_matched(config, resolved.known, state.cursor)
    if error is not None:
        raise error


def _is_read_to_its_end(state: RunState, resolved: ResolvedRun) -> bool:
    return (
        resolved.log_end is not None
        and resolved.end.order >= resolved.log_end.order
        and not state.read.limit_reached
    )
