"""Commit the batches of a stretch: record -> merge -> cut -> cursor -> ack (K2, K3).

Rules:
- The cursor is written after the cut, the ack comes after the cursor (`pipeline/publish.py`).
- Prepared XA transactions are durable before the record or cursor that refers to them (K8,
  `lake/prepared.py`).
- A stretch of the log that changes no target makes no batch: at the end of a run only the cursor
  moves, under the same batch number, and no JVM is started.
- `Moves` alone decides what a batch moves: the source's cursor, or one suspended target
  (`catch_up.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from cdc_pipeline.lake.prepared import oldest_begin
from cdc_pipeline.lake.records import BatchKind, BatchRecord, Cut, Interval, Note
from cdc_pipeline.lake.suspensions import note_of
from cdc_pipeline.pipeline.capture.stretch import CaptureContext, Stretch, before_begin
from cdc_pipeline.pipeline.capture.summary import RunSummary
from cdc_pipeline.pipeline.publish import cursor_metadata, publish, start_metadata
from cdc_pipeline.position.cursor import CursorState, OpenXa, TargetState
from cdc_pipeline.position.position import Position, ServerIdentity


class BatchCommitter(Protocol):
    """Committer as the drain sees it."""

    def is_due(self) -> bool:
        """Whether the batch is large enough and between transactions."""

    def commit(self, *, final: bool = False) -> None:
        """`final`: at the end of the stretch."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Interval of a batch, `cursor` behind it; `source_time_us`: its last commit, -1 unknown."""

    interval: Interval
    cursor: CursorState
    source_time_us: int
    notes: tuple[Note, ...] = ()


class Moves(Protocol):
    """Rules for what the batches of a stretch move."""

    @property
    def kind(self) -> BatchKind:
        pass

    @property
    def moves_cursor(self) -> bool:
        """Whether the cursor moves past a stretch that changes no target."""

    def needs_batch(self, *, final: bool) -> bool:
        """Whether the position alone makes a batch due, without work for any target."""

    def cover(self, number: int, created: Collection[str]) -> Covered:
        """Take the interval since the last call; `created`: targets that batch `number` makes."""

    def published(self, cut: Cut) -> None:
        pass


class CursorMoves:
    kind: BatchKind = "batch"
    moves_cursor: bool = True

    def __init__(self, stretch: Stretch, *, source: str) -> None:
        self._stretch = stretch
        self._source = source

    def needs_batch(self, *, final: bool) -> bool:  # noqa: ARG002
        """The cursor moves without a batch."""
        return False

    def cover(self, number: int, created: Collection[str]) -> Covered:
        stretch = self._stretch
        interval = stretch.place.take_interval()
        cursor = cursor_state(
            self._source,
            stretch.identity,
            stretch.place.full_position(),
            batch_number=number,
            epoch=stretch.epoch,
            open_xa=stretch.parking.durable(),
            targets=stretch.targets.states(created),
            shadows=stretch.targets.shadow_texts(),
        )
        return Covered(interval, cursor, stretch.place.source_time_us)

    def published(self, cut: Cut) -> None:
        pass


