"""The stages of one stretch of the log, joined: reader -> store -> drain, and the committer behind them.

A run's own stretch and that of a target which catches up (K4) are built here alike; they differ in the committer, in
where prepared transactions come from, and in what becomes of a failure that is one table's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.pipeline.capture.commit import Committer
from cdc_pipeline.pipeline.capture.drain import Drain
from cdc_pipeline.pipeline.capture.progress import Place
from cdc_pipeline.pipeline.capture.reader import Reader
from cdc_pipeline.pipeline.capture.suspension import Suspender
from cdc_pipeline.pipeline.capture.xa import XaControl
from cdc_pipeline.pipeline.decode.decoding import decoder_of
from cdc_pipeline.pipeline.decode.raw_staging import raw_staging
from cdc_pipeline.pipeline.decode.schemas import schemas_of
from cdc_pipeline.pipeline.decode.statements import StatementRules
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.pipeline.report import CaptureObserver
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.pipeline.wiring import build_store, slice_events_max
from cdc_pipeline.position.cursor import CursorState, CursorStore, OpenXa
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.ddl.session import canonical_xid
from cdc_pipeline.sink.protocol import Sink
from cdc_pipeline.source.protocol import Source

C = TypeVar("C", bound=Committer)


class Stages(Generic[C]):
    """Reader and drain, two threads around a store.

    Args:
        resolved: the stretch.
        tables: which tables are read.
        targets: which of them follow the source in this stretch.
        cursor: where the source stands; None before the first.
        committing: how batches are committed.
        start_reasons: see `Committer`.
        open_xa: prepared transactions that are parked already (K8).
        suspends: whether a failure of one table alone suspends it (K4); else it stops the stretch.
        on_position: is told, in the reader's thread, how far the log was read and stored (SPEC T3).

    Raises:
        LakeStateError: the stored schema history is damaged.
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        resolved: ResolvedRun,
        source: Source,
        sink: Sink,
        cursors: CursorStore,
        observer: CaptureObserver,
        run_id: str,
        tables: TableFilter,
        targets: Targets,
        cursor: CursorState | None,
        committing: type[C],
        suspends: bool,
        start_reasons: tuple[str, ...] = (),
        open_xa: Sequence[OpenXa] = (),
        on_position: Callable[[Position], None] | None = None,
    ) -> None:
        identity, epoch = source.identity, resolved.epoch
        captured = targets.or_followed(tables.captured)
        rules = StatementRules(
            tables, is_mariadb=identity.flavor == "mariadb", config=config, followed=targets.followed_sources()
        )
        self._source = source
        self._store = store = build_store(config, on_joint=observer.reached)
        self.reader = Reader(
            run=resolved,
            source=source,
            store=store,
            rules=rules,
            slice_events_max=slice_events_max(config),
            accepted_ends=config.accept.unproved_journal_ends,
            on_position=on_position,
            on_joint=observer.reached,
        )
        place = Place(resolved.start, identity.flavor, keeps_gtids=source.uses_gtids)
        parking = sink.parking(epoch=epoch, open_xa=open_xa)
        self.committer = committer = committing(
            source=config.name,
            identity=identity,
            cursor=cursor,
            limits=config.batch,
            sink=sink,
            cursors=cursors,
            store=store,
            targets=targets,
            place=place,
            observer=observer,
            xa=parking,
            run_id=run_id,
            epoch=epoch,
            start_reasons=start_reasons,
        )
        suspender = Suspender(
            captured=captured,
            known=resolved.plan.tables,
            targets=targets,
            committer=committer,
            place=place,
            epoch=epoch,
        )
        committer.schemas = schemas = schemas_of(
            config, source=source, run=resolved, cursor=cursor, recorded=targets.known, follows=targets.follows
        )
        raw = None
        if committer.may_stage_raw:
            expected = resolved.plan.bytes_between
            lack, note = sink.lack_of_executors, committer.note
            raw = raw_staging(config, targets, bytes_expected=expected, epoch=epoch, lack=lack, note=note)
        self._drain = Drain(
            config=config,
            store=store,
            reader=self.reader,
            rules=rules,
            decoder=decoder_of(targets, captured=captured, epoch=epoch, schemas=schemas),
            targets=targets,
            place=place,
            committer=committer,
            xa=XaControl(
                parking,
                targets=targets,
                committer=committer,
                place=place,
                epoch=epoch,
                captured=captured,
                accepted=[canonical_xid(text) for text in config.accept.unknown_xa],
            ),
            observer=observer,
            resolved=resolved,
            suspends=suspender if suspends else lambda _error: False,
            schemas=schemas,
            raw=raw,
        )

    def run(self) -> None:
        """Read and drain the stretch; store and source are closed then.

        Raises:
            CdcError: from reading, decoding or merging; what came before it is committed.
        """
        self._store.start()
        self.reader.start()
        try:
            self._drain.run()
        finally:
            self._store.stop()
            self._source.close()
            self.reader.join()
