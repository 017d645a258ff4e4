"""Drain: store -> decode -> stage -> record -> merge -> cut -> cursor -> ack (K2, K9).

Rules:
- Many small gets make one merge batch; what a get returned is released as soon as it is staged.
- A batch is committed only between transactions. A DDL that changes a target is a batch of its own.
- Rows of prepared XA transactions are parked, and staged at their XA COMMIT (K8,
  `pipeline/capture/xa.py`).
- On any error, everything before it is committed to the last whole transaction; then the error is
  raised.
- A failure of a single table suspends that table at the last whole transaction, and the rest is
  tried again without it (K4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events.gtid import gtid_texts
from cdc_pipeline.binlog.events.query import Query, parse_query
from cdc_pipeline.binlog.seq import journal_number, pack_seq
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CdcError, IncompleteRowsError, StagingError, UnsupportedDdlError
from cdc_pipeline.pipeline.capture.commit import BatchCommitter
from cdc_pipeline.pipeline.capture.reader import Reader
from cdc_pipeline.pipeline.capture.stretch import CaptureContext, Stretch
from cdc_pipeline.pipeline.capture.xa import XaControl
from cdc_pipeline.pipeline.decode.decoding import DecodedRun, DecodedTable, RunDecoder, prepared_groups
from cdc_pipeline.pipeline.decode.overlap_statements import decide_in_overlap
from cdc_pipeline.pipeline.decode.raw_staging import RawStaging
from cdc_pipeline.pipeline.decode.statements import StatementRules
from cdc_pipeline.pipeline.decode.transaction_control import ControlReader, Stated
from cdc_pipeline.pipeline.targets.shape import shard_key
from cdc_pipeline.pipeline.targets.targets import Target
from cdc_pipeline.pipeline.wiring import get_size
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.evolution.changes import Decision, RowPlace
from cdc_pipeline.schema.history.apply_ddl import SCHEMA_KINDS
from cdc_pipeline.sink.modes.expand import check_images
from cdc_pipeline.store.contract import EventStore
from cdc_pipeline.text.table_names import table_name

_GET_TIMEOUT_S = 1.0


class Drain:
    """Drain of the store into the lake, until the reader is done."""

    def __init__(
        self,
        context: CaptureContext,
        stretch: Stretch,
        *,
        store: EventStore,
        reader: Reader,
        rules: StatementRules,
        decoder: RunDecoder,
        committer: BatchCommitter,
        xa: XaControl,
        end: Position,
        suspends: Callable[[CdcError], bool],
        raw: RawStaging | None = None,
    ) -> None:
        self._config = context.config
        self._stretch = stretch
        self._store = store
        self._reader = reader
        self._rules = rules
        self._decoder = decoder
        self._targets = stretch.targets
        self._place = stretch.place
        self._overlap = stretch.overlap
        self._stager = stretch.stager
        self._committer = committer
        self._xa = xa
        self._controls = ControlReader()
        self._observer = context.observer
        self._suspends = suspends
        self._schemas = stretch.schemas
        self._raw = raw
        self._end = end
        self._epoch = stretch.epoch
        self._bytes_done = 0
        self._rows = 0
        self._transactions = 0
        self._open_is_applied = False  # the open transaction has rows of a captured table
        self._open_gtid = ""

    def run(self) -> None:
        """Drain until the reader has ended and the store is empty.

        Raises:
            CdcError: from reading, decoding or merging; what came before it is committed.
        """
        size = get_size(self._config)
        while True:
            batch = self._store.get(size, timeout_s=_GET_TIMEOUT_S)
            if not batch.slices:
                if self._store.is_drained:
                    break
                continue
            try:
                self._take(batch.slices)
            except CdcError:
                self._commit_what_is_whole()
                raise
            self._store.release(batch.last_sequence)
            self._bytes_done += batch.journal_bytes
            del batch  # its events are not held during a merge or the next wait
            self._observer.progressed(
                bytes_done=self._bytes_done,
                bytes_total=self._reader.bytes_expected,
                transactions=self._transactions,
                rows=self._rows,
            )
            if self._committer.is_due():
                self._committer.commit()
        if self._reader.reached_end:
            self._place.reach(self._end)
        self._commit_what_is_whole()
        if self._reader.error is not None:
            raise self._reader.error
        self._overlap.check_passed()

    def _commit_what_is_whole(self) -> None:
        self._stretch.drop_open()
        self._place.drop_open()
        self._committer.commit(final=True)

    def _take(self, slices: Sequence[EventSlice]) -> None:
        """Split a get's result: whole transactions, pieces of an open one, single statements."""
        run: list[EventSlice] = []
        for piece in slices:
            if piece.kind is SliceKind.TRANSACTIONS:
                run.append(piece)
                continue
            self._take_transactions(run)
            run = []
            # Here as well: a get nearly always ends inside a transaction, where nothing can be
            # committed.
            if self._committer.is_due():
                self._committer.commit()
            if piece.kind is SliceKind.STATEMENT:
                self._take_statement(piece)
            elif piece.kind is SliceKind.ABANDONED:
                self._abandon(piece)
            else:
                self._take_piece(piece)
        self._take_transactions(run)

    def _take_transactions(self, run: list[EventSlice]) -> None:
        """Apply whole transactions. On an error, halve the run down to the failing transaction."""
        if not run:
            return
        saved = self._targets.snapshot()
        self._stager.names.coming(run)
        try:
            stated = self._decide_statements(run)
            controls = self._controls.read(stated)
            decoded = self._decoder.decode(run, controls.undone, raw=self._raw)
            confirmed = [self._confirm(table) for table in decoded.tables]
            confirmed_raw = [self._confirm(raw.as_decoded, first_us=raw.first_us) for raw in decoded.raw]
            steps = self._xa.plan(decoded.prepared, controls.xa_ends)
        except CdcError as error:
            self._targets.restore(saved)
            halves = _halve(run)
            if halves is None and not self._suspends(error):
                raise
            for part in halves or (run,):
                self._take_transactions(part)
            return
        with self._stager.together():
            for one in stated:
                self._apply(one.decision)
            for targets, table in zip(confirmed, decoded.tables, strict=True):
                self._stager.stage(targets, table.rows, open_transaction=False)
            for targets, raw in zip(confirmed_raw, decoded.raw, strict=True):
                self._stager.stage_raw(targets, raw.rows)
            self._stager.quarantine(decoded.bad, open_transaction=False)
            self._xa.apply(steps)
            self._advance(run, decoded)

    def _take_piece(self, piece: EventSlice) -> None:
        """Stage a piece of a transaction larger than a slice, apart until its end is known."""
        first = piece.events[0]
        transaction = piece.chunk.journal, int(first["tx_offset"])
        if first["tx_ordinal"] == 0:
            self._open_gtid = gtid_texts(piece.chunk, piece.first, piece.first + 1).get(transaction[1], "")
            self._stager.names.opened(*transaction, self._open_gtid)
        self._stager.names.coming([piece])
        saved, mark, controls = self._targets.snapshot(), self._decoder.mark(), self._controls.mark()
        try:
            stated = self._decide_statements([piece])
            is_xa = self._controls.read_piece(piece, stated)
            undone = self._controls.open_undone
            decoded = self._decoder.decode(
                [piece], {transaction: undone} if len(undone) else None, may_leave_out=not is_xa
            )
            confirmed = [] if is_xa else [self._confirm(table) for table in decoded.tables]
            if is_xa:
                self._xa.check_piece(decoded.tables)
        except CdcError as error:
            self._targets.restore(saved)
            self._decoder.rewind(mark)
            self._controls.rewind(controls)
            if not self._suspends(error):
                raise
            self._take_piece(piece)
            return
        for one in stated:
            self._apply(one.decision)
        if is_xa:
            self._xa.begin_pieces(journal=transaction[0], tx_offset=transaction[1], gtid=self._open_gtid)
            self._xa.add_piece(decoded.tables)
        else:
            for targets, table in zip(confirmed, decoded.tables, strict=True):
                self._stager.stage(targets, table.rows, open_transaction=True)
            self._stager.quarantine(decoded.bad, open_transaction=True)
        self._open_is_applied |= decoded.transactions_applied > 0
        applied = 0
        if piece.kind is SliceKind.LAST_PIECE:
            applied = self._end_pieces(piece, is_xa=is_xa, undone=undone)
            self._open_is_applied = False
            self._controls.reset()
        self._advance([piece], replace(decoded, transactions_applied=applied))

    def _end_pieces(self, piece: EventSlice, *, is_xa: bool, undone: NDArray[np.int64]) -> int:
        """End a transaction that came in pieces; return 1 if its rows count, else 0."""
        end = piece.events[-1]
        if end["role"] == Role.ROLLBACK:
            self._stretch.drop_open()
            return 0
        with self._stager.together():
            if not is_xa:
                self._stager.undo_open(undone)
                self._stager.close_open()
                return int(self._open_is_applied)
            self._xa.undo_pieces(undone)
            if end["role"] == Role.XA_PREPARE:
                (group,) = prepared_groups(piece)
                self._xa.park_pieces(replace(group, gtid=self._open_gtid))
                return 0
            self._xa.commit_pieces(
                journal=piece.chunk.journal, tx_offset=int(end["tx_offset"]), commit_ts_us=int(end["commit_ts_us"])
            )
        return int(self._open_is_applied)

    def _confirm(self, table: DecodedTable, *, first_us: int | None = None) -> list[Target]:
        """Return the targets of a table's changes; an error names their place.

        `first_us` is the commit time of the first change; None for that of the rows.
        """
        try:
            found = self._targets.confirm(table.rows.schema)
            self._targets.check_rows(table.rows)
            self._overlap.check_changes(
                found,
                table.rows.schema.full_name,
                first_us=int(table.rows.commit_ts_us.min()) if first_us is None else first_us,
            )
            for target in found:
                check_rows(target, table.rows)
            return self._targets.with_rescued(found, table.rows)
        except CdcError as error:
            error.journal, error.offset = table.journal, table.offset
            error.table = error.table or table.rows.schema.full_name
            raise

    def _abandon(self, mark: EventSlice) -> None:
        """Drop the pieces of an open transaction that never ended (K5): they never count."""
        self._stretch.drop_open()
        self._place.drop_open()
        self._decoder.reset()
        self._controls.reset()
        self._open_is_applied = False
        self._advance([mark], DecodedRun((), 0, 0))

    def _take_statement(self, piece: EventSlice) -> None:
        """Apply a single statement: a batch of its own if it changes a target."""
        self._overlap.coming(int(piece.events["commit_ts_us"][-1]))
        row = piece.stop - 1
        try:
            query, decision = self._decision(piece, row)
            alone = bool(decision.changes)
            if alone:
                self._committer.commit()  # which may suspend a target
                query, decision = self._decision(piece, row)
            self._check_not_parked(decision)
            self._take_over(piece, row, query, decision)
        except CdcError as error:
            if not self._suspends(error):
                raise
            self._take_statement(piece)
            return
        self._apply(decision)
        self._advance([piece], DecodedRun((), 0, 0 if decision.ignored else 1))
        if alone:
            self._committer.commit()

    def _check_not_parked(self, decision: Decision) -> None:
        """Check that no parked rows lose their table.

        Raises:
            UnsupportedDdlError: a table is renamed while rows of it, under its old name, wait for
                XA COMMIT (K8, K28).
        """
        for table in dict.fromkeys(old for old, _ in decision.statement.renames):
            source = table_name(*table)
            if self._xa.holds_rows_of(source) and not self._targets.is_suspended(*table):
                raise UnsupportedDdlError(
                    "a table is renamed while a prepared XA transaction that changed it is open",
                    table=source,
                    journal=decision.ddl.journal,
                    offset=decision.ddl.offset,
                    next_step="commit or roll back the XA transaction at the source, and load the table under the name "
                    "that it has now",
                )

    def _decide_statements(self, run: Sequence[EventSlice]) -> list[Stated]:
        """Record decisions of statements that are not alone: savepoints, XA, DDL of other tables."""
        return [
            Stated(piece, int(row) + piece.first, self._decide(piece, int(row) + piece.first))
            for piece in run
            for row in np.flatnonzero(piece.events["role"] == Role.STATEMENT)
        ]

    def _decide(self, piece: EventSlice, row: int) -> Decision:
        query, decision = self._decision(piece, row)
        self._take_over(piece, row, query, decision)
        return decision

    def _decision(self, piece: EventSlice, row: int) -> tuple[Query, Decision]:
        query, event = parse_query(piece.chunk, row), piece.chunk.events[row]
        decide = partial(decide_in_overlap, self._rules) if self._overlap.is_held() else self._rules.decide
        journal = piece.chunk.journal
        begin = max(0, int(event["tx_offset"]))
        seq = pack_seq(self._epoch, journal_number(journal), begin, int(event["tx_ordinal"]))
        alone = piece.kind is SliceKind.STATEMENT  # whatever removes rows
        gtid = gtid_texts(piece.chunk, piece.first, row + 1).get(begin, "") if alone else ""
        decision = decide(
            query,
            targets=self._targets,
            journal=journal,
            offset=int(event["offset"]),
            schemas=self._schemas,
            place=RowPlace(seq, int(event["commit_ts_us"]), gtid or f"{journal}:{begin}"),
        )
        return query, decision

    def _take_over(self, piece: EventSlice, row: int, query: Query, decision: Decision) -> None:
        saved = self._targets.snapshot()
        try:
            self._targets.decided(decision, may_carry=not self._overlap.is_held())
            for error in self._targets.unknown_contents:
                if not self._suspends(error):
                    raise error
        except CdcError:
            self._targets.restore(saved)
            raise
        if self._schemas is not None and decision.statement.kind in SCHEMA_KINDS:
            self._schemas.apply(
                query,
                is_mariadb=piece.chunk.journal_format.is_mariadb,
                journal=piece.chunk.journal,
                offset=int(piece.chunk.events["offset"][row]),
                time_us=int(piece.chunk.events["commit_ts_us"][row]),
            )

    def _apply(self, decision: Decision) -> None:
        for created in decision.creates:
            for target in self._targets.following(*created.table):
                if target.is_new:
                    self._stager.create(target)
        for change in decision.changes:
            if change.is_carried:
                continue
            target = self._targets.named(change.known.name)
            if change.replaces:
                self._stager.create(target)
            else:
                self._stager.change(target, change)
        for target in self._targets.carried():
            self._stager.carry(target)
        if decision.ignored:
            left = any(self._targets.is_suspended(*table) for table in decision.statement.tables)
            self._place.count("statements_suspended" if left else "statements_ignored", 1)
        else:
            self._stager.decided(decision.ddl)

    def _advance(self, run: Sequence[EventSlice], decoded: DecodedRun) -> None:
        self._place.count("row_events_ignored", decoded.row_events_ignored)
        self._place.count("row_events_suspended", decoded.row_events_suspended)
        self._place.count("transactions_applied", decoded.transactions_applied)
        self._place.advance(run)
        if self._stretch.history is not None:
            self._stretch.history.add(run)
        self._take_notes()
        self._rows += sum(len(raw.rows) for raw in decoded.raw)
        self._rows += sum(len(table.rows) for table in decoded.tables) + self._xa.take_rows_applied()
        self._transactions += decoded.transactions_applied

    def _take_notes(self) -> None:
        """Add the reader's decisions up to here to the batch.

        The reader wrote them before it put what follows.
        """
        notes = self._reader.notes
        while notes and Position(notes[0].journal, notes[0].offset).order <= self._place.position.order:
            self._stager.note(notes.popleft())
        if self._schemas is not None:
            for note in self._schemas.notes:
                self._stager.note(note)
            self._schemas.notes.clear()


