"""Decide which failures suspend one target (K4: such a failure must not stop the others).

Rules:
- A failure of a single captured table suspends it: its columns, its key, a value, a statement. A
  failure stops the run if it concerns the log itself, names no table, or would leave no captured
  table following.
- Rows that only a statement carries are an error of each table that it may have reached (K29).
- A target that is no longer captured leaves the cursor, with a note. If it is included again, its
  old Delta table must be removed first: to resume there would lose what came in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from cdc_pipeline.errors import (
    CdcError,
    ContentUnknownError,
    IncompleteRowsError,
    OverlapUndecidedError,
    SchemaError,
    TargetSuspendedError,
    UnknownColumnTypeError,
    UnrepresentableValueError,
)
from cdc_pipeline.lake.records import Note
from cdc_pipeline.lake.suspensions import (
    is_retryable,
    sentence,
    suspended_at,
    suspension,
    way_out,
)
from cdc_pipeline.position.cursor import CursorState, Suspension
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.capture.capture_session import CaptureContext, CaptureSession
from cdc_pipeline.run.capture.summary import RunState, RunSummary
from cdc_pipeline.run.recovery import recover
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import split_table_name
from cdc_pipeline.text.wording import and_more, listed

_TOLD_MAX: Final = 5  # a cause may stop hundreds of tables at once
_OF_ONE_TABLE = (
    SchemaError,
    UnrepresentableValueError,
    IncompleteRowsError,
    UnknownColumnTypeError,
)


@dataclass(frozen=True, slots=True)
class Suspend:
    """Leave targets of one source table behind; `only`: some of them."""

    source: str
    suspension: Suspension
    only: tuple[str, ...] | None = None


def suspension_for(error: CdcError, session: CaptureSession, targets: Targets) -> Suspend | None:
    """None if the failure stops the run. Targets stay at the last whole transaction."""
    return suspend_for(
        error,
        session.of_plan,
        targets,
        batch_number=session.stager.number,
        at=session.place.full_position(),
        begin=session.parking.begin_of_oldest(),
        epoch=session.epoch,
    )


def suspend_for(
    error: CdcError,
    planned: Collection[str] | None,
    targets: Targets,
    *,
    batch_number: int,
    at: Position,
    epoch: int,
    begin: Position | None = None,
) -> Suspend | None:
    """None if it stops the run. `planned`: the run's source tables; None: it suspends none."""
    if not _is_of_one_table(error, planned, targets):
        return None
    assert error.table is not None
    new_suspension = suspension(error, batch_number=batch_number, at=at, epoch=epoch, begin=begin)
    only = error.targets if isinstance(error, OverlapUndecidedError | ContentUnknownError) else None
    return Suspend(error.table, new_suspension, only)


def _is_of_one_table(error: CdcError, planned: Collection[str] | None, targets: Targets) -> bool:
    if planned is None or not isinstance(error, _OF_ONE_TABLE):
        return False
    if error.table is None or "." not in error.table:
        return False
    database, table = split_table_name(error.table)
    if not targets.takes(database, table):
        return False
    if isinstance(error, ContentUnknownError):
        # the log is whole and its gaps are known: the run continues even without tables
        return True
    others = {name for name in planned if not targets.is_suspended(*split_table_name(name))}
    if isinstance(error, OverlapUndecidedError) and any(
        target.name not in error.targets for target in targets.following(database, table)
    ):
        return True
    own = {route.target for route in targets.routes_of(error.table)}
    go_on = (name for name in targets.by_name if not targets.is_not_following(name))
    return bool(others - {error.table}) or any(name not in own for name in go_on)


def suspended_error(
    found: Mapping[str, Suspension], *, cursor: CursorState
) -> TargetSuspendedError:
    listing = sorted(found.items())
    name, held = listing[0]
    only = len(listing) == 1
    told, untold = listing[:_TOLD_MAX], and_more(len(listing) - _TOLD_MAX).strip()
    more = [f"{untold}: `cdc-pipeline status {cursor.source}` tells of each"] if untold else []
    error = TargetSuspendedError(
        f"{len(listing)} table{' is' if only else 's are'} suspended: {listed(sorted(found))}; all "
        f"others are at {cursor.position}",
        at=(held.journal if only else None, held.offset if only else None),
        table=name if only else None,
        got="\n    ".join([*(sentence(name, held) for name, held in told), *more]),
        next_step="\n    ".join(
            [
                *(f"{name}: {way_out(name, held, source=cursor.source)}" for name, held in told),
                *more,
            ]
        ),
    )
    error.retryable = all(is_retryable(held) for held in found.values())
    return error


def check_suspended(cursor: CursorState | None, tables: Sequence[str] | None = None) -> None:
    if cursor is None:
        return
    suspended = {
        name: suspension
        for name, suspension in cursor.suspended.items()
        if tables is None or name in tables
    }
    if suspended:
        raise suspended_error(suspended, cursor=cursor)


def resume(context: CaptureContext) -> RunState:
    # Perhaps it leaves all: the remedies that their errors name need a source that goes on (K22).
    found = recover(context, leaves=Routes(context.config).is_followed)
    state = RunState(*(getattr(found, known.name) for known in fields(found)))
    context.sink.discard_parked(None if state.cut is None else state.cut.cursor, state.cursor)
    return state.after(_leave_behind(context, state))


def _leave_behind(context: CaptureContext, state: RunState) -> RunSummary:
    done = RunSummary()
    cut, cursor = state.cut, state.cursor
    if cut is None or cursor is None:
        return done
    is_followed = Routes(context.config).is_followed
    dropped = [name for name, target in cursor.targets.items() if not is_followed(target)]
    new: dict[str, Suspension | None] = {
        name: suspended_at(cursor, error, batch_number=cursor.batch_number + 1, needs_snapshot=True)
        for name, error in state.failing.items()
        if name not in cursor.suspended
    }
    if new or dropped:
        text = "no longer captured: its target has left the cursor"
        notes = [Note(kind="dropped", text=text, table=name) for name in dropped]
        done.add(
            AdminBatch(context, cut=cut, cursor=cursor).suspend(new, dropped=dropped, notes=notes)
        )
    return done
