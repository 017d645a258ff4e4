"""Join the stages of one stretch of the log: reader -> store -> drain -> committer.

The stretch of a run and that of a target which catches up (K4) are built alike. They differ in the
committer, in the source of prepared transactions, and in how a failure of a single table is
handled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from cdc_pipeline.lake.prepared import XaParking
from cdc_pipeline.pipeline.capture.commit import BatchCommitter
from cdc_pipeline.pipeline.capture.drain import Drain
from cdc_pipeline.pipeline.capture.overlap import Overlap
from cdc_pipeline.pipeline.capture.progress import Place
from cdc_pipeline.pipeline.capture.reader import Reader
from cdc_pipeline.pipeline.capture.stager import Stager
from cdc_pipeline.pipeline.capture.stretch import CaptureContext, Stretch
from cdc_pipeline.pipeline.capture.suspension import Suspender
from cdc_pipeline.pipeline.capture.xa import XaControl
from cdc_pipeline.pipeline.decode.decoding import decoder_of
from cdc_pipeline.pipeline.decode.raw_staging import raw_staging
from cdc_pipeline.pipeline.decode.schemas import schemas_of
from cdc_pipeline.pipeline.decode.statements import StatementRules
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.pipeline.plan.server_switch import history_writer
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.pipeline.wiring import build_store, slice_events_max
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.ddl.session import canonical_xid
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.source.protocol import Source

C = TypeVar("C", bound=BatchCommitter)
Acks = Callable[[Position], None]


class Stages(Generic[C]):
    """Reader and drain, two threads around a store.

    Args:
        resolved: the stretch.
        tables: which tables are read.
        targets: which of them follow the source in this stretch.
        cursor: of the source; None before the first.
        committing: creates the committer, which reports to its second argument what the store may
            forget.
        is_sources_own: the stretch is the source's own: a failure of one table alone suspends it
            (K4), executors may decode its rows, and it may begin in an overlap (K7). Else a failure
            stops it.
        parking: keeps prepared transactions (K8).
        on_position: receives, in the reader's thread, how far the log was read and stored (SPEC T3).
        begin: begins a batch of a number; the sink's by default.

    Raises:
        LakeStateError: the stored schema history is damaged.
    """

    def __init__(
        self,
        context: CaptureContext,
        *,
        resolved: ResolvedRun,
        source: Source,
        tables: TableFilter,
        targets: Targets,
        cursor: CursorState | None,
        committing: Callable[[Stretch, Acks], C],
        parking: XaParking,
        is_sources_own: bool = False,
        on_position: Callable[[Position], None] | None = None,
        begin: Callable[[int], StagedBatch] | None = None,
    ) -> None:
        config, sink = context.config, context.sink
        identity, epoch = source.identity, resolved.epoch
        captured = targets.or_followed(tables.captured)
        rules = StatementRules(
            tables, is_mariadb=identity.flavor == "mariadb", config=config, followed=targets.followed_sources()
        )
        self._source = source
        self._store = store = build_store(config)
        self.reader = Reader(
            run=resolved,
            source=source,
            store=store,
            rules=rules,
            slice_events_max=slice_events_max(config),
            accepted_ends=config.accept.unproved_journal_ends,
            on_position=on_position,
        )
        place = Place(resolved.start, identity.flavor, keeps_gtids=source.uses_gtids)
        until_us = _overlap_until_us(resolved) if is_sources_own else None
        if until_us is not None:
            targets.lose_exactness()  # what the overlap does not skip may come twice (K12)
        number = (0 if cursor is None else cursor.batch_number) + 1
        history = None
        if is_sources_own:
            history = history_writer(config, start=resolved.start, end=resolved.end, flavor=identity.flavor)
        stretch = Stretch(
            identity=identity,
            epoch=epoch,
            cursor=cursor,
            targets=targets,
            place=place,
            parking=parking,
            overlap=Overlap(place, until_us=until_us, accepted=config.accept.overlap),
            stager=Stager(number=number, sink=sink, targets=targets, begin=begin),
            schemas=schemas_of(
                config, source=source, run=resolved, cursor=cursor, recorded=targets.known, follows=targets.follows
            ),
            history=history,
        )
        self.committer = committing(stretch, store.ack)
        raw = None
        if is_sources_own:
            expected = resolved.plan.bytes_between
            lack, note = sink.lack_of_executors, stretch.stager.note
            raw = raw_staging(config, targets, bytes_expected=expected, epoch=epoch, lack=lack, note=note)
        accepted = [canonical_xid(text) for text in config.accept.unknown_xa]
        suspends = Suspender(stretch, captured=captured, known=resolved.plan.tables)
        self._drain = Drain(
            context,
            stretch,
            store=store,
            reader=self.reader,
            rules=rules,
            decoder=decoder_of(targets, captured=captured, epoch=epoch, schemas=stretch.schemas),
            committer=self.committer,
            xa=XaControl(stretch, captured=captured, accepted=accepted),
            end=resolved.end,
            suspends=suspends if is_sources_own else lambda _error: False,
            raw=raw,
        )

    def run(self) -> None:
        """Read and drain the stretch; close store and source afterwards.

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


def _overlap_until_us(resolved: ResolvedRun) -> int | None:
    return None if resolved.decision is None else resolved.decision.overlap_until_us