def check_rows(target: Target, rows: DecodedRows) -> None:
    """Check that a target can find the rows that change.

    Raises:
        IncompleteRowsError: the images, or the table, lack columns that the target finds rows by.
    """
    if not MODES[target.spec.mode].has_key:
        return
    recorded = target.spec.sources.get(rows.schema.full_name)
    names = dict(recorded.names) if recorded is not None else {}
    here = {names.get(name, name): name for name in rows.schema.column_names}
    key = [name for name in target.spec.key if name not in shard_key(target.spec.shape)]
    gone = [name for name in key if name not in here]
    if gone:
        raise IncompleteRowsError(
            f"the table has no column for the target's key any more: {', '.join(gone)}",
            table=rows.schema.full_name,
            setting="targets.key",
            expected=f"the key ({', '.join(key)})",
            next_step="give the target's rule another `key` and another `name`",
        )
    try:
        check_images(rows, tuple(here[name] for name in key))
    except StagingError as error:
        raise IncompleteRowsError(
            error.what,
            table=error.table,
            setting="binlog_row_image",
            expected=error.expected,
            got=error.got,
            next_step=error.next_step,
        ) from None


def _halve(run: list[EventSlice]) -> tuple[list[EventSlice], list[EventSlice]] | None:
    """Split the run in two at a transaction end; None if it is a single transaction."""
    if len(run) > 1:
        middle = len(run) // 2
        return run[:middle], run[middle:]
    piece = run[0]
    begins = np.flatnonzero((piece.events["tx_offset"] >= 0) & (piece.events["tx_ordinal"] == 0))
    begins = begins[begins > 0]
    if not len(begins):
        return None
    stop = int(begins[len(begins) // 2])
    return [piece.part(0, stop)], [piece.part(stop, piece.event_count)]
