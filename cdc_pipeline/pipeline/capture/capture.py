"""Run one bounded capture from start to end.

    lock -> reconcile cursor and cut -> finish a recorded batch -> plan -> read | drain -> report

Rules:
- One capture of a source runs at a time (K16: one writer); the lock ends with the process.
- A recorded batch is finished first, from its own files, before anything is requested from the
  source (K2).
- A run that applies nothing starts no JVM and says why there was nothing: "nothing new" is proved,
  never assumed.
- A run that leaves a target suspended fails at its end, with everything else applied (K4). Targets
  suspended earlier are caught up after the main capture; a run of chosen tables does nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import CdcError, ConfigError, LakeStateError, PositionError
from cdc_pipeline.lake.prepared import oldest_begin
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.lake.suspensions import suspension
from cdc_pipeline.pipeline.capture.catch_up import CatchUp
from cdc_pipeline.pipeline.capture.commit import Committer, cursor_state
from cdc_pipeline.pipeline.capture.stages import Stages
from cdc_pipeline.pipeline.capture.stretch import CaptureContext, before_begin
from cdc_pipeline.pipeline.capture.summary import RunSummary, reason_of, whole_interval
from cdc_pipeline.pipeline.capture.suspension import plan_to_cursor, suspended_error
from cdc_pipeline.pipeline.decode.schemas import schemas_of
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.plan.planning import resolve
from cdc_pipeline.pipeline.plan.reconcile import Reconciled
from cdc_pipeline.pipeline.plan.resolved_run import ResolvedRun
from cdc_pipeline.pipeline.plan.server_switch import overlap_of
from cdc_pipeline.pipeline.plan.starting import ChosenServer, choose, counted
from cdc_pipeline.pipeline.plan.unmatched import nothing_matched
from cdc_pipeline.pipeline.publish import cursor_metadata, empty_interval, start_metadata
from cdc_pipeline.pipeline.recovery import recover
from cdc_pipeline.pipeline.report import CaptureReport, LogPlace, needed_place, quarantined
from cdc_pipeline.pipeline.targets.routes import Routes
from cdc_pipeline.pipeline.targets.table_filter import TableFilter
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.pipeline.wiring import build_dump_errors, build_sink, build_source
from cdc_pipeline.position.cursor import CursorState, CursorStore, Suspension
from cdc_pipeline.position.dump_errors import DumpErrors, DumpErrorStore
from cdc_pipeline.position.failback import MAIN_CONSUMER, AckedPositions, DumpedPosition, FailbackPositions
from cdc_pipeline.position.start.start import StartDecision
from cdc_pipeline.sink.protocol import Sink
from cdc_pipeline.source.protocol import Source


def capture(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    bound: Bound | None = None,
    observer: RunObserver | None = None,
    run_id: str = "",
    tables: Sequence[str] | None = None,
    sink: Sink | None = None,
) -> CaptureReport:
    """Capture from the cursor to the bound, and bring the lake's tables up to it.

    Args:
        config: the pipeline.
        cursors: where the cursor is read from and committed to.
        bound: where to stop; the configuration's bound by default.
        observer: receives the progress.
        run_id: of the orchestrator's run, kept in the records.
        tables: only catch these up, if they are suspended; the cursor does not move (K4).
        sink: in place of the configuration's own; its creator hears of its fault points.

    Raises:
        LockError: another capture of this source is running.
        TargetSuspendedError: some tables (of `tables`) are suspended; everything else is done.
        NothingMatchedError: patterns of tables have never matched one; everything else is done.
        CdcError: everything else; the error says what to do; what came before it is merged and
            acked to the last whole transaction.
    """
    if tables is not None and bound is not None:
        raise ConfigError(
            "a run of chosen tables has no bound: it brings them to where the cursor stands",
            setting="bound",
            next_step="leave the bound out, or start a run of the whole source",
        )
    observer = observer or RunObserver()
    started = (time.monotonic(), time.process_time())
    sink = sink or build_sink(config)
    dump_errors = build_dump_errors(config)
    with files_failing(config.sink.lake_path), sink.lock(), counted(dump_errors):
        source = build_source(config)
        try:
            run = _Run(config, sink=sink, source=source, cursors=cursors, observer=observer, run_id=run_id)
            run.recover()
            server = choose(config)
            source = run.read_of(server)
            if tables is not None:
                return run.catch_up_chosen(tables, started)
            resolved = run.plan(bound or config.bound, server=server, dump_errors=dump_errors)
            observer.planned(resolved.plan)
            if resolved.start.order != resolved.end.order:
                run.read_and_drain(resolved)
            else:
                run.hold_start(resolved)
            run.catch_up()
            report = run.report(resolved, started)
            run.check_suspended()
            run.check_matched(resolved)
            return report
        finally:
            source.close()


class _Run:
    """Values shared by the steps of one capture."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        sink: Sink,
        source: Source,
        cursors: CursorStore,
        observer: RunObserver,
        run_id: str,
    ) -> None:
        self._config = config
        self._server = config  # the same configuration with the server that was chosen
        self._sink = sink
        self._source = source
        acked = AckedPositions({MAIN_CONSUMER: cursors})
        self._cursors = acked.store()
        self._context = CaptureContext(config, sink, self._cursors, observer, run_id)
        self._dumped = DumpedPosition()
        self._positions = FailbackPositions(self._dumped, acked)
        self._observer = observer
        self._cut: Cut | None = None
        self._reconciled = Reconciled(None, "", False)
        self._recovered: Cut | None = None
        self._done = RunSummary()  # of the main capture
        self._unfinished = 0
        self._limit_reached = False
        self._cursor: CursorState | None = None
        self._administered = RunSummary()  # of batches that moved no cursor
        # by earlier runs: a target that this run suspends is not retried at once
        self._suspended_before: set[str] = set()

    def recover(self) -> None:
        """Bring lake and cursor to one state: finish what is recorded, remove what is not (K2, K3)."""
        found = recover(self._sink, cursors=self._cursors, observer=self._observer, failing_of=self._failing)
        self._suspended_before.update(found.suspended_before)
        self._reconciled, self._recovered, self._cut = found.reconciled, found.finished, found.cut
        self._cursor = found.reconciled.cursor
        self._sink.discard_parked(None if found.cut is None else found.cut.cursor, self._cursor)
        self._leave_behind(found.failing)

    def _failing(self, cut: Cut) -> dict[str, LakeStateError]:
        """Return targets whose Delta tables differ from the last cut (K3), to leave them behind.

        That may be all of them: the remedies that their errors name need a source that goes on
        (K22).
        """
        states, is_followed = cut.cursor.targets, Routes(self._config).is_followed
        return {name: error for name, error in self._sink.failing_targets(cut).items() if is_followed(states[name])}

    def _leave_behind(self, failing: Mapping[str, CdcError]) -> None:
        """Suspend targets whose Delta tables are not as expected; drop those no longer captured."""
        cut, cursor = self._cut, self._cursor
        if cut is None or cursor is None:
            return
        is_followed = Routes(self._config).is_followed
        dropped = [name for name, state in cursor.targets.items() if not is_followed(state)]
        new: dict[str, Suspension | None] = {
            name: suspension(
                error,
                batch_number=cursor.batch_number + 1,
                at=before_begin(cursor.position, oldest_begin(cursor.open_xa, epoch=cursor.epoch)),
                epoch=cursor.epoch,
                needs_reload=True,
            )
            for name, error in failing.items()
            if name not in cursor.suspended
        }
        if not new and not dropped:
            return
        batch = self._context.admin_batch(cut, cursor)
        text = "not captured any more: its target has left the cursor"
        notes = [Note(kind="dropped", text=text, table=name) for name in dropped]
        made = batch.suspend(new, dropped=dropped, notes=notes)
        self._administered.add(made)
        self._take_over(made)

    def _take_over(self, cut: Cut) -> None:
        """Take over a cut that moved no cursor."""
        self._cut, self._cursor = cut, cut.cursor
        reason = f"{self._reconciled.reason}; batch {cut.batch_number} moved no cursor"
        self._reconciled = Reconciled(cut.cursor, reason, False)

    def catch_up(self, tables: Sequence[str] | None = None) -> None:
        """Bring all or some targets that earlier runs suspended to the cursor."""
        tables = sorted(name for name in self._suspended_before if tables is None or name in tables)
        if not tables or self._cut is None or self._cursor is None:
            return
        catching_up = CatchUp(self._context, server=self._server, cut=self._cut, cursor=self._cursor)
        try:
            catching_up.run(tables)
        finally:
            self._administered.join(catching_up.done)
            if catching_up.done.latest is not None:
                self._take_over(catching_up.done.latest)

    def catch_up_chosen(self, tables: Sequence[str], started: tuple[float, float]) -> CaptureReport:
        """Run for chosen tables only: bring each of them to the cursor.

        Raises:
            ConfigError: a table that is not captured, or nothing was captured yet.
        """
        cursor = self._cursor
        targets = cursor.targets if cursor is not None else {}
        captured = set(TableFilter(self._config.tables).captured_names([name for name in tables if "." in name]))
        unknown = [name for name in tables if name not in captured and name not in targets]
        if unknown or cursor is None:
            raise ConfigError(
                f"no such table is captured: {', '.join(unknown)}" if unknown else "nothing was captured yet",
                setting="tables",
                expected="captured tables of a source that was captured before",
                next_step="name tables as schema.table, or start a run of the whole source",
            )
        end = cursor.position
        tables = [n for n, state in targets.items() if not {n, *state.source_names}.isdisjoint(tables)] or tables
        plan = plan_to_cursor(self._config, cursor)
        self._observer.planned(plan)
        self.catch_up(tables)
        resolved = ResolvedRun(
            plan=plan,
            decision=StartDecision(end, ()),
            epoch=cursor.epoch,
            start=end,
            end=end,
            limit=None,
            ends_anywhere=False,
        )
        report = self.report(resolved, started)
        self.check_suspended(tables)
        if report.outcome == "nothing_new":
            reason = f"nothing to catch up: {', '.join(tables)} stood at {end} like all others"
            report = report.model_copy(update={"reason": reason})
        return report

    def check_suspended(self, tables: Sequence[str] | None = None) -> None:
        """Fail if tables are suspended.

        Raises:
            TargetSuspendedError: some tables, or some of those given, are suspended.
        """
        if self._cursor is None:
            return
        found = {name: held for name, held in self._cursor.suspended.items() if tables is None or name in tables}
        if found:
            raise suspended_error(found, cursor=self._cursor)

    def check_matched(self, resolved: ResolvedRun) -> None:
        """Fail if patterns match nothing.

        Raises:
            NothingMatchedError: the log was read to its end, and patterns have never matched a
                table.
        """
        if resolved.log_end is not None and resolved.end.order >= resolved.log_end.order and not self._limit_reached:
            error = nothing_matched(self._config, resolved.known, self._cursor)
            if error is not None:
                raise error

    def read_of(self, server: ChosenServer) -> Source:
        """Choose the source to read; call this before the first query to it."""
        if server.config is not self._config:
            self._source, self._server = build_source(server.config), server.config
        return self._source

    def plan(self, bound: Bound, *, server: ChosenServer, dump_errors: DumpErrorStore) -> ResolvedRun:
        self._source.check()
        resolved = resolve(
            self._config,
            source=self._source,
            reconciled=self._reconciled,
            cut=self._cut,
            bound=bound,
            server=server,
            dump_errors=dump_errors.read(),
            overlap=overlap_of(self._config, source=self._source, cursor=self._reconciled.cursor),
        )
        if resolved.decision is not None and resolved.decision.resets_dump_errors:
            dump_errors.write(DumpErrors())
        return resolved

    def read_and_drain(self, resolved: ResolvedRun) -> None:
        """Run reader and drain, two threads around the store."""
        config, cursor = self._config, self._reconciled.cursor
        stages = Stages(
            self._context,
            resolved=resolved,
            source=self._source,
            tables=TableFilter(config.tables),
            targets=Targets(config, self._cut, shadows=cursor.shadows if cursor is not None else {}),
            cursor=cursor,
            committing=lambda stretch, ack: Committer(
                self._context, stretch, ack=ack, start_reasons=resolved.plan.start_reasons
            ),
            is_sources_own=True,
            parking=self._sink.parking(epoch=resolved.epoch, open_xa=() if cursor is None else cursor.open_xa),
            on_position=self._positions.persist,
        )
        committer = stages.committer
        try:
            stages.run()
        finally:
            self._done = committer.done
            self._unfinished = len(stages.reader.dropped)
            self._limit_reached = stages.reader.limit_reached
            self._cursor = committer.cursor
            self._cut = committer.done.latest or self._cut

    def hold_start(self, resolved: ResolvedRun) -> None:
        """Finish a run that has nothing to read.

        A first run keeps its start nonetheless, so that `latest` does not move on until the next
        run. So does a run that has switched to another server.

        Raises:
            PositionError: that server lags behind what was applied (K7).
        """
        before, at = self._cursor, resolved.start
        if before is not None and not resolved.turns_to_another_server:
            return
        if resolved.decision is not None and resolved.decision.overlap_until_us is not None:
            raise PositionError(
                "the log of the server that was switched to ends before what was applied: it lags",
                journal=at.journal,
                offset=at.offset,
                expected=f"a commit after {resolved.decision.overlap_until_us} (microseconds since 1970)",
                got="the end of its log",
                next_step="run again when it has caught up. Nothing was published, and the cursor has not moved",
            )
        if before is None:
            schemas_of(self._config, source=self._source, run=resolved, cursor=None).begin()
        self._cursor = cursor_state(
            self._config.name,
            self._source.identity,
            at,
            batch_number=0 if before is None else before.batch_number,
            epoch=resolved.epoch,
            open_xa=() if before is None else before.open_xa,
            targets=None if before is None else before.targets,
        )
        metadata = cursor_metadata(empty_interval(at), None)
        self._cursors.write(self._cursor, metadata | start_metadata(resolved.plan.start_reasons))

    def _places(self, resolved: ResolvedRun) -> dict[str, LogPlace | None]:
        """Report the positions: read up to, applied up to, oldest needed."""
        read, cursor = self._dumped.latest(), self._cursor
        if cursor is not None and cursor.position.order != resolved.start.order:
            # What is applied was read, even if a bound ended the run before the buffer could report
            # it.
            read = cursor.position if read is None or read.order < cursor.position.order else read
        return {
            "read_up_to": None if read is None else LogPlace.of(read),
            "applied_up_to": None if cursor is None else LogPlace.of(cursor.position),
            "oldest_needed": needed_place(cursor),
        }

    def report(self, resolved: ResolvedRun, started: tuple[float, float]) -> CaptureReport:
        interval = whole_interval(self._done.interval, resolved)
        done = RunSummary()
        if self._recovered is not None:
            done.add(self._recovered)
        done.join(self._done)
        done.join(self._administered)
        return CaptureReport(
            source=self._config.name,
            outcome="applied" if done.batches else "nothing_new",
            reason=reason_of(done, interval, resolved, limit_reached=self._limit_reached),
            plan=resolved.plan,
            interval=interval,
            recovered_batch=self._recovered.batch_number if self._recovered is not None else None,
            batches=done.batches,
            tables=done.tables(),
            unfinished_transactions=self._unfinished,
            ddl=tuple(done.ddl),
            notes=tuple(done.notes),
            entries_omitted=done.entries_omitted,
            suspended=self._cursor.suspended if self._cursor is not None else {},
            quarantine=quarantined(self._cut),
            cursor=self._cursor,
            cursor_reason=self._reconciled.reason,
            **self._places(resolved),
            seconds=time.monotonic() - started[0],
            cpu_seconds=time.process_time() - started[1],
            spark_started=self._sink.spark_started,
        )
