"""Suspended targets, in the records and in words (K4: the others continue).

Rules:
- A suspension holds the target's position, and its cause as in the error. The position lies before
  each prepared transaction that is open: its parked rows pass the target by at XA COMMIT (K8).
- A suspension leaves a note in its batch's cut.
"""

from __future__ import annotations

from shlex import quote
from typing import Final

from cdc_pipeline import errors
from cdc_pipeline.errors import CdcError, LakeStateError
from cdc_pipeline.lake.records import BatchRecord, Note
from cdc_pipeline.position.cursor import CursorState, StoredPosition, Suspension, left_at
from cdc_pipeline.position.position import Position

SUSPENDED_NOTE: Final = "suspended"
# of a loaded table that could not be swapped in: the target is as it was
SNAPSHOT_FAILED_NOTE: Final = "snapshot_failed"
MASKS_CHANGED: Final = "its masks changed, and its rows have the earlier ones"  # changed_rule
UNREGISTERED_NOTE: Final = "not_registered"  # of a loaded table that the session's catalog rejects


def suspension(
    error: CdcError,
    *,
    batch_number: int,
    at: Position,
    epoch: int,
    begin: Position | None = None,
    needs_snapshot: bool = False,
) -> Suspension:
    """`at`, `begin`: see `left_at`."""
    return Suspension(
        batch_number=batch_number,
        error=type(error).__name__,
        what=cause_of(error),
        **left_at(at, begin),
        epoch=epoch,
        needs_snapshot=needs_snapshot or error.needs_snapshot,
        next_step=error.next_step or "",
    )


def suspended_at(
    cursor: CursorState, error: CdcError, *, batch_number: int, needs_snapshot: bool = False
) -> Suspension:
    """Of a target that contains all before the source's cursor."""
    return suspension(
        error,
        batch_number=batch_number,
        at=cursor.position,
        epoch=cursor.epoch,
        begin=cursor.begin_of_oldest,
        needs_snapshot=needs_snapshot,
    )


def left_behind(record: BatchRecord, error: CdcError, *, held: Suspension | None) -> Suspension:
    """The suspension of a target that a recorded batch leaves behind.

    Its position is the record's start or, if it was being caught up, the position where it was
    `held` before.
    """
    # What lies between start and interval, the target has. Only the start has its GTIDs.
    own, start = record.interval.start, record.start
    # A table changed by another program stays suspended: only restoring its old state fixes it.
    left = suspension(
        error,
        batch_number=record.batch_number,
        at=own if start.order < own.order else start,
        begin=start,
        epoch=record.cursor_after.epoch,
        needs_snapshot=isinstance(error, LakeStateError),
    )
    return left if held is None else restated(held, left)


def restated(before: Suspension, made: Suspension) -> Suspension:
    of_place = StoredPosition.model_fields.keys() | {"passed", "batch_number"}
    kept = Suspension.model_fields.keys() - of_place
    return before.model_copy(update={name: getattr(made, name) for name in kept})


def cause_of(error: CdcError) -> str:
    """Describe what went wrong on one line: with its place, without the next step."""
    where = (
        f" ({error.journal} at {error.offset})"
        if error.journal is not None and error.offset is not None
        else ""
    )
    got = "" if error.got is None else f"; got: {error.got}"
    return " ".join(f"{error.what}{where}{got}".split())


def is_retryable(suspended: Suspension) -> bool:
    """Whether the error that suspended the target can disappear by itself."""
    kind = getattr(errors, suspended.error, None)
    return (
        isinstance(kind, type)
        and issubclass(kind, CdcError)
        and kind.retryable
        and not suspended.needs_snapshot
    )


def sentence(table: str, suspended: Suspension) -> str:
    """Where a target is suspended and why, on one line."""
    return f"{table} is suspended at {suspended.position}: {suspended.cause}"


def snapshot_command(source: str, table: str) -> str:
    """That takes a table's snapshot again, whatever has become of it."""
    return f"cdc-pipeline snapshot {source} --table {quote(table)}"


def new_snapshot(source: str, table: str) -> str:
    return f"`{snapshot_command(source, table)}`"


def way_out(table: str, suspended: Suspension, *, source: str) -> str:
    command = f"to take a new snapshot of it: {new_snapshot(source, table)}"
    command += (
        f", or from an archive `cdc-pipeline backfill {source} --table {quote(table)} --rebuild`"
    )
    own = f"{suspended.next_step.rstrip('.')}; " if suspended.next_step else ""
    if suspended.needs_snapshot:
        return f"{own}catching up cannot repair it; {command}"
    if suspended.error == errors.RowsDifferError.__name__:
        return f"{own}{command}"
    return f"{own}each run tries to catch it up from {suspended.position}; {command}"


def note_of(table: str, suspended: Suspension) -> Note:
    return Note(
        kind=SUSPENDED_NOTE,
        text=f"{suspended.cause}; suspended at {suspended.position}",
        journal=suspended.journal,
        offset=suspended.offset,
        table=table,
    )
