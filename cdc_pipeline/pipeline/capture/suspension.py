"""Which failures suspend one target, and batches that move no cursor (K4).

Rules:
- Suspended is what fails for one captured table alone: its columns, its key, a value, a statement of it. Whatever
  concerns the log itself, names no table, or would leave no captured table going on, stops the run as before.
- Rows that the log holds as a statement stop the run even if it names one table: triggers may change others.
- A target that is not captured any more leaves the cursor, with a note: included again, it begins anew, and its old
  Delta table must be out of the way. Going on where it stood would lose what came between in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    ContentUnknownError,
    IncompleteRowsError,
    LakeStateError,
    OverlapUndecidedError,
    SchemaError,
    TargetSuspendedError,
    UnknownColumnTypeError,
    UnrepresentableValueError,
)
from cdc_pipeline.lake.records import BatchKind, BatchRecord, Cut, Interval, Note, QuarantineMark
from cdc_pipeline.lake.suspensions import is_retryable, note_of, suspension, way_out
from cdc_pipeline.pipeline.capture.commit import Committer, cursor_metadata
from cdc_pipeline.pipeline.capture.progress import Place
from cdc_pipeline.pipeline.plan.reconcile import reconcile
from cdc_pipeline.pipeline.report import CaptureObserver, CapturePlan
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.position.cursor import CursorState, CursorStore, Suspension, TargetState
from cdc_pipeline.position.position import Position
from cdc_pipeline.sink.protocol import Sink
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.text.table_names import split_table_name

_OF_ONE_TABLE = (SchemaError, UnrepresentableValueError, IncompleteRowsError, UnknownColumnTypeError)


class Suspender:
    """Decides for the drain whether a failure suspends its table, and does it."""

    def __init__(
        self,
        *,
        captured: Callable[[str, str], bool],
        known: Collection[str],
        targets: Targets,
        committer: Committer,
        place: Place,
        epoch: int,
    ) -> None:
        """`known`: captured tables that the source has, whether they have a target or not."""
        self._captured = captured
        self._known = set(known)
        self._targets = targets
        self._committer = committer
        self._place = place
        self._epoch = epoch

    def __call__(self, error: CdcError) -> bool:
        """Suspend the error's table where it stands: at the end of the last whole transaction.

        Returns:
            False where the error stops the run. What the same transaction suspended before is taken back then.
        """
        if not self._is_of_one_table(error):
            at = self._place.position
            self._targets.take_back((at.journal, at.offset))
            return False
        assert error.table is not None
        at = self._committer.stand_still()
        made = suspension(error, batch_number=self._committer.number, at=at, epoch=self._epoch)
        only = error.targets if isinstance(error, OverlapUndecidedError | ContentUnknownError) else None
        for name in self._targets.suspend(error.table, made, only=only):
            self._committer.drop_open(name)
        return True

    def _is_of_one_table(self, error: CdcError) -> bool:
        if not isinstance(error, _OF_ONE_TABLE) or error.table is None or "." not in error.table:
            return False
        database, table = split_table_name(error.table)
        if not self._captured(database, table) or self._targets.is_suspended(database, table):
            return False
        if isinstance(error, ContentUnknownError):
            return True  # the log is whole, and what it does not tell is known: the run goes on even without any table
        others = {name for name in self._known if not self._targets.is_suspended(*split_table_name(name))}
        if isinstance(error, OverlapUndecidedError) and any(
            target.name not in error.targets for target in self._targets.following(database, table)
        ):
            return True
        return bool(others - {error.table}) or self._targets.goes_on_without(database, table)


def standing(cursor: CursorState) -> Interval:
    """The interval of a batch that moves no cursor."""
    return Interval(
        start_journal=cursor.journal,
        start_offset=cursor.offset,
        end_journal=cursor.journal,
        end_offset=cursor.offset,
    )


def publish_standing(
    *,
    sink: Sink,
    cursors: CursorStore,
    observer: CaptureObserver,
    cut: Cut,
    cursor: CursorState,
    suspended: Mapping[str, Suspension | None],
    dropped: Sequence[str] = (),
    notes: Sequence[Note] = (),
    run_id: str = "",
) -> Cut:
    """A batch without rows: the cursor stands still, some targets change their state.

    Args:
        cut: the last cut.
        cursor: where the source stands; may be later in the log than the cut.
        suspended: new suspensions by table; None ends one.
        dropped: targets that leave the cursor.
    """
    targets: dict[str, TargetState] = {}
    for name, state in cut.cursor.targets.items():
        if name not in dropped:
            held = suspended.get(name, state.suspended)
            targets[name] = state.model_copy(update={"suspended": held})
    return commit_standing(
        sink.begin(cursor.batch_number + 1),
        sink=sink,
        cursors=cursors,
        observer=observer,
        cursor=cursor,
        targets=targets,
        source_time_us=cut.source_time_us,
        kind="catch_up",
        notes=(*notes, *(note_of(name, held) for name, held in suspended.items() if held is not None)),
        run_id=run_id,
        dropped=dropped,
    )


def commit_standing(
    batch: StagedBatch,
    *,
    sink: Sink,
    cursors: CursorStore,
    observer: CaptureObserver,
    cursor: CursorState,
    source_time_us: int,
    kind: BatchKind,
    targets: Mapping[str, TargetState] | None = None,
    notes: Sequence[Note] = (),
    run_id: str = "",
    dropped: Sequence[str] = (),
    marks: Sequence[QuarantineMark] = (),
) -> Cut:
    """Record a batch that moves no cursor, and finish it.

    Args:
        batch: of the number behind `cursor`'s, with all that it does.
        targets: states that the cursor has then; those that it has where None.

    Raises:
        CdcError: as `StagedBatch.record` and `Sink.finish`; the next run finishes what was recorded.
    """
    states = cursor.targets if targets is None else dict(sorted(targets.items()))
    record = batch.record(
        interval=standing(cursor),
        cursor_after=cursor.model_copy(update={"batch_number": batch.number, "targets": states}),
        source_time_us=source_time_us,
        notes=tuple(notes),
        run_id=run_id,
        kind=kind,
        dropped=tuple(dropped),
        marks=tuple(marks),
        start=cursor.position,
    )
    return finish_standing(record, sink=sink, cursors=cursors, observer=observer)


def standing_of(config: PipelineConfig, sink: Sink, cursors: CursorStore, *, doing: str) -> tuple[CursorState, Cut]:
    """Cursor and last cut, with the lock held.

    Args:
        doing: what can be done once an unfinished batch is finished, in words.

    Raises:
        LakeStateError: a batch is unfinished, there is no cut, or cursor and lake contradict each other.
    """
    check_finished(config, sink, doing=doing)
    cut = sink.last_cut()
    cursor = reconcile(cursors.read(), cut).cursor
    if cut is None or cursor is None:
        raise LakeStateError("there is no cut yet", next_step=f"run `cdc-pipeline run {config.name}`")
    return cursor, cut


def check_finished(config: PipelineConfig, sink: Sink, *, doing: str, expected: str = "no unfinished batch") -> None:
    """See that no batch is recorded and not finished, with the lock held.

    Args:
        doing: what can be done once it is finished, in words.

    Raises:
        LakeStateError: one is.
    """
    pending = sink.pending_record()
    if pending is not None:
        raise LakeStateError(
            f"batch {pending.batch_number} is recorded and not finished",
            expected=expected,
            next_step=f"run `cdc-pipeline run {config.name}` first: it finishes the batch; then {doing}",
        )


def finish_standing(record: BatchRecord, *, sink: Sink, cursors: CursorStore, observer: CaptureObserver) -> Cut:
    """From the record of a batch that moves no cursor to its end: merge, cut, cursor, clean-up (K2)."""
    made = sink.finish(record)
    observer.published(made)
    observer.reached("before_cursor")
    cursors.write(made.cursor, cursor_metadata(made.interval, made))
    observer.reached("before_ack")
    sink.cleanup(made)
    return made


def standing_plan(
    config: PipelineConfig,
    cursor: CursorState,
    *,
    identity: str = "",
    catching_up: str = "",
    start: Position | None = None,
) -> CapturePlan:
    """The plan of a stretch that ends at the cursor: that of a target that is caught up, or an empty one."""
    reason = "a run of chosen tables: the cursor stands still"
    if catching_up:
        reason = f"{catching_up} was suspended and is caught up from where it stands"
    return CapturePlan.of_stretch(
        start or cursor.position,
        cursor.position,
        source=config.name,
        identity=identity or str(cursor.identity),
        reason=reason,
        end_reason="the cursor",
        tables=(catching_up,) if catching_up else tuple(sorted(cursor.targets)),
        suspended=cursor.suspended,
    )


def suspended_error(found: Mapping[str, Suspension], *, cursor: CursorState) -> TargetSuspendedError:
    """The error that a run ends with which left targets behind."""
    listing = sorted(found.items())
    name, held = listing[0]
    only = len(listing) == 1
    error = TargetSuspendedError(
        f"{len(listing)} table{' is' if only else 's are'} suspended: {', '.join(found)}; all others stand at "
        f"{cursor.position}",
        journal=held.journal if only else None,
        offset=held.offset if only else None,
        table=name if only else None,
        got="\n    ".join(f"{name} stands at {held.position}: {held.error}: {held.what}" for name, held in listing),
        next_step="\n    ".join(f"{name}: {way_out(name, held, source=cursor.source)}" for name, held in listing),
    )
    error.retryable = all(is_retryable(held) for held in found.values())
    return error
