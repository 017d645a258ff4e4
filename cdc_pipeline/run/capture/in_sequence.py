"""Read a run's part of the log with one reader and one drain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline.errors import PositionError
from cdc_pipeline.lake.records import Interval, Note
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture_session import CaptureContext, open_session
from cdc_pipeline.run.capture.commit import Committer, cursor_state
from cdc_pipeline.run.capture.drain import Drain
from cdc_pipeline.run.capture.summary import RunState
from cdc_pipeline.run.decode.schemas import schemas_of
from cdc_pipeline.run.plan.resolved_run import ResolvedRun
from cdc_pipeline.run.publish import start_metadata
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.targets import targets_at


def read_in_sequence(
    context: CaptureContext,
    state: RunState,
    resolved: ResolvedRun,
    *,
    source: Source,
    notes: Sequence[Note] = (),
) -> RunState:
    """Two threads around the store. The first record gets the notes."""
    config, cursor = context.config, state.cursor
    session = open_session(
        context,
        resolved,
        source,
        cursor,
        left=_left(resolved, cursor),
        of_plan=resolved.plan.tables,
        targets=targets_at(config, state.cut, cursor),
        parking=context.sink.parking(
            epoch=resolved.epoch, open_xa=() if cursor is None else cursor.open_xa
        ),
    )
    for note in notes:
        session.stager.note(note)
    committer = Committer(
        context, session, done=state.main, start_reasons=resolved.plan.start_reasons
    )
    read = Drain(context, session, committer).run()
    dropped = state.read.dropped + read.dropped
    return replace(
        state,
        cut=committer.cut or state.cut,
        cursor=committer.cursor,
        schemas=session.schemas,
        read=replace(read, dropped=dropped),
    )


def _left(resolved: ResolvedRun, cursor: CursorState | None) -> int | None:
    """Where another server's log was left, if the run goes on at just that transaction."""
    if cursor is None or not resolved.turns_to_another_server:
        return None
    if resolved.overlap_until_us is not None:
        return None  # it begins somewhere before, and reads DDL again
    return cursor.seq


def hold_start(
    context: CaptureContext, state: RunState, resolved: ResolvedRun, *, source: Source
) -> RunState:
    """A first run keeps its start, so that `latest` does not move on until the next one; so does
    one that has switched to another server. PositionError: that lags behind what was applied (K7).
    """
    before, at = state.cursor, resolved.start
    if before is not None and not resolved.turns_to_another_server:
        return state
    if resolved.overlap_until_us is not None:
        raise PositionError(
            "the new server's log ends before the changes that were applied: the server lags",
            at=at,
            expected=f"a commit after {resolved.overlap_until_us} (microseconds since 1970)",
            got="the end of its log",
            next_step="run again when the server has caught up; nothing was published, and the "
            "cursor has not moved",
        )
    cursor = cursor_state(context.config.name, source.identity, at, epoch=resolved.epoch)
    if before is None:
        learn_tables(context, state, resolved, at, source=source)
    else:
        kept = ("batch_number", "open_xa", "targets", "shadows")
        cursor = cursor.model_copy(update={name: getattr(before, name) for name in kept})
        schemas = schemas_of(
            context.config,
            source=source,
            run=resolved,
            cursor=before,
            captured=targets_at(context.config, state.cut).keeps_history,
            left=_left(resolved, before),
        )
        schemas.reached(at)
        schemas.save(None, source_time_us=-1)
    metadata = start_metadata(resolved.plan.start_reasons)
    context.move(cursor, Interval(start=at, end=at), metadata)
    return replace(state, cursor=cursor)


def learn_tables(
    context: CaptureContext,
    state: RunState,
    resolved: ResolvedRun,
    at: Position,
    *,
    source: Source,
) -> None:
    """What the history lacks at a place: the next DDL finds it even if a later one follows."""
    config, known = context.config, resolved.known
    captured = targets_at(config, state.cut, state.cursor).keeps_history
    schemas = state.schemas
    if known is None or schemas is None or not schemas.know_all(known, at, captured):
        run = replace(resolved, start=at, decision=None)
        schemas = schemas_of(config, source=source, run=run, cursor=state.cursor, captured=captured)
        if known is None or not schemas.know_all(known, at, captured):
            schemas.ask_catalog()
    schemas.save(None, source_time_us=-1)
