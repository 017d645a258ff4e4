"""One bounded capture, the whole way (design.md, "What it is").

    lock -> reconcile cursor and cut -> finish a recorded batch -> plan -> read | drain -> report

Rules:
- One capture of a source at a time (K16); the lock goes with the process.
- A recorded batch is finished first, from its own files, before the source is asked anything (K2).
- A run that applies nothing starts no JVM and says why there was nothing (design.md, promise 4).
"""

from __future__ import annotations

import time

from cdc_pipeline.config import Bound, PipelineConfig
from cdc_pipeline.pipeline.commit import Committer, cursor_metadata, cursor_state
from cdc_pipeline.pipeline.decoding import RunDecoder
from cdc_pipeline.pipeline.drain import Drain
from cdc_pipeline.pipeline.parts import build_sink, build_source, build_store, slice_events_max
from cdc_pipeline.pipeline.place import Place
from cdc_pipeline.pipeline.planning import ResolvedRun, resolve
from cdc_pipeline.pipeline.reader import Reader
from cdc_pipeline.pipeline.reconcile import Reconciled, reconcile
from cdc_pipeline.pipeline.report import CaptureObserver, CaptureReport, SilentObserver, TableReport
from cdc_pipeline.pipeline.statements import StatementRules
from cdc_pipeline.pipeline.tables import TableFilter
from cdc_pipeline.pipeline.targets import Targets
from cdc_pipeline.pipeline.xa import XaControl
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.schema.ddl_session import canonical_xid
from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.sink.manifest import Cut, DdlDecision, Interval, Note
from cdc_pipeline.source.protocol import Source


def capture(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    bound: Bound | None = None,
    observer: CaptureObserver | None = None,
    run_id: str = "",
) -> CaptureReport:
    """Capture from the cursor to the bound, and keep the lake's tables up with it.

    Args:
        config: the pipeline.
        cursors: where the cursor is read from and committed to.
        bound: where to stop; the configuration's bound by default.
        observer: is told of the progress.
        run_id: of the orchestrator's run, kept in the records.

    Raises:
        LockError: another capture of this source is running.
        CdcError: everything else, with the way out; what came before the error is merged and acked to the last whole
            transaction.
    """
    observer = observer or SilentObserver()
    started = (time.monotonic(), time.process_time())
    sink = build_sink(config, on_joint=observer.reached)
    with sink.lock():
        source = build_source(config)
        try:
            run = _Run(config, sink=sink, source=source, cursors=cursors, observer=observer, run_id=run_id)
            run.recover()
            resolved = run.plan(bound or config.bound)
            observer.planned(resolved.plan)
            if resolved.start.order != resolved.end.order:
                run.read_and_drain(resolved)
            else:
                run.hold_start(resolved)
            return run.report(resolved, started)
        finally:
            source.close()


