"""Shared state of the stages while one stretch of the log is captured."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.prepared import XaParking
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.admin_batch import AdminBatch
from cdc_pipeline.pipeline.capture.overlap import Overlap
from cdc_pipeline.pipeline.capture.progress import Place
from cdc_pipeline.pipeline.capture.stager import Stager
from cdc_pipeline.pipeline.decode.schemas import Schemas
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.plan.server_switch import HistoryWriter
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.sink.protocol import Sink


@dataclass(frozen=True, slots=True)
class CaptureContext:
    """Values that are the same for all stretches of a run.

    Attributes:
        sink: locked.
        run_id: of the orchestrator's run.
    """

    config: PipelineConfig
    sink: Sink
    cursors: CursorStore
    observer: RunObserver
    run_id: str

    def admin_batch(self, cut: Cut | None, cursor: CursorState) -> AdminBatch:
        """Begin a batch that moves no cursor."""
        return AdminBatch(
            self.sink,
            cursors=self.cursors,
            cut=cut,
            cursor=cursor,
            observer=self.observer,
            run_id=self.run_id,
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the log.

    Attributes:
        cursor: of the source before it; None before the first.
        epoch: of all that is committed (K1).
        targets: those that follow the source in it.
        place: how far its transactions are staged.
        parking: the prepared transactions (K8).
        overlap: with the log of another server (K7).
        stager: collects the current batch.
        schemas: written before the record or cursor that refers to it; None if the table maps
            suffice.
        history: content hashes, written likewise; None if the log has GTIDs.
    """

    identity: ServerIdentity
    epoch: int
    cursor: CursorState | None
    targets: Targets
    place: Place
    parking: XaParking
    overlap: Overlap
    stager: Stager
    schemas: Schemas | None
    history: HistoryWriter | None

    def standing_place(self) -> Position:
        """Return the position of a target that no longer follows the source (K4, K8).

        That is the end of the last whole transaction, or before the oldest open prepared one: the
        target has to read that one again.
        """
        return before_begin(self.place.full_position(), self.parking.begin_of_oldest())

    def drop_open(self) -> None:
        """Drop the open transaction: it was rolled back or never ended."""
        self.parking.drop_pieces()
        self.stager.drop_open()


def before_begin(at: Position, begin: Position | None) -> Position:
    """Return `at`, or `begin` if that is earlier; its GTID set is completed when it is read from."""
    return at if begin is None or begin.order >= at.order else begin
