"""One batch from its first staged row to its ack: stage -> record -> merge -> publish cut -> cursor -> ack (K2, K3).

Rules:
- The cursor is written after the cut, the ack comes after the cursor.
- Prepared XA transactions are durable before the record or the cursor that refers to them (K8, `lake/prepared.py`).
- A stretch of the log that changes no target makes no batch: at the end of a run the cursor alone moves on, under the
  same batch number, and no JVM is started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.pipeline_config import BatchConfig
from cdc_pipeline.errors import OverlapUndecidedError, PositionError
from cdc_pipeline.lake.prepared import XaParking, oldest_begin
from cdc_pipeline.lake.records import BatchKind, Cut, DdlDecision, Interval, Note, RecordedSource
from cdc_pipeline.lake.suspensions import note_of
from cdc_pipeline.pipeline.capture.progress import Place
from cdc_pipeline.pipeline.capture.summary import RunSummary
from cdc_pipeline.pipeline.capture.transaction_names import TransactionNames
from cdc_pipeline.pipeline.decode.schemas import Schemas
from cdc_pipeline.pipeline.plan.server_switch import HistoryWriter
from cdc_pipeline.pipeline.publish import cursor_metadata, publish, start_metadata
from cdc_pipeline.pipeline.report import CaptureObserver
from cdc_pipeline.pipeline.targets.quarantine import BadRows
from cdc_pipeline.pipeline.targets.targets import Target, Targets
from cdc_pipeline.position.cursor import CursorState, CursorStore, OpenXa, TargetState
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.schema.evolution.changes import TableChange
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.mode_columns import keeps_every_change
from cdc_pipeline.sink.modes.target_plan import TargetPlan
from cdc_pipeline.sink.replace.content import carried_content
from cdc_pipeline.sink.staging.raw_files import RawRows
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.store.contract import EventStore


class Committer:
    """Collects a merge batch and commits it.

    Args:
        epoch: of all that is committed; the cursor's by default (K1).
        start_reasons: why the run started where it did, kept in the metadata of each cursor.

    Attributes:
        done: what was published, and the intervals at the run's end that changed no target.
        cursor: the latest cursor; None before the first.
        hold_until_us: no cut is published and no cursor moved before a transaction with a later commit time (K7).
        history: written before the record or cursor that it belongs to; None where the log has GTIDs.
        schemas: written likewise.
        names: of the transactions that are staged.
        overlap_accepted: targets that may keep changes of the overlap twice (K7).
    """

    def __init__(
        self,
        *,
        source: str,
        identity: ServerIdentity,
        cursor: CursorState | None,
        limits: BatchConfig,
        sink: DeltaSink,
        cursors: CursorStore,
        store: EventStore,
        targets: Targets,
        place: Place,
        observer: CaptureObserver,
        xa: XaParking,
        run_id: str,
        epoch: int | None = None,
        start_reasons: tuple[str, ...] = (),
    ) -> None:
        self.done = RunSummary()
        self.cursor = cursor
        self.hold_until_us: int | None = None
        self.history: HistoryWriter | None = None
        self.schemas: Schemas | None = None
        self.names = TransactionNames()
        self.overlap_accepted: frozenset[str] = frozenset()
        self._source = source
        self._identity = identity
        self._limits = limits
        self._sink = sink
        self._cursors = cursors
        self._store = store
        self._targets = targets
        self._place = place
        self._observer = observer
        self._xa = xa
        self._run_id = run_id
        self._epoch = epoch or (1 if cursor is None else cursor.epoch)
        self._start_reasons = start_reasons
        self._staged: StagedBatch | None = None
        self._created: set[str] = set()
        self._ddl: list[DdlDecision] = []
        self._notes: list[Note] = []
        # Set while a step is under way whose failure leaves the batch in doubt: nothing may be committed after it.
        self._in_doubt = False
        self._acting = False

    @property
    def number(self) -> int:
        """Of the batch at work."""
        return (self.cursor.batch_number if self.cursor is not None else 0) + 1

    def _batch(self) -> StagedBatch:
        if self._staged is None:
            self._staged = self._sink.begin(self.number)
        return self._staged

    def stage(self, targets: Sequence[Target], rows: DecodedRows, *, open_transaction: bool) -> None:
        """Add changes of one table to each of its targets; `open_transaction` where the end of their transaction is not
        known yet."""
        self._in_doubt = True
        for target in targets:
            if target.is_new and target.name not in self._created:
                self.create(target)
            named = self.names.of(rows.seq) if target.mode == "changelog" else None
            shaped = self._targets.shaped(rows, target)
            self._batch().add(shaped, plan_of(target), open_transaction=open_transaction, transactions=named)
        self._in_doubt = False

    def stage_raw(self, targets: Sequence[Target], rows: RawRows) -> None:
        """Add changes of one table, in whole transactions, to each of its targets, for executors to decode."""
        self._in_doubt = True
        for target in targets:
            if target.is_new and target.name not in self._created:
                self.create(target)
            self._batch().add_raw(rows, plan_of(target))
        self._in_doubt = False

    def quarantine(self, bad: Sequence[BadRows], *, open_transaction: bool) -> None:
        """Keep rows aside that cannot be applied."""
        self._in_doubt = True
        self._targets.lose_exactness([rows.table for rows in bad])
        for rows in bad:
            self._batch().quarantine(rows.table, rows.entries, open_transaction=open_transaction)
        self._in_doubt = False

    def create(self, target: Target) -> None:
        """The batch creates the target's table."""
        self._created.add(target.name)
        self._batch().create(plan_of(target))

    def change(self, target: Target, change: TableChange) -> None:
        """The batch does to the target what a DDL means for it."""
        before = change.before or change.known
        self._batch().change(plan_of(target), before.target_columns, change.steps)

    def carry(self, target: Target) -> None:
        """The batch puts the rows of another target in the place of this one's (K28)."""
        carried = target.carried
        assert carried is not None
        self._in_doubt = True
        content = carried_content(
            self._sink.paths,
            carried.origin,
            self._sink.last_cut(),
            app_id=carried.app_id,
            version=carried.version,
            keeps_rows=carried.keeps_rows,
        )
        self._created.add(target.name)
        self._batch().replace(plan_of(target), content, before=carried.columns, steps=carried.steps)
        self._in_doubt = False

    def decided(self, decision: DdlDecision) -> None:
        """Keep a decision for the batch's record."""
        self._ddl.append(decision)

    def note(self, note: Note) -> None:
        """Keep a decision that is no DDL for the batch's record."""
        self._notes.append(note)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Steps that take effect together: after a failure within them nothing more is committed in this run."""
        self._acting = True
        yield
        self._acting = False

    def undo_open(self, undone: NDArray[np.int64]) -> None:
        """ROLLBACK TO undid events of the open transaction (see `Savepoints.undone`): their rows never count."""
        if self._staged is not None:
            self._staged.undo_open(undone)

    def stand_still(self) -> Position:
        """Where a target stands that follows the source no more: at the end of the last whole transaction, or before
        the oldest prepared one that is open, which it has to read again (K4, K8)."""
        return before_begin(self._place.full_position(), self._xa.begin_of_oldest())

    def close_open(self) -> None:
        """The open transaction was committed at the source: its rows count."""
        if self._staged is not None:
            self._staged.close_open()

    def drop_open(self, table: str | None = None) -> None:
        """The open transaction was rolled back or never ended: its rows never count; or those of one target alone."""
        if table is None:
            self._xa.drop_pieces()
        if self._staged is not None:
            self._staged.drop_open(table)

    def hold(self, until_us: int | None, *, accepted: Collection[str] = ()) -> None:
        """Publish nothing before a transaction with a later commit time (K7); None: there is no overlap. What the
        overlap does not skip may come a second time (K12); targets that are `accepted` may keep it twice."""
        self.hold_until_us = until_us
        self.overlap_accepted = frozenset(accepted)
        if until_us is not None:
            self._targets.lose_exactness()

    @property
    def is_held(self) -> bool:
        """Whether the place is still in the overlap with the log of another server."""
        self.coming(self._place.source_time_us)
        return self.hold_until_us is not None

    def check_overlap(self, targets: Sequence[Target], source: str, *, first_us: int = -1) -> None:
        """What keeps every change must not get a change twice (K7).

        Args:
            source: the source table whose changes come.
            first_us: commit time of the first of them; -1 not known.

        Raises:
            OverlapUndecidedError: they lie in the overlap with the log of another server.
        """
        if not self.is_held or self.hold_until_us is None or first_us > self.hold_until_us:
            return
        undecided = [
            target.name
            for target in targets
            if keeps_every_change(target.mode, target.key) and target.name not in self.overlap_accepted
        ]
        if undecided:
            names = ", ".join(undecided)
            raise OverlapUndecidedError(
                "changes that may have been applied before the switch to this server would be kept twice",
                targets=tuple(undecided),
                table=source,
                setting="accept.overlap",
                expected="a log that agrees with what was applied, up to the switch, or a decision",
                got=f"an overlap without GTIDs, into {names}",
                next_step=f"list {names} in accept.overlap to keep these changes, perhaps twice; or begin anew",
            )

    def coming(self, commit_us: int) -> None:
        """The next transaction has this commit time: where it is later than the overlap, that has been passed."""
        if self.hold_until_us is not None and commit_us > self.hold_until_us:
            self.hold_until_us = None

    def check_not_held(self) -> None:
        """Raise where the run would publish inside the overlap.

        Raises:
            PositionError: the log has no transaction yet that is later than what was applied before the switch.
        """
        if not self.is_held:
            return
        at = self._place.position
        raise PositionError(
            "the log of the server that was switched to holds nothing later than what was applied before the switch: a "
            "cut here would go back in time",
            journal=at.journal,
            offset=at.offset,
            expected=f"a transaction committed after {self.hold_until_us} (microseconds since 1970)",
            got=f"the last one was committed at {self._place.source_time_us}",
            next_step="run again when the server has written later transactions; if it is a replica, wait until it has "
            "caught up. Nothing was published",
        )

    def is_due(self) -> bool:
        """Whether the batch is large enough to be merged, and stands between transactions."""
        batch = self._staged
        if batch is None or batch.has_open or self._xa.has_pieces or self.is_held:
            return False
        return batch.staged_bytes >= self._limits.merge_staged_bytes or batch.staged_rows >= self._limits.merge_rows

    def commit(self, *, final: bool = False) -> None:
        """Record, merge, publish, write the cursor, ack. Without work: nothing, or at a run's end the cursor alone.

        Raises:
            SinkError: a merge failed; the record stays and the next run finishes it.
        """
        if self._in_doubt or self._acting:
            return
        if self.is_held:
            if not final:
                self.check_not_held()
            return
        if not self._has_work(final=final):
            if final:
                self._move_cursor()
            return
        batch = self._batch()
        self._in_doubt = True
        self._save_history()
        open_before = self.cursor.open_xa if self.cursor is not None else ()
        start = before_begin(self._place.batch_start, oldest_begin(open_before, epoch=self._epoch))
        interval = self._take_interval()
        record = batch.record(
            interval=interval,
            cursor_after=self._cursor_at(self.number, self._created),
            source_time_us=self._source_time_us(),
            ddl=tuple(self._ddl),
            notes=(*self._notes, *(note_of(table, held) for table, held in self._targets.news.items())),
            run_id=self._run_id,
            kind=self._kind,
            start=start,
        )
        self._staged, self._created, self._ddl, self._notes = None, set(), [], []
        self.publish(self._sink.finish(record))

    # What a catch-up does otherwise (`catch_up.CatchUpCommitter`).

    _kind: ClassVar[BatchKind] = "batch"
    may_stage_raw: ClassVar[bool] = True

    def _has_work(self, *, final: bool) -> bool:  # noqa: ARG002
        """Whether there is a batch to record: changes of targets, targets that are suspended from here on (K4), or that
        are not exact any more (K12)."""
        return (
            bool(self._targets.news)
            or self._targets.has_lost_exactness
            or (self._staged is not None and self._staged.has_work)
        )

    def _take_interval(self) -> Interval:
        return self._place.take_interval()

    def _source_time_us(self) -> int:
        return self._place.source_time_us

    def publish(self, cut: Cut) -> None:
        """The steps after a cut: cursor, ack, clean-up. Also for a batch that an earlier run had recorded."""
        self._targets.committed(cut)
        self.done.add(cut)
        self.cursor = cut.cursor
        publish(
            cut,
            sink=self._sink,
            cursors=self._cursors,
            observer=self._observer,
            metadata=start_metadata(self._start_reasons),
            ack=self._ack,
        )
        self._xa.published()
        self._in_doubt = False

    def _move_cursor(self) -> None:
        cursor, place = self.cursor, self._place.position
        if cursor is not None and (cursor.epoch, cursor.position.order) == (self._epoch, place.order):
            return
        self._save_history()
        interval = self._place.take_interval()
        ddl, self._ddl = tuple(self._ddl), []
        notes, self._notes = tuple(self._notes), []
        self.done.moved(interval, ddl, notes)
        self.cursor = self._cursor_at(self.cursor.batch_number if self.cursor is not None else 0, ())
        metadata = cursor_metadata(interval, None, ddl, notes)
        self._cursors.write(self.cursor, metadata | start_metadata(self._start_reasons))
        self._ack()

    def _save_history(self) -> None:
        if self.history is not None:
            self.history.save(self._place.position)
        if self.schemas is not None:
            self.schemas.save(self.cursor, source_time_us=self._place.source_time_us)

    def _ack(self) -> None:
        if self._place.ack_position is not None:
            self._store.ack(self._place.ack_position)
            self._place.ack_position = None

    def _cursor_at(self, number: int, created: Collection[str]) -> CursorState:
        return cursor_state(
            self._source,
            self._identity,
            self._place.full_position(),
            batch_number=number,
            epoch=self._epoch,
            open_xa=self._xa.durable(),
            targets=self._targets.states(created),
            shadows=self._targets.shadow_texts(),
        )


def before_begin(at: Position, begin: Position | None) -> Position:
    """`at`, or `begin` where that is earlier; the GTID set there is completed when it is read from."""
    return at if begin is None or begin.order >= at.order else begin


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
    """The cursor of `source` at a position."""
    return CursorState(
        source=source,
        batch_number=batch_number,
        epoch=epoch,
        flavor=identity.flavor,
        server_id=identity.server_id,
        server_uuid=identity.server_uuid,
        address=identity.address,
        journal=at.journal,
        offset=at.offset,
        timestamp_s=at.timestamp_s,
        event_server_id=at.server_id,
        gtid_set=at.gtid_set,
        journal_created_s=at.journal_created_s,
        last_event=at.last_event,
        open_xa=open_xa,
        targets=targets or {},
        shadows=shadows or {},
    )


def plan_of(target: Target) -> TargetPlan:
    """What the sink must know of a target."""
    itself = {target.name: RecordedSource(columns=target.columns, key=target.key)}
    return TargetPlan(
        table=target.name,
        app_id=target.state.app_id,
        columns=target.columns,
        key=target.key,
        partial=target.state.partial,
        mode=target.mode,
        track=target.track,
        key_reason=target.key_reason,
        sources={} if target.sources == itself else target.sources,
        rescued=target.rescued,
        shape=target.shape,
        replaces=target.replaces,
        exact=target.state.exact,
    )