class _Run:
    """The values that the steps of one capture share."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        sink: DeltaSink,
        source: Source,
        cursors: CursorStore,
        observer: CaptureObserver,
        run_id: str,
    ) -> None:
        self._config = config
        self._sink = sink
        self._source = source
        self._cursors = cursors
        self._observer = observer
        self._run_id = run_id
        self._cut: Cut | None = None
        self._reconciled = Reconciled(None, "", False)
        self._recovered: Cut | None = None
        self._cuts: list[Cut] = []
        self._idle: list[Interval] = []
        self._idle_ddl: list[DdlDecision] = []
        self._idle_notes: list[Note] = []
        self._unfinished = 0
        self._cursor: CursorState | None = None

    def recover(self) -> None:
        """Bring lake and cursor to one state: finish what is recorded, remove what is not (K2, K3)."""
        cut = self._sink.last_cut()
        pending = self._sink.pending_record()
        self._sink.discard_unrecorded()
        self._reconciled = reconcile(self._cursors.read(), cut)
        if cut is not None:
            self._sink.check_targets(cut)
        if pending is not None:
            cut = self._recovered = self._sink.finish(pending)
            reason = f"batch {cut.batch_number} was recorded and not finished: finished from its own files"
            self._reconciled = Reconciled(cut.cursor, reason, True)
        if self._reconciled.emit and self._reconciled.cursor is not None:
            assert cut is not None
            if self._recovered is not None:
                self._observer.published(self._recovered)
                self._observer.reached("before_cursor")
            self._cursors.write(self._reconciled.cursor, cursor_metadata(cut.interval, cut))
            self._observer.reached("before_ack")
        if cut is not None:
            self._sink.cleanup(cut)
        self._sink.discard_parked(cut.cursor if cut is not None else None, self._reconciled.cursor)
        self._cut = cut
        self._cursor = self._reconciled.cursor

    def plan(self, bound: Bound) -> ResolvedRun:
        self._source.check()
        return resolve(self._config, source=self._source, reconciled=self._reconciled, cut=self._cut, bound=bound)

    def read_and_drain(self, resolved: ResolvedRun) -> None:
        """Reader and drain, two threads around the store."""
        config = self._config
        identity = self._source.identity
        tables = TableFilter(config.tables)
        rules = StatementRules(tables, is_mariadb=identity.flavor == "mariadb")
        store = build_store(config)
        store.start()
        reader = Reader(
            run=resolved, source=self._source, store=store, rules=rules, slice_events_max=slice_events_max(config)
        )
        place = Place(resolved.start, identity.flavor)
        targets = Targets(config.name, self._cut)
        cursor = self._reconciled.cursor
        epoch = cursor.epoch if cursor is not None else 1
        parking = self._sink.parking(epoch=epoch, open_xa=cursor.open_xa if cursor is not None else ())
        committer = Committer(
            source=config.name,
            identity=identity,
            cursor=cursor,
            limits=config.batch,
            sink=self._sink,
            cursors=self._cursors,
            store=store,
            targets=targets,
            place=place,
            observer=self._observer,
            xa=parking,
            run_id=self._run_id,
        )
        xa = XaControl(
            parking,
            targets=targets,
            committer=committer,
            place=place,
            epoch=epoch,
            captured=tables.captured,
            accepted=[canonical_xid(text) for text in config.accept.unknown_xa],
        )
        drain = Drain(
            config=config,
            store=store,
            reader=reader,
            rules=rules,
            decoder=RunDecoder(captured=tables.captured, epoch=epoch),
            targets=targets,
            place=place,
            committer=committer,
            xa=xa,
            observer=self._observer,
            resolved=resolved,
        )
        reader.start()
        try:
            drain.run()
        finally:
            self._cuts = committer.cuts
            self._idle = committer.idle_intervals
            self._idle_ddl = committer.idle_ddl
            self._idle_notes = committer.idle_notes
            self._unfinished = len(reader.dropped)
            self._cursor = committer.cursor
            store.stop()
            self._source.close()
            reader.join()

    def hold_start(self, resolved: ResolvedRun) -> None:
        """Nothing to read. A first run keeps its start all the same: `latest` must not move on until the next run."""
        if self._cursor is not None:
            return
        at = resolved.start
        self._cursor = cursor_state(self._config.name, self._source.identity, at)
        interval = Interval(
            start_journal=at.journal, start_offset=at.offset, end_journal=at.journal, end_offset=at.offset
        )
        self._cursors.write(self._cursor, cursor_metadata(interval, None))

    def report(self, resolved: ResolvedRun, started: tuple[float, float]) -> CaptureReport:
        cuts = ([self._recovered] if self._recovered is not None else []) + self._cuts
        interval = _whole([cut.interval for cut in self._cuts] + self._idle, resolved)
        return CaptureReport(
            source=self._config.name,
            outcome="applied" if cuts else "nothing_new",
            reason=_reason(cuts, interval, resolved),
            plan=resolved.plan,
            interval=interval,
            recovered_batch=self._recovered.batch_number if self._recovered is not None else None,
            batches=len(cuts),
            tables=_tables(cuts),
            unfinished_transactions=self._unfinished,
            ddl=(*(decision for cut in cuts for decision in cut.ddl), *self._idle_ddl),
            notes=(*(note for cut in cuts for note in cut.notes), *self._idle_notes),
            cursor=self._cursor,
            seconds=time.monotonic() - started[0],
            cpu_seconds=time.process_time() - started[1],
            spark_started=self._sink.spark_started,
        )


def _whole(parts: list[Interval], resolved: ResolvedRun) -> Interval:
    """The joined interval of a run from those of its batches."""
    start = resolved.start
    ends = (parts[-1].end_journal, parts[-1].end_offset) if parts else (start.journal, start.offset)
    counters = Interval.model_fields.keys() - {"start_journal", "start_offset", "end_journal", "end_offset"}
    return Interval(
        start_journal=start.journal,
        start_offset=start.offset,
        end_journal=ends[0],
        end_offset=ends[1],
        **{name: sum(getattr(part, name) for part in parts) for name in counters},
    )


def _tables(cuts: list[Cut]) -> dict[str, TableReport]:
    tables: dict[str, TableReport] = {}
    for cut in cuts:
        for name, table in cut.tables.items():
            before = tables.get(name, TableReport())
            tables[name] = TableReport(
                rows_inserted=before.rows_inserted + table.rows_inserted,
                rows_updated=before.rows_updated + table.rows_updated,
                rows_deleted=before.rows_deleted + table.rows_deleted,
                delta_version=table.delta_version,
                partial=cut.cursor.targets[name].partial,
            )
    return tables


def _reason(cuts: list[Cut], interval: Interval, resolved: ResolvedRun) -> str:
    plan = resolved.plan
    if cuts:
        rows = sum(table.row_changes for cut in cuts for table in cut.tables.values())
        return f"{rows} row changes in {len(cuts)} batches"
    if resolved.start.order == resolved.end.order:
        return f"{plan.identity} stands at {resolved.end}, where the cursor stands"
    return (
        f"{plan.identity} moved from {resolved.start} to {resolved.end}: {interval.transactions_seen} transactions, "
        "none of them changes a captured table"
    )
