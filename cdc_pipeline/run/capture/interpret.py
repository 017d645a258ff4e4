"""Interpret the log: what each unit changes, as a value (K13).

    unit -> statements -> transaction control -> rows -> targets, checks -> XA -> Changes

A unit is what can be interpreted by itself: whole transactions, a piece of a large one, a single
statement, or the mark of a transaction that never ended.

Rules:
- There is one way to read a unit: a piece is an open transaction with a part of it, and a whole
  transaction is one that opens and ends (K34). Where units are cut changes nothing.
- Interpreting stages nothing and moves nothing. It only learns: of tables, of the open transaction.
  If it fails, it forgets what it learned, so that the unit can be interpreted again, in halves or
  without a table.
- What is to be done is in the `Changes`, and the drain does it (`drain.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cdc_pipeline.binlog.chunk import EventSlice, Role, SliceKind
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events.gtid import gtid_texts
from cdc_pipeline.binlog.events.query import Query, parse_query
from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import Note
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture_session import CaptureSession
from cdc_pipeline.run.capture.suspension import Suspend, suspension_for
from cdc_pipeline.run.capture.xa import XaPlanner, XaStep, check_not_parked
from cdc_pipeline.run.decode.decoding import DecodedRun, DecodedTable, RunDecoder
from cdc_pipeline.run.decode.statements import StatementRules, check_not_emptied, notes_of
from cdc_pipeline.run.decode.transaction_control import (
    ControlReader,
    DecidedStatement,
    Ending,
    TransactionControl,
)
from cdc_pipeline.schema.evolution.statement_context import Decision, RowPosition
from cdc_pipeline.schema.history.apply_ddl import SCHEMA_KINDS
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.confirmed import accepted
from cdc_pipeline.targets.decided import decided
from cdc_pipeline.targets.targets import Targets

Unit = Sequence[EventSlice]


@dataclass(frozen=True, slots=True)
class Changes:
    """All of it is staged, or the run ends. `targets`: what is known of them behind it;
    `suspensions`: those that its statements leave behind.
    """

    unit: Unit
    targets: Targets
    statements: tuple[Decision, ...]
    suspensions: tuple[Suspend, ...]
    controls: TransactionControl
    decoded: DecodedRun
    rows: tuple[tuple[list[Target], DecodedRows], ...]
    xa: tuple[XaStep, ...]
    notes: tuple[Note, ...]
    transactions_applied: int


def units(slices: Sequence[EventSlice]) -> Iterator[Unit]:
    """Slices that follow each other in a chunk become one: each costs more than its events do."""
    whole: list[EventSlice] = []
    for piece in slices:
        if piece.kind is SliceKind.TRANSACTIONS:
            if whole and whole[-1].chunk is piece.chunk and whole[-1].stop == piece.first:
                whole[-1] = whole[-1].joined(piece)
            else:
                whole.append(piece)
            continue
        if whole:
            yield whole
            whole = []
        yield [piece]
    if whole:
        yield whole


def first_begin(unit: Unit) -> Position | None:
    for piece in unit:
        rows = np.flatnonzero(piece.events["tx_offset"] >= 0)
        if len(rows):
            return Position(piece.chunk.journal, int(piece.events["tx_offset"][rows[0]]))
    return None


def halves(unit: Unit) -> list[Unit] | None:
    """Split a unit at the end of a transaction; None if there is none inside."""
    if unit[0].kind is not SliceKind.TRANSACTIONS:
        return None
    if len(unit) > 1:
        middle = len(unit) // 2
        return [unit[:middle], unit[middle:]]
    piece = unit[0]
    begins = np.flatnonzero((piece.events["tx_offset"] >= 0) & (piece.events["tx_ordinal"] == 0))
    begins = begins[begins > 0]
    if not len(begins):
        return None
    stop = int(begins[len(begins) // 2])
    return [[piece.part(0, stop)], [piece.part(stop, piece.event_count)]]


class Interpreter:
    def __init__(
        self, session: CaptureSession, *, rules: StatementRules, decoder: RunDecoder, xa: XaPlanner
    ) -> None:
        self._session = session
        self._overlap = session.overlap
        self._schemas = session.schemas
        self._rules = rules
        self._decoder = decoder
        self._xa = xa
        self._controls = ControlReader()
        self._is_open_applied = False  # the open transaction has rows of a captured table

    def decide(self, unit: Unit) -> Decision | None:
        """On a single statement; one that changes a target is a batch of its own. As `read`."""
        piece = unit[0]
        if piece.kind is not SliceKind.STATEMENT:
            return None
        row = piece.stop - 1
        return self._decision(piece, row, parse_query(piece.chunk, row), self._session.targets)

    def read(self, unit: Unit, decided: Decision | None = None) -> Changes:
        """CdcError, with its place: a unit cannot be applied; nothing was learned then."""
        maps, open_before = self._decoder.mark(), self._controls.open
        try:
            return self._read(unit, decided)
        except CdcError:
            self._decoder.rewind(maps)
            self._controls.open = open_before
            raise

    def _read(self, unit: Unit, decided: Decision | None) -> Changes:
        logged, suspensions, ddl_notes, targets = self._statements(unit, decided)
        controls = self._controls.read(unit, logged)
        waiting = [part.key for part in controls.waiting]
        decoded = self._decoder.decode(unit, targets, controls.undone, waiting)
        rows = []
        for table in decoded.tables:
            targets, following = self._accepted(targets, table)
            rows.append((following, table.rows))
        xa, targets = self._xa.plan(controls.waiting, controls.xa_ends, decoded.waiting, targets)
        if decoded.bad:
            targets = targets.without_exactness([bad.table for bad in decoded.bad])
        if controls.ending is Ending.ABANDONED:
            self._decoder.reset()
        return Changes(
            unit,
            targets,
            statements=tuple(one.decision for one in logged),
            suspensions=suspensions,
            controls=controls,
            decoded=decoded,
            rows=tuple(rows),
            xa=xa,
            notes=(*decoded.notes, *ddl_notes),
            transactions_applied=self._applied(unit, controls, logged, decoded),
        )

    def _applied(
        self,
        unit: Unit,
        controls: TransactionControl,
        logged: Sequence[DecidedStatement],
        decoded: DecodedRun,
    ) -> int:
        applied = decoded.transactions_applied
        if unit[0].kind is SliceKind.STATEMENT:
            return applied + sum(not one.decision.ignored for one in logged)
        if controls.open is None:
            return applied
        self._is_open_applied = self._is_open_applied or applied > 0
        if controls.ending is None:
            return 0
        is_applied, self._is_open_applied = self._is_open_applied, False
        return int(is_applied and controls.ending is Ending.COMMITTED)

    # -- statements --------------------------------------------------------------------------------

    def _statements(
        self, unit: Unit, decided: Decision | None
    ) -> tuple[list[DecidedStatement], tuple[Suspend, ...], list[Note], Targets]:
        targets = self._session.targets
        logged: list[DecidedStatement] = []
        suspensions: list[Suspend] = []
        notes: list[Note] = []
        for piece in unit:
            for row in (
                np.flatnonzero(piece.events["role"] == Role.STATEMENT) + piece.first
            ).tolist():
                query = parse_query(piece.chunk, row)
                decision = decided or self._decision(piece, row, query, targets)
                check_not_parked(decision, parking=self._session.parking, targets=targets)
                if piece.kind is not SliceKind.STATEMENT:
                    check_not_emptied(decision)
                targets, left = self._learn(piece, row, query, decision, targets)
                suspensions += left
                notes += notes_of(decision, query)
                logged.append(DecidedStatement(piece, row, decision))
        return logged, tuple(suspensions), notes, targets

    def _decision(self, piece: EventSlice, row: int, query: Query, targets: Targets) -> Decision:
        event = piece.chunk.events[row]
        journal = piece.chunk.journal
        begin = max(0, int(event["tx_offset"]))
        seq = seq_of_place(self._session.epoch, journal, begin, int(event["tx_ordinal"]))
        alone = piece.kind is SliceKind.STATEMENT  # whatever removes rows
        gtid = gtid_texts(piece.chunk, piece.first, row + 1).get(begin, "") if alone else ""
        return self._rules.decide(
            query,
            targets=targets,
            journal=journal,
            offset=int(event["offset"]),
            schemas=self._schemas,
            place=RowPosition(seq, int(event["commit_ts_us"]), gtid or f"{journal}:{begin}"),
            in_overlap=self._overlap.is_held,
        )

    def _learn(
        self, piece: EventSlice, row: int, query: Query, decision: Decision, targets: Targets
    ) -> tuple[Targets, list[Suspend]]:
        suspensions = []
        targets, errors = decided(targets, decision, may_carry=not self._overlap.is_held)
        for error in errors:
            suspend = suspension_for(error, self._session, targets)
            if suspend is None:
                raise error
            suspensions.append(suspend)
        if decision.statement.kind in SCHEMA_KINDS:
            self._schemas.apply(
                query,
                decision.statement,
                targets.keeps_history,
                journal=piece.chunk.journal,
                offset=int(piece.chunk.events["offset"][row]),
                time_us=int(piece.chunk.events["commit_ts_us"][row]),
            )
        return targets, suspensions

    # -- rows --------------------------------------------------------------------------------------

    def _accepted(self, targets: Targets, table: DecodedTable) -> tuple[Targets, list[Target]]:
        """An error names the place of the table's changes."""
        rows = table.rows
        with table.named_in_errors():
            targets, following = accepted(targets, rows)
            first_us = int(rows.commit_ts_us.min())
            self._overlap.check_changes(following, rows.schema.full_name, first_us=first_us)
            return targets, following
