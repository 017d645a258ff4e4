"""Resume from what earlier runs have left: finish a recorded batch, leave failing targets
behind."""

from __future__ import annotations

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.prepared import oldest_begin
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.lake.suspensions import suspension
from cdc_pipeline.pipeline.capture.stretch import CaptureContext, before_begin
from cdc_pipeline.pipeline.capture.summary import RunState, RunSummary
from cdc_pipeline.pipeline.recovery import Recovered, recover
from cdc_pipeline.pipeline.targets.routes import Routes
from cdc_pipeline.position.cursor import Suspension


def resume(context: CaptureContext) -> RunState:
    """Finish what is recorded, remove what is not (K2, K3)."""
    sink, is_followed = context.sink, Routes(context.config).is_followed

    def failing(cut: Cut) -> dict[str, LakeStateError]:
        # Perhaps all of them: the remedies that their errors name need a source that goes on (K22).
        states = cut.cursor.targets
        return {
            name: error
            for name, error in sink.failing_targets(cut).items()
            if is_followed(states[name])
        }

    found = recover(sink, cursors=context.cursors, observer=context.observer, failing_of=failing)
    cursor = found.reconciled.cursor
    sink.discard_parked(None if found.cut is None else found.cut.cursor, cursor)
    state = RunState(
        found.cut, cursor, found.reconciled.reason, found.finished, found.suspended_before
    )
    return state.after(_leave_behind(context, found))


def _leave_behind(context: CaptureContext, found: Recovered) -> RunSummary:
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
        text = "no longer captured: its target has left the cursor"
        notes = [Note(kind="dropped", text=text, table=name) for name in dropped]
        done.add(context.admin_batch(cut, cursor).suspend(new, dropped=dropped, notes=notes))
    return done
