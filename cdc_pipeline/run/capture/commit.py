"""Commit the batches of a stretch: record -> merge -> cut -> cursor -> ack (K2, K3).

Rules:
- The ack comes after the cursor (`run/publish.py`), here.
- Prepared XA transactions are durable before the record or cursor that refers to them (K8,
  `lake/prepared.py`).
- A range that changes no target makes no batch: at the end of a run only the cursor moves, under
  the same batch number, and no JVM is started.
- A batch moves the source's cursor. A catch-up's moves one suspended target instead
  (`catch_up.py`), and a segment's is a part of a batch (`segments/segment.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cdc_pipeline.lake.records import BatchKind, BatchRecord, Cut, Interval, Note
from cdc_pipeline.lake.suspensions import note_of
from cdc_pipeline.position.cursor import (
    CursorState,
    OpenXa,
    TargetState,
    before_begin,
    oldest_begin,
    resume_fields,
)
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.run.capture.capture_session import CaptureContext, CaptureSession
from cdc_pipeline.run.capture.stager import Collected
from cdc_pipeline.run.capture.summary import RunSummary
from cdc_pipeline.run.publish import start_metadata


@dataclass(frozen=True, slots=True)
class BatchExtent:
    """Interval of a batch, `cursor` behind it; `source_time_us`: its last commit, -1 unknown."""

    interval: Interval
    cursor: CursorState
    source_time_us: int
    notes: tuple[Note, ...] = ()


class Committer:
    """`cut`: of the last batch, None before. `done` counts batches, and intervals without one."""

    kind: BatchKind = "batch"

    def __init__(
        self,
        context: CaptureContext,
        session: CaptureSession,
        *,
        done: RunSummary | None = None,
        start_reasons: tuple[str, ...] = (),
    ) -> None:
        self.cut: Cut | None = None
        self.cursor = session.cursor
        self._context = context
        self._session = session
        self._done = RunSummary() if done is None else done
        self._start_metadata = start_metadata(start_reasons)

    def is_due(self) -> bool:
        """Whether the batch is large enough and between transactions."""
        batch, limits = self._session.stager.staged, self._context.config.batch
        if (
            batch is None
            or batch.has_open
            or self._session.parking.has_pieces
            or self._session.overlap.is_held
        ):
            return False
        return (
            batch.staged_bytes >= limits.merge_staged_bytes
            or batch.staged_rows >= limits.merge_rows
        )

    def commit(self, *, final: bool = False) -> bool:
        """Whether there was a batch; after a SinkError the next run finishes it."""
        if self._session.stager.is_in_doubt:
            return False
        if self._session.overlap.is_held:
            if not final:
                self._session.overlap.check_passed(self._session.place)
        elif self._has_work():
            self._commit_batch()
            return True
        elif final:
            self._end_without_work()
        return False

    def _extent(self, number: int, created: Collection[str]) -> BatchExtent:
        """Take the interval since the last call; `created`: targets that batch `number` makes."""
        session = self._session
        interval = session.place.take_interval()
        cursor = cursor_state(
            self._context.config.name,
            session.identity,
            session.place.full_position(),
            batch_number=number,
            epoch=session.epoch,
            open_xa=session.parking.durable(),
            targets=session.targets.states(created),
            shadows={
                name: shadow.model_dump_json()
                for name, shadow in sorted(session.targets.shadows.items())
            },
        )
        return BatchExtent(interval, cursor, session.place.source_time_us)

    def _head(self, collected: Collected) -> BatchRecord:
        number, known = self._session.stager.number, self._session.targets
        open_before = self.cursor.open_xa if self.cursor is not None else ()
        begin = oldest_begin(open_before, epoch=self._session.epoch)
        start = before_begin(self._session.place.batch_start, begin)
        extent = self._extent(number, collected.created)
        suspended = (note_of(table, suspension) for table, suspension in known.news.items())
        return BatchRecord(
            source=extent.cursor.source,
            batch_number=number,
            kind=self.kind,
            run_id=self._context.run_id,
            start=start,
            interval=extent.interval,
            cursor_after=extent.cursor,
            source_time_us=extent.source_time_us,
            ddl=collected.ddl,
            notes=(*collected.notes, *extent.notes, *suspended),
            dropped=tuple(sorted(known.forgotten)),
        )

    def _has_work(self) -> bool:
        """Of a new suspension (K4), or of a target that is no longer exact (K12), too."""
        known = self._session.targets
        of_targets = known.news or known.forgotten or known.has_lost_exactness
        return bool(of_targets) or self._session.stager.has_work

    def _commit_batch(self) -> Cut:
        context, stager = self._context, self._session.stager
        with stager.together():
            batch = stager.batch()
            self._save_history()
            record = batch.record(self._head(stager.collect()))
            cut = context.merge(record)
            self._session.targets = self._session.targets.at_cut(cut)
            self._done.add(cut)
            self.cut, self.cursor = cut, cut.cursor
            context.publish(cut, self._start_metadata)
            self._ack()
            stager.number = cut.batch_number + 1
            self._session.parking.published()
        return cut

    def _end_without_work(self) -> None:
        cursor, place = self.cursor, self._session.place.position
        if cursor is not None and (cursor.epoch, cursor.position.order) == (
            self._session.epoch,
            place.order,
        ):
            return
        self._save_history()
        collected = self._session.stager.collect()
        extent = self._extent(0 if cursor is None else cursor.batch_number, ())
        self._done.moved(extent.interval, collected.ddl, collected.notes)
        self.cursor = extent.cursor
        self._context.move(
            extent.cursor,
            extent.interval,
            self._start_metadata,
            ddl=collected.ddl,
            notes=collected.notes,
        )
        self._ack()

    def _save_history(self) -> None:
        session = self._session
        if session.history is not None:
            session.history.save(session.place.position)
        session.schemas.reached(session.place.position)
        session.schemas.save(self.cursor, source_time_us=session.place.source_time_us)

    def _ack(self) -> None:
        position = self._session.place.take_ack_position()
        if position is not None:
            self._session.store.ack(position)


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
        **resume_fields(at),
        timestamp_s=at.timestamp_s,
        event_server_id=at.server_id,
        last_event=at.last_event,
        last_transaction=at.last_transaction,
        open_xa=open_xa,
        targets=targets or {},
        shadows=shadows or {},
    )