class Committer:
    """Committer of a stretch's batches; `done` counts intervals without a batch, too."""

    def __init__(
        self,
        context: CaptureContext,
        stretch: Stretch,
        *,
        moves: Moves | None = None,
        start_reasons: tuple[str, ...] = (),
    ) -> None:
        self.done = RunSummary()
        self.cursor = stretch.section.cursor
        self._context = context
        self._stretch = stretch
        self._moves = moves or CursorMoves(stretch, source=context.config.name)
        self._start_metadata = start_metadata(start_reasons)

    def is_due(self) -> bool:
        batch, limits = self._stretch.stager.staged, self._context.config.batch
        if (
            batch is None
            or batch.has_open
            or self._stretch.parking.has_pieces
            or self._stretch.overlap.is_held
        ):
            return False
        return (
            batch.staged_bytes >= limits.merge_staged_bytes
            or batch.staged_rows >= limits.merge_rows
        )

    def commit(self, *, final: bool = False) -> None:
        """Without work, at most the cursor moves. After a SinkError the next run finishes the
        batch.
        """
        if self._stretch.stager.is_in_doubt:
            return
        if self._stretch.overlap.is_held:
            if not final:
                self._stretch.overlap.check_passed(self._stretch.place)
        elif self._has_work() or self._moves.needs_batch(final=final):
            self._commit_batch()
        elif final and self._moves.moves_cursor:
            self._move_cursor()

    def _has_work(self) -> bool:
        """Of a new suspension (K4), or of a target that is no longer exact (K12), too."""
        targets = self._stretch.targets
        of_targets = targets.news or targets.forgotten or targets.has_lost_exactness
        return bool(of_targets) or self._stretch.stager.has_work

    def _commit_batch(self) -> None:
        context, stager, targets = self._context, self._stretch.stager, self._stretch.targets
        with stager.together():
            batch = stager.batch()
            self._save_history()
            start = self._left_behind_at()
            collected = stager.collect()
            covered = self._moves.cover(stager.number, collected.created)
            suspended = tuple(
                note_of(table, suspension) for table, suspension in targets.news.items()
            )
            head = BatchRecord(
                source=covered.cursor.source,
                batch_number=stager.number,
                kind=self._moves.kind,
                run_id=context.run_id,
                interval=covered.interval,
                cursor_after=covered.cursor,
                source_time_us=covered.source_time_us,
                ddl=collected.ddl,
                notes=(*collected.notes, *covered.notes, *suspended),
                dropped=tuple(sorted(targets.forgotten)),
            )
            record = batch.record(head.starting_at(start))
            context.observer.merging()
            cut = context.sink.finish(record, on_merged=context.observer.merged)
            targets.committed(cut)
            self.done.add(cut)
            self.cursor = cut.cursor
            publish(
                cut,
                sink=context.sink,
                cursors=context.cursors,
                observer=context.observer,
                metadata=self._start_metadata,
                ack=self._ack,
            )
            stager.published(cut)
            self._stretch.parking.published()
        self._moves.published(cut)

    def _left_behind_at(self) -> Position:
        open_before = self.cursor.open_xa if self.cursor is not None else ()
        return before_begin(
            self._stretch.place.batch_start, oldest_begin(open_before, epoch=self._stretch.epoch)
        )

    def _move_cursor(self) -> None:
        cursor, place = self.cursor, self._stretch.place.position
        if cursor is not None and (cursor.epoch, cursor.position.order) == (
            self._stretch.epoch,
            place.order,
        ):
            return
        self._save_history()
        collected = self._stretch.stager.collect()
        covered = self._moves.cover(0 if cursor is None else cursor.batch_number, ())
        self.done.moved(covered.interval, collected.ddl, collected.notes)
        self.cursor = covered.cursor
        metadata = cursor_metadata(covered.interval, None, collected.ddl, collected.notes)
        self._context.cursors.write(self.cursor, metadata | self._start_metadata)
        self._ack()

    def _save_history(self) -> None:
        stretch = self._stretch
        if stretch.history is not None:
            stretch.history.save(stretch.place.position)
        stretch.schemas.reached(stretch.place.position)
        stretch.schemas.save(self.cursor, source_time_us=stretch.place.source_time_us)

    def _ack(self) -> None:
        position = self._stretch.place.take_ack_position()
        if position is not None:
            self._stretch.store.ack(position)


def cursor_state(
    source: str,
    identity: ServerIdentity,
    at: Position,
    *,
    batch_number: int = 0,
    epoch: int = 1,
    open_xa: tuple[OpenXa, ...] = (),
    targets: dict[str, TargetState] | None = None,
    shadows: dict[str, str] | None = None,
) -> CursorState:
    return CursorState(
        source=source,
        batch_number=batch_number,
        epoch=epoch,
        flavor=identity.flavor,
        server_id=identity.server_id,
        server_uuid=identity.server_uuid,
        address=identity.address,
        lower_case_table_names=identity.names,
        journal=at.journal,
        offset=at.offset,
        timestamp_s=at.timestamp_s,
        event_server_id=at.server_id,
        gtid_set=at.gtid_set,
        journal_created_s=at.journal_created_s,
        last_event=at.last_event,
        last_transaction=at.last_transaction,
        open_xa=open_xa,
        targets=targets or {},
        shadows=shadows or {},
    )
