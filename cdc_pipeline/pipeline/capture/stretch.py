"""A stretch of the log, and the state that advances while its changes are applied.

The stretch of a run, of a target that catches up (K4), and of a backfill's segment are built alike.
They differ in their committer and in `LogSection.is_sources_own`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.prepared import XaParking
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.admin_batch import AdminBatch
from cdc_pipeline.pipeline.capture.overlap import Overlap
from cdc_pipeline.pipeline.capture.progress import Progress
from cdc_pipeline.pipeline.capture.stager import Stager
from cdc_pipeline.pipeline.decode.schemas import Schemas
from cdc_pipeline.pipeline.decode.stored_schemas import schemas_of
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.pipeline.plan.server_switch import HistoryWriter, history_writer
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.pipeline.wiring import build_store
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.schema.history.history import LogPosition
from cdc_pipeline.sink.protocol import Sink
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.contract import EventStore


@dataclass(frozen=True, slots=True)
class CaptureContext:
    """Values that are the same for all stretches of a run; `sink` is locked."""

    config: PipelineConfig
    sink: Sink
    cursors: CursorStore
    observer: RunObserver
    run_id: str

    def admin_batch(self, cut: Cut | None, cursor: CursorState) -> AdminBatch:
        """A batch that moves no cursor."""
        return AdminBatch(
            self.sink,
            cursors=self.cursors,
            cut=cut,
            cursor=cursor,
            observer=self.observer,
            run_id=self.run_id,
        )


@dataclass(frozen=True, slots=True)
class LogSection:
    """The part of the log that is read, and the tables that are read of it.

    Attributes:
        run: its ends, and the epoch of all that is committed (K1).
        cursor: of the source before it.
        left: where another server's log was left that this part goes on from; None if there is
            none, or if the two overlap (K7).
        is_sources_own: a failure of one table alone suspends it (K4), and it may begin in an
            overlap (K7). Otherwise a failure stops it.
    """

    run: ResolvedRun
    source: Source
    tables: TableFilter
    cursor: CursorState | None
    left: LogPosition | None = None
    is_sources_own: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the log with the state of its stages.

    Attributes:
        identity: of the server that wrote it.
        store: the events between reader and drain.
        place: how far its transactions are staged.
        schemas: written before the record or cursor that refers to it.
        history: content hashes, written likewise; None if the log has GTIDs.
    """

    section: LogSection
    identity: ServerIdentity
    store: EventStore
    targets: Targets
    parking: XaParking
    place: Progress
    overlap: Overlap
    stager: Stager
    schemas: Schemas
    history: HistoryWriter | None

    @property
    def epoch(self) -> int:
        return self.section.run.epoch

    def captured(self, database: str, table: str) -> bool:
        """By its name, or followed after a rename."""
        return self.section.tables.captured(database, table) or self.targets.follows(
            database, table
        )

    def applies_parked(self, schema: TableSchema) -> bool:
        """Whether rows of a table are applied at their XA COMMIT.

        They are not if it is no longer captured, or suspended: it then reads this transaction
        again when it catches up (K4).
        """
        database, table = schema.database, schema.table
        return self.captured(database, table) and not self.targets.is_suspended(database, table)

    def resume_position(self) -> Position:
        """Where a target that no longer follows the source has to resume (K4, K8).

        That is the end of the last whole transaction, or before the oldest open prepared one:
        the target has to read that one again.
        """
        return before_begin(self.place.full_position(), self.parking.begin_of_oldest())

    def drop_open(self) -> None:
        """The transaction was rolled back or never ended."""
        self.parking.drop_pieces()
        self.stager.drop_open()


def open_stretch(
    context: CaptureContext,
    section: LogSection,
    *,
    targets: Targets,
    parking: XaParking,
    begin: Callable[[int], StagedBatch] | None = None,
) -> Stretch:
    """A stretch of which nothing has been read; `begin`: begins a batch of a number.

    Raises LakeStateError if the stored schema history is damaged.
    """
    config, run, source, cursor = context.config, section.run, section.source, section.cursor
    identity = source.identity
    until_us = history = None
    if section.is_sources_own:
        until_us = None if run.decision is None else run.decision.overlap_until_us
        history = history_writer(config, start=run.start, end=run.end, flavor=identity.flavor)
    if until_us is not None:
        targets.lose_exactness()  # what the overlap does not skip may come twice (K12)
    return Stretch(
        section=section,
        identity=identity,
        store=build_store(config),
        targets=targets,
        parking=parking,
        place=Progress(run.start, identity.flavor, keeps_gtids=source.uses_gtids),
        overlap=Overlap(until_us=until_us, accepted=config.accept.overlap),
        stager=Stager(
            number=(0 if cursor is None else cursor.batch_number) + 1,
            sink=context.sink,
            targets=targets,
            begin=begin,
        ),
        schemas=schemas_of(
            config,
            source=source,
            run=run,
            cursor=cursor,
            recorded=targets.known,
            follows=targets.follows,
            left=section.left,
        ),
        history=history,
    )


def before_begin(at: Position, begin: Position | None) -> Position:
    """The earlier one; the GTID set of `begin` is completed when it is read from."""
    return at if begin is None or begin.order >= at.order else begin
