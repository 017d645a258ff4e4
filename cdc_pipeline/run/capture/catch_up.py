"""Catch up one suspended target, from its own position to the source's cursor (K4).

Rules:
- Its batches are recorded like any other, but the cursor's position does not move. Each batch moves
  the target's own position; the last one ends its suspension.
- It ends at the cursor and not at the last cut, because the cursor may have passed rows that only
  the suspended target has.
- The target may hold some of these changes, of a batch that failed after its commit: the MERGE's
  own guard drops them. Where each change leaves a record of its own, the table is taken back first
  (`sink/apply/roll_back_uncut.py`).
- It ends before the oldest prepared XA transaction that is still open; the changes of that are read
  when it has ended. If one was prepared in another server's log, its place in this one is not
  known, and the catch-up waits.
- Between its position and `Suspension.passed` it lacks only what waits for an XA COMMIT: that is
  parked, and nothing else there is applied again.
- Before a row is staged, the table must be as the last cut says, and the log must reach back to its
  position.
- A failed catch-up leaves the target suspended, with that cause, and the next target is tried. Only
  an error that a retry may clear is raised.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    ContentUnknownError,
    JournalMissingError,
    LakeStateError,
    OverlapUndecidedError,
    PositionError,
    RowsDifferError,
    SourceIdentityError,
    UnknownXaError,
)
from cdc_pipeline.lake.records import BatchKind, Cut, Interval, Note
from cdc_pipeline.lake.suspensions import (
    MASKS_CHANGED,
    cause_of,
    restated,
    suspension,
)
from cdc_pipeline.position.cursor import CursorState, Suspension, before_begin, left_at
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.capture.capture_session import (
    CaptureContext,
    CaptureSession,
    open_session,
)
from cdc_pipeline.run.capture.commit import BatchExtent, Committer
from cdc_pipeline.run.capture.drain import Drain
from cdc_pipeline.run.capture.summary import RunState, RunSummary, report_of
from cdc_pipeline.run.capture.suspension import check_suspended
from cdc_pipeline.run.plan.resolved_run import LogRange, ResolvedRun
from cdc_pipeline.run.plan.starting import ChosenServer, start_of_suspended
from cdc_pipeline.run.report import CapturePlan, CaptureReport
from cdc_pipeline.run.wiring import build_source
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.route_checks import changed_rule
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import TableFilter, tables_named
from cdc_pipeline.targets.targets import targets_at

_CAUGHT_UP_NOTE = "caught_up"
_TAKEN_BACK_NOTE = "taken_back"

# With these, the log does not reach back to the target, or the table is not as the pipeline left
# it.
_NEEDS_SNAPSHOT = (
    JournalMissingError,
    PositionError,
    SourceIdentityError,
    LakeStateError,
    UnknownXaError,
)


def catch_up(
    context: CaptureContext, state: RunState, tables: Collection[str], *, server: ChosenServer
) -> RunState:
    """Those of the targets that earlier runs suspended."""
    names = sorted(state.suspended_before.intersection(tables))
    if not names or state.cut is None or state.cursor is None:
        return state
    return state.after(
        CatchUp(context, server=server.config, cut=state.cut, cursor=state.cursor).run(names)
    )


def catch_up_selected(
    context: CaptureContext, state: RunState, tables: Sequence[str], *, server: ChosenServer
) -> CaptureReport:
    """ConfigError: not captured, or nothing is yet; TargetSuspendedError: suspended still."""
    cursor = state.cursor
    tables = _targets_of(context.config, cursor, tables)
    assert cursor is not None
    end = cursor.position
    reason = "a run of chosen tables: the cursor does not move"
    plan = _plan_to_cursor(
        cursor, cursor.identity, start=end, reason=reason, tables=tuple(sorted(cursor.targets))
    )
    context.observer.planned(plan)
    resolved = ResolvedRun(end, end, epoch=cursor.epoch, plan=plan)
    state = catch_up(context, state, tables, server=server)
    report = report_of(context, state, resolved)
    check_suspended(state.cursor, tables)
    if report.outcome == "nothing_new":
        reason = f"nothing to catch up: {', '.join(tables)} is at {end} like all others"
        report = report.model_copy(update={"reason": reason})
    return report


def _plan_to_cursor(
    cursor: CursorState,
    identity: ServerIdentity,
    *,
    start: Position,
    reason: str,
    tables: tuple[str, ...],
) -> CapturePlan:
    end = cursor.position
    journals = tuple(dict.fromkeys((start.journal, end.journal)))
    return CapturePlan(
        source=cursor.source,
        identity=str(identity),
        start=start,
        start_reasons=(reason,),
        end=end,
        end_reason="the cursor",
        bytes_between=max(0, end.offset - start.offset) if len(journals) == 1 else 0,
        journals=journals,
        tables=tables,
        partial_tables=(),
        suspended=cursor.suspended,
    )


def _targets_of(
    config: PipelineConfig, cursor: CursorState | None, tables: Sequence[str]
) -> Sequence[str]:
    targets = cursor.targets if cursor is not None else {}
    tables = tables_named(config, tables, targets)
    captured = set(TableFilter(config).captured_names([name for name in tables if "." in name]))
    unknown = [name for name in tables if name not in captured and name not in targets]
    if unknown or cursor is None:
        raise ConfigError(
            f"these tables are not captured: {', '.join(unknown)}"
            if unknown
            else "nothing was captured yet",
            setting="tables",
            expected="captured tables of a source that was captured before",
            next_step="name tables as schema.table, or start a run of the whole source",
        )
    return [
        name
        for name, state in targets.items()
        if not {name, *state.source_names}.isdisjoint(tables)
    ] or tables


class _LeftBehindError(CdcError):
    """A batch of the catch-up was published without the target: the cut says why."""


class CatchUp:
    def __init__(
        self, context: CaptureContext, *, server: PipelineConfig, cut: Cut, cursor: CursorState
    ) -> None:
        self._done = RunSummary()
        self._cut = cut
        self._cursor = cursor
        self._context = context
        self._config = context.config
        self._server = server

    def run(self, tables: Sequence[str]) -> RunSummary:
        """Try each of `tables` that is suspended once; raises only what a retry may clear."""
        for name in tables:
            state = self._cursor.targets.get(name)
            if state is None or state.suspended is None:
                continue
            try:
                self._catch_up(name, state.suspended)
            except _LeftBehindError:
                pass
            except CdcError as error:
                if error.retryable:
                    raise
                self._remains(name, error)
        return self._done

    def _catch_up(self, name: str, held: Suspension) -> None:
        if held.error == OverlapUndecidedError.__name__ and name not in self._config.accept.overlap:
            return  # only a person can decide
        # Rows by its present rule would stand beside those by the earlier one (K14).
        if name in self._cut.tables:
            changed = changed_rule(Routes(self._config), self._cut, name)
            if changed is not None:
                self._waits_for_rows(name, held, changed)
                return
        # Only a snapshot brings the rows; to follow rows that differ would hide them.
        if held.error in (ContentUnknownError.__name__, RowsDifferError.__name__):
            if held.changed_rule:  # it is restored, and no word of then counts for a later one
                update = {"changed_rule": "", "past_given_up": False, "next_step": ""}
                self._publish({name: held.model_copy(update=update)})
            return
        self._context.sink.check_target(self._cut, name)
        source = build_source(self._server)
        try:
            source.check()
            cursor, cut = self._cursor, self._cut
            decision = start_of_suspended(self._config, held, source, cursor=cursor, cut=cut)
            start = decision.position
            # It ends before an open prepared transaction: its rows of the target are read at its
            # commit.
            end = before_begin(cursor.position, cursor.begin_of_oldest)
            known = held.passed or start
            is_elsewhere = any(xa.epoch != cursor.epoch for xa in cursor.open_xa)
            if is_elsewhere or (known.order >= end.order and end.order < cursor.position.order):
                self._await_xa(name)
                return
            if known.order == end.order:
                note = Note(kind=_CAUGHT_UP_NOTE, text="it is already at the cursor", table=name)
                self._publish({name: None}, [note])
                return
            reason = f"{name} was suspended and is caught up from its position"
            plan = _plan_to_cursor(
                cursor, source.identity, start=start, reason=reason, tables=(name,)
            )
            self._context.observer.planned(plan)
            self._take_back(name)
            run = LogRange(
                start, end, decision=decision, epoch=cursor.epoch, bytes_expected=plan.bytes_between
            )
            self._read_and_drain(name, source, run, held)
        finally:
            source.close()

    def _take_back(self, name: str) -> None:
        """Undo what the target got from batches that left it behind: it is read again."""
        version = self._context.sink.roll_back_uncut(self._cut, name)
        if version is None:
            return
        batch = AdminBatch(self._context, cut=self._cut, cursor=self._cursor)
        batch.rows.restore(targets_at(self._config, self._cut).by_name[name], version)
        text = f"restored to version {version}: what came after it is read again"
        cut = batch.publish(
            kind="catch_up", notes=[Note(kind=_TAKEN_BACK_NOTE, text=text, table=name)]
        )
        suspension = self._cursor.targets[name].suspended
        self._done.add(cut)
        self._go_on_from(cut)
        if cut.cursor.targets[name].suspended != suspension:
            raise _LeftBehindError("the target was left behind again", table=name)

    def _await_xa(self, name: str) -> None:
        """The target is just before an open prepared transaction, which must end first."""
        suspension = self._cursor.targets[name].suspended
        assert suspension is not None
        waiting = suspension.model_copy(update=_waiting(self._cursor))
        if waiting != suspension:
            self._publish({name: waiting})

    def _read_and_drain(self, name: str, source: Source, run: LogRange, held: Suspension) -> None:
        config, cursor = self._config, self._cursor
        # On another server, its DDL is decided on the columns from where it was suspended.
        session_of = partial(
            open_session,
            self._context,
            source=source,
            cursor=cursor,
            left=held.seq if held.epoch != cursor.epoch else None,
            targets=targets_at(config, self._cut, cursor, catching_up=name),
            # Prepared transactions of this stretch with rows of the target alone: none is in the
            # cursor.
            parking=self._context.sink.parking(epoch=cursor.epoch),
        )
        if held.passed is not None:
            session = session_of(replace(run, end=held.passed, is_applied=True))
            Drain(self._context, session, _Passing(self._context, session)).run()
            run = replace(run, start=session.place.full_position(), decision=None)
        session = session_of(run)
        committer = _CatchUpCommitter(
            self._context, session, name, done=self._done, source_time_us=self._cut.source_time_us
        )
        try:
            Drain(self._context, session, committer).run()
        finally:
            self._go_on_from(committer.cut)

    def _remains(self, name: str, error: CdcError) -> None:
        held = self._cursor.targets[name].suspended
        assert held is not None
        restated_suspension = restated(
            held,
            suspension(
                error,
                batch_number=held.batch_number,
                at=held.position,
                epoch=held.epoch,
                needs_snapshot=isinstance(error, _NEEDS_SNAPSHOT),
            ),
        )
        if restated_suspension != held:
            self._publish({name: restated_suspension})

    def _waits_for_rows(self, name: str, held: Suspension, changed: CdcError) -> None:
        """With the changed rule beside the target's own cause."""
        is_masks = (changed.setting or "").endswith(".masks")
        what = MASKS_CHANGED if is_masks else cause_of(changed)
        if held.changed_rule != what:
            next_step = changed.next_step or ""
            update = {"changed_rule": what, "next_step": next_step, "needs_snapshot": True}
            self._publish({name: held.model_copy(update=update)})

    def _publish(self, suspended: dict[str, Suspension | None], notes: Sequence[Note] = ()) -> None:
        cut = AdminBatch(self._context, cut=self._cut, cursor=self._cursor).suspend(
            suspended, notes=notes
        )
        self._done.add(cut)
        self._go_on_from(cut)

    def _go_on_from(self, cut: Cut | None) -> None:
        if cut is not None:
            self._cut, self._cursor = cut, cut.cursor


