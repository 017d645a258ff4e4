"""An admin batch: a recorded batch that moves no cursor (K2, K3, K4, K17, K18).

    lock -> discard what is not recorded -> reconcile -> stage -> record -> merge -> cut -> cursor

Rules:
- Suspensions, snapshots, repairs, replays and restores are such batches. They have the numbers of
  the source's one counter and are finished by the next run where they were killed.
- It begins only if no other batch waits to be finished. A person who moves the cursor (kind
  ``cursor_set``) makes one as well: its cursor is the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

from cdc_pipeline.errors import LakeStateError, TargetSuspendedError
from cdc_pipeline.lake.records import (
    BatchKind,
    BatchRecord,
    Cut,
    Interval,
    Note,
    QuarantineMark,
    RecordedTarget,
)
from cdc_pipeline.lake.storage.lock import wait_for_lock
from cdc_pipeline.lake.suspensions import note_of, sentence
from cdc_pipeline.position.cursor import (
    CursorState,
    CursorStore,
    Suspension,
    TargetState,
    before_begin,
)
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.publish import Publisher
from cdc_pipeline.sink.lake_sink import Sink
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.text.wording import listed


class UnfinishedBatchError(LakeStateError):
    """A recorded batch has to be finished first, which the next capture does: a run was killed
    between recording the batch and applying it to every table.

    Fix: Run the source once (`cdc-pipeline run SOURCE`), then repeat the command.
    """


class AdminBatch:
    """A batch of a locked source, not recorded yet; `cursor` may be later in the log than `cut`."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        cut: Cut | None,
        cursor: CursorState,
    ) -> None:
        self.sink = publisher.sink
        self.cut = cut
        self.cursor = cursor
        self.run_id = publisher.run_id
        self.finish = publisher.finish

    @property
    def number(self) -> int:
        return (0 if self.cut is None else self.cut.batch_number) + 1

    @cached_property
    def rows(self) -> StagedBatch:
        return self.sink.begin(self.number)

    def last_cut(self) -> Cut:
        """Raises LakeStateError if there is none yet."""
        if self.cut is None:
            raise _nothing_captured(self.sink)
        return self.cut

    def publish(
        self,
        *,
        kind: BatchKind,
        targets: Mapping[str, TargetState] | None = None,
        notes: Sequence[Note] = (),
        dropped: Sequence[str] = (),
        marks: Sequence[QuarantineMark] = (),
        source_time_us: int | None = None,
        part: Sequence[RecordedTarget] = (),
    ) -> Cut:
        """Record and finish the batch. `targets`: the cursor's states then; `dropped` ones leave
        it; `part`: what was staged as a part of a batch, instead of what `rows` have. Raises
        TargetSuspendedError: it has left targets behind; the others have it.
        """
        if source_time_us is None:
            source_time_us = -1 if self.cut is None else self.cut.source_time_us
        cursor, at = self.cursor, self.cursor.position
        states = cursor.targets if targets is None else dict(sorted(targets.items()))
        head = BatchRecord(
            source=cursor.source,
            batch_number=self.number,
            kind=kind,
            run_id=self.run_id,
            start=before_begin(at, cursor.begin_of_oldest),
            interval=Interval(start=at, end=at),
            cursor_after=cursor.model_copy(update={"batch_number": self.number, "targets": states}),
            source_time_us=source_time_us,
            targets=tuple(part),
            dropped=tuple(dropped),
            quarantine_marks=tuple(marks),
            notes=tuple(notes),
        )
        record = self.rows.put(head) if part else self.rows.record(head)
        cut = self.finish(record)
        suspended = cut.cursor.suspended.keys() - cursor.suspended.keys()
        if left := sorted(suspended & {target.table for target in record.targets}):
            raise TargetSuspendedError(
                f"{listed(left)} did not get what the command brings",
                table=left[0],
                got=sentence(left[0], cut.cursor.suspended[left[0]]),
                next_step=f"run `cdc-pipeline run {cursor.source}`, and once no table is suspended "
                "this command again",
            )
        return cut

    def suspend(
        self,
        suspended: Mapping[str, Suspension | None],
        *,
        dropped: Sequence[str] = (),
        notes: Sequence[Note] = (),
    ) -> Cut:
        """Publish a batch that only changes targets' state; a suspension of None ends one."""
        states = {
            name: state.model_copy(update={"suspended": suspended.get(name, state.suspended)})
            for name, state in self.last_cut().cursor.targets.items()
            if name not in dropped
        }
        new = [
            note_of(name, suspension)
            for name, suspension in suspended.items()
            if suspension is not None
        ]
        return self.publish(kind="catch_up", targets=states, notes=(*notes, *new), dropped=dropped)


@contextmanager
def admin_batch(
    sink: Sink,
    *,
    cursors: CursorStore,
    doing: str,
    observer: RunObserver | None = None,
    run_id: str = "",
    wait_s: float = 0.0,
    on_waiting: Callable[[str], None] = lambda _holder: None,
) -> Iterator[AdminBatch]:
    """Lock the source and begin a batch; an unpublished batch leaves nothing behind. `doing`: what
    can be done when an unfinished batch is finished, in words; `on_waiting` is called once with who
    holds the lock.

    Raises LockError: a run writes for longer than `wait_s`; UnfinishedBatchError; LakeStateError:
    nothing was captured yet, or cursor and lake contradict each other.
    """
    with ExitStack() as stack:
        wait_for_lock(
            lambda: stack.enter_context(sink.lock()), wait_s=wait_s, on_waiting=on_waiting
        )
        cursor, cut = finished_state(sink, cursors, doing=doing)
        sink.discard_unrecorded()
        if cursor is None:
            raise _nothing_captured(sink)
        publisher = Publisher(sink, cursors, observer or RunObserver(), run_id)
        yield AdminBatch(publisher, cut=cut, cursor=cursor)


def finished_state(
    sink: Sink, cursors: CursorStore, *, doing: str
) -> tuple[CursorState | None, Cut | None]:
    """What a run would resume from; `doing` and errors as in `admin_batch`."""
    pending = sink.pending_record()
    if pending is not None:
        raise UnfinishedBatchError(
            f"batch {pending.batch_number} is recorded but unfinished",
            expected="no unfinished batch",
            next_step=f"run `cdc-pipeline run {sink.paths.source}` first: it finishes the "
            f"batch; then {doing}",
        )
    cursor = cursors.read()  # before the cut: a run that is under way writes it after
    cut = sink.last_cut()
    return reconcile(cursor, cut).cursor, cut


def _nothing_captured(sink: Sink) -> LakeStateError:
    return LakeStateError(
        "there is no cut yet", next_step=f"run `cdc-pipeline run {sink.paths.source}`"
    )
