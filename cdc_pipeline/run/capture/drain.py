"""Drain a stretch: read -> interpret -> stage -> publish, one unit of the log after the other (K9).

    reader thread    source -> transaction buffer -> store
    drain thread     store -> units -> `Interpreter.read` -> `Changes` -> `_stage` -> `commit`

Rules:
- Many small gets make one merge batch; what a get returned is released as soon as it is staged.
- A batch is committed only between transactions. A DDL that changes a target is a batch of its own.
- A unit that cannot be interpreted is tried in halves, down to the failing transaction. If that
  fails for one table alone, the table is suspended at the last whole transaction, and the unit is
  tried without it (K4).
- On any other error, everything before it is committed to the last whole transaction; then the
  error is raised.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc_pipeline.binlog.chunk import EventSlice, SliceKind
from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.erasures import read_erasures
from cdc_pipeline.run.capture.capture_session import CaptureContext, CaptureSession
from cdc_pipeline.run.capture.commit import Committer
from cdc_pipeline.run.capture.interpret import (
    Changes,
    Interpreter,
    Unit,
    first_begin,
    halves,
    units,
)
from cdc_pipeline.run.capture.reader import Reader, ReadResult
from cdc_pipeline.run.capture.suspension import Suspend, suspension_for
from cdc_pipeline.run.capture.xa import XaPlanner, XaStaging
from cdc_pipeline.run.decode.decoding import RunDecoder
from cdc_pipeline.run.decode.statements import StatementRules
from cdc_pipeline.run.decode.transaction_control import Ending, TransactionControl
from cdc_pipeline.run.wiring import get_size
from cdc_pipeline.schema.ddl.session import canonical_xid
from cdc_pipeline.schema.evolution.statement_context import Decision
from cdc_pipeline.targets.erased import ErasedRows

_GET_TIMEOUT_S = 1.0


def _erased_rows(context: CaptureContext, session: CaptureSession) -> ErasedRows:
    identity, epoch, start = session.identity, session.epoch, session.run.start
    seq = seq_of_place(epoch, start.journal, start.offset)
    met = read_erasures(context.sink.paths, identity=identity, epoch=epoch, seq=seq)
    return ErasedRows(met, identity=identity, epoch=epoch)


class Drain:
    def __init__(
        self, context: CaptureContext, session: CaptureSession, committer: Committer
    ) -> None:
        config = context.config
        rules = StatementRules(
            session.targets.tables,
            is_mariadb=session.identity.flavor == "mariadb",
            names=session.identity.names,
            config=config,
            followed=list(session.targets.followers),
        )
        self._context = context
        self._session = session
        self._committer = committer
        self._reader = Reader(
            config,
            session.run,
            session.source,
            store=session.store,
            rules=rules,
            on_position=context.positions.persist
            if context.positions is not None and session.of_plan is not None
            else None,
        )
        self._interpreter = Interpreter(
            session,
            rules=rules,
            decoder=RunDecoder(
                epoch=session.epoch,
                schemas=session.schemas,
                names=session.identity.names,
                erased=_erased_rows(context, session),
            ),
            xa=XaPlanner(
                session,
                accepted=[canonical_xid(text) for text in config.accept.unknown_xa],
                source=config.name,
            ),
        )
        self._xa = XaStaging(session)
        self._bytes_done = 0
        self._rows = 0
        self._transactions = 0

    def run(self) -> ReadResult:
        """If this fails, what came before is committed, and the source is closed."""
        store, reader = self._session.store, self._reader
        store.start()
        reader.start()
        try:
            self._drain()
        except BaseException:
            store.stop()
            self._session.source.close()
            raise
        finally:
            store.stop()
            reader.join()
        return reader.result()

    def _drain(self) -> None:
        session, store, size = self._session, self._session.store, get_size(self._context.config)
        while True:
            batch = store.get(size, timeout_s=_GET_TIMEOUT_S)
            if not batch.slices:
                if store.is_drained:
                    break
                continue
            try:
                self._take(batch.slices)
            except CdcError:
                self._commit_what_is_whole()
                raise
            store.release(batch.last_sequence)
            self._bytes_done += batch.journal_bytes
            del batch  # its events are not held during a merge or the next wait
            self._context.observer.progressed(
                bytes_done=self._bytes_done,
                bytes_total=self._reader.bytes_expected,
                transactions=self._transactions,
                rows=self._rows,
            )
            if self._committer.is_due():
                self._committer.commit()
        if self._reader.reached_end:
            session.place.reach(session.run.end)
        self._commit_what_is_whole()
        if self._reader.error is not None:
            raise self._reader.error
        session.overlap.check_passed(session.place)

    def _commit_what_is_whole(self) -> None:
        self._session.drop_open()
        self._session.place.drop_open()
        self._committer.commit(final=True)

    # -- interpret ---------------------------------------------------------------------------------

    def _take(self, slices: Sequence[EventSlice]) -> None:
        for unit in units(slices):
            kind = unit[0].kind
            # Here as well: a get nearly always ends inside a transaction, where nothing can be
            # committed.
            if kind is not SliceKind.TRANSACTIONS and self._committer.is_due():
                self._committer.commit()
            schemas = self._session.schemas
            if schemas.awaits_begin and (begin := first_begin(unit)) is not None:
                schemas.reached(begin)
            if kind is SliceKind.STATEMENT:
                self._session.overlap.reach(int(unit[0].events["commit_ts_us"][-1]))
            self._take_unit(unit)

    def _take_unit(self, unit: Unit) -> None:
        waiting = [unit]  # the next one is the last
        while waiting:
            part = waiting.pop()
            try:
                decided = self._interpreter.decide(part)
                alone = decided is not None and bool(decided.changes)
                if alone and self._committer.commit():  # which may suspend a target
                    decided = self._interpreter.decide(part)
                changes = self._interpreter.read(part, decided)
            except CdcError as error:
                waiting += reversed(self._instead(part, error))
                continue
            self._stage(changes)
            if alone:
                self._committer.commit()

    def _instead(self, unit: Unit, error: CdcError) -> list[Unit]:
        """The halves of a unit that failed, or it without a table; else its error is raised."""
        parts = halves(unit)
        if parts is not None:
            return parts
        session, suspend = self._session, None
        if not session.stager.is_in_doubt:
            suspend = suspension_for(error, session, session.targets)
        if suspend is None:
            at = session.place.position
            for name, new in session.targets.news.items():
                if (new.passed or new.position).order == at.order:
                    session.targets = session.targets.resumed(name)
            raise error
        self._suspend(suspend)
        return [unit]

    # -- stage -------------------------------------------------------------------------------------

    def _stage(self, changes: Changes) -> None:
        stager, opened = self._session.stager, changes.controls.open
        is_open = opened is not None
        if opened is not None:
            stager.names.opened(opened.journal, opened.tx_offset, opened.gtid)
        stager.names.coming(changes.unit)
        with stager.together():
            self._session.targets = changes.targets
            for suspend in changes.suspensions:
                self._suspend(suspend)
            for decision in changes.statements:
                self._apply(decision)
            for following, rows in changes.rows:
                stager.stage(self._session.targets, following, rows, open_transaction=is_open)
            stager.quarantine(changes.decoded.bad, open_transaction=is_open)
            counts = self._xa.apply(changes.xa)
            self._rows += counts.pop("rows", 0)
            for name, number in counts.items():
                self._session.place.count(name, number)
            self._end(changes.controls)
            self._advance(changes)
        self._rows += sum(len(rows) for _, rows in changes.rows)
        self._transactions += changes.transactions_applied

    def _suspend(self, suspend: Suspend) -> None:
        self._session.targets, names = self._session.targets.suspending(
            suspend.source, suspend.suspension, only=suspend.only
        )
        for name in names:
            self._session.stager.drop_open(name)

    def _apply(self, decision: Decision) -> None:
        stager, targets = self._session.stager, self._session.targets
        for created in decision.creates:
            for target in targets.following(*created.table):
                if target.is_new:
                    stager.create(target)
        for change in decision.changes:
            if change.is_carried:
                continue
            target = targets.by_name[change.known.name]
            if change.replaces:
                stager.create(target)
            else:
                stager.change(target, change)
        for target in targets.by_name.values():
            if target.carried is not None:
                stager.carry(target)
        if decision.ignored:
            left = any(targets.is_suspended(*table) for table in decision.statement.tables)
            self._session.place.count("statements_suspended" if left else "statements_ignored", 1)
        else:
            stager.decided(decision.ddl)

    def _end(self, controls: TransactionControl) -> None:
        """Of a prepared transaction nothing is staged."""
        if controls.ending is Ending.COMMITTED:
            self._session.stager.undo_open(controls.open_undone)
            self._session.stager.close_open()
        elif controls.ending in (Ending.ROLLED_BACK, Ending.ABANDONED):
            self._session.drop_open()
            if controls.ending is Ending.ABANDONED:
                self._session.place.drop_open()

    def _advance(self, changes: Changes) -> None:
        session, place = self._session, self._session.place
        place.count("row_events_ignored", changes.decoded.row_events_ignored)
        place.count("row_events_suspended", changes.decoded.row_events_suspended)
        place.count("rows_erased", changes.decoded.rows_erased)
        place.count("transactions_applied", changes.transactions_applied)
        place.advance(changes.unit)
        session.overlap.reach(place.source_time_us)
        if session.history is not None:
            session.history.add(changes.unit)
        for note in (*self._reader.take_notes(place.position), *changes.notes):
            session.stager.note(note)
