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

from cdc_pipeline.config import PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    IncompleteRowsError,
    OverlapUndecidedError,
    SchemaError,
    TargetSuspendedError,
    UnknownColumnTypeError,
    UnrepresentableValueError,
)
from cdc_pipeline.pipeline.commit import Committer, cursor_metadata
from cdc_pipeline.pipeline.place import Place
from cdc_pipeline.pipeline.report import CaptureObserver, CapturePlan
from cdc_pipeline.pipeline.targets import Targets
from cdc_pipeline.position.cursor import CursorState, CursorStore, Suspension, TargetState
from cdc_pipeline.position.position import Position
from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.sink.manifest import BatchRecord, Cut, Interval, Note
from cdc_pipeline.sink.suspending import is_retryable, note_of, suspension, way_out

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
        only = error.targets if isinstance(error, OverlapUndecidedError) else None
        for name in self._targets.suspend(error.table, made, only=only):
            self._committer.drop_open(name)
        return True

    def _is_of_one_table(self, error: CdcError) -> bool:
        if not isinstance(error, _OF_ONE_TABLE) or error.table is None or "." not in error.table:
            return False
        database, table = error.table.split(".", 1)
        if not self._captured(database, table) or self._targets.is_suspended(database, table):
            return False
        others = {name for name in self._known if not self._targets.is_suspended(*name.split(".", 1))}
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
    sink: DeltaSink,
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
    number = cursor.batch_number + 1
    record = sink.begin(number).record(
        interval=standing(cursor),
        cursor_after=cursor.model_copy(update={"batch_number": number, "targets": targets}),
        source_time_us=cut.source_time_us,
        notes=(*notes, *(note_of(name, held) for name, held in suspended.items() if held is not None)),
        run_id=run_id,
        kind="catch_up",
        dropped=tuple(dropped),
        start=cursor.position,
    )
    return finish_standing(record, sink=sink, cursors=cursors, observer=observer)


def finish_standing(record: BatchRecord, *, sink: DeltaSink, cursors: CursorStore, observer: CaptureObserver) -> Cut:
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
    at = start or cursor.position
    reasons: tuple[str, ...] = ("a run of chosen tables: the cursor stands still",)
    if catching_up:
        reasons = (f"{catching_up} was suspended and is caught up from where it stands",)
    journals = {at.journal: None, cursor.journal: None}
    return CapturePlan(
        source=config.name,
        identity=identity or str(cursor.identity),
        start_journal=at.journal,
        start_offset=at.offset,
        start_gtid_set=at.gtid_set,
        start_reasons=reasons,
        end_journal=cursor.journal,
        end_offset=cursor.offset,
        end_reason="the cursor",
        bytes_between=max(0, cursor.offset - at.offset) if len(journals) == 1 else 0,
        journals=tuple(journals),
        tables=(catching_up,) if catching_up else tuple(sorted(cursor.targets)),
        partial_tables=(),
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