def _waiting(cursor: CursorState) -> dict[str, str]:
    xids = ", ".join(entry.xid for entry in cursor.open_xa)
    return {
        "what": f"caught up as far as possible: it waits for the XA transactions {xids} to end",
        "next_step": "commit or roll back these XA transactions at the source",
    }


class _Passing(Committer):
    """Drops what the target has; what it parks is kept."""

    def commit(self, *, final: bool = False) -> bool:  # noqa: ARG002
        self._session.stager.collect()
        return True


class _CatchUpCommitter(Committer):
    """Advances one suspended target up to the source's cursor, which stays."""

    kind: BatchKind = "catch_up"

    def __init__(
        self,
        context: CaptureContext,
        session: CaptureSession,
        name: str,
        *,
        done: RunSummary,
        source_time_us: int,
    ) -> None:
        super().__init__(context, session, done=done)
        assert self.cursor is not None
        self._name = name
        self._of_source = self.cursor
        self._time_us = source_time_us
        self._left: Suspension | None = None

    def _end_without_work(self) -> None:
        """Even a range without rows of the target moves it."""
        place = self._session.place
        if place.position.order != place.batch_start.order:
            self._commit_batch()

    def _extent(self, number: int, created: Collection[str]) -> BatchExtent:
        place = self._session.place
        is_caught_up = place.position.order >= self._of_source.position.order
        own = place.take_interval()
        ended = "; it follows the source again" if is_caught_up else ""
        note = Note(
            kind=_CAUGHT_UP_NOTE,
            text=f"{own.start} to {own.end}, {own.transactions_applied} transactions with changes "
            f"of it{ended}",
            journal=own.start.journal,
            offset=own.start.offset,
            table=self._name,
        )
        targets = self._session.targets.states(created)
        self._left = None if is_caught_up else self._still_suspended()
        targets[self._name] = targets[self._name].model_copy(update={"suspended": self._left})
        after = self._of_source.model_copy(update={"batch_number": number, "targets": targets})
        at = self._of_source.position
        interval = Interval(start=at, end=at)
        return BatchExtent(interval, after, self._time_us, notes=(note,))

    def _still_suspended(self) -> Suspension:
        session, cursor = self._session, self._of_source
        suspended = cursor.targets[self._name].suspended
        assert suspended is not None
        at = left_at(session.place.full_position(), session.parking.begin_of_oldest())
        waits = _waiting(cursor) if cursor.begin_of_oldest else {}
        return suspended.model_copy(update={**at, "epoch": cursor.epoch, **waits})

    def _commit_batch(self) -> Cut:
        cut = super()._commit_batch()
        self._of_source = cut.cursor
        if cut.cursor.targets[self._name].suspended != self._left:
            raise _LeftBehindError("the target was left behind again", table=self._name)
        return cut
