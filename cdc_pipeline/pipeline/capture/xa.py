"""Prepared XA transactions of a run: parked at their prepare, applied at XA COMMIT (K8).

    prepares, XA ends, pieces --XaPlanner--> steps --XaStaging--> parked rows, staged rows

Rules:
- Planning judges everything and changes nothing; staging then carries the steps out. So an
  XA COMMIT that cannot be applied stops the run before anything of its slice is staged.
- A prepared group's tables must fit their targets when it is prepared and again when it is
  committed (K13). Only the commit creates a target: rows that are rolled back leave no table
  behind.
- A prepare whose commit comes in the same run of slices is never parked.
- The commit skips rows of a suspended table. The table's position lies before every transaction
  that was prepared and open when it was suspended, so that the catch-up reads them again (K4).
  Parked rows of a table that is no longer captured are left out as well.
- Rows of XA COMMITs are staged like those of any whole transaction, many commits at a time. A batch
  is recorded only between transactions: if a commit fails halfway, the whole batch is dropped and
  read again, so that no files per commit are needed.
- XA COMMIT of an unknown xid stops the run, unless `accept.unknown_xa` names it; then a note is
  recorded. XA ROLLBACK of an unknown xid is harmless. Both are counted. If an xid is prepared while
  it is open, its earlier end is missing in the log (sql_log_bin = 0). Whether those rows count
  cannot be known, and the same setting accepts it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DecodedRows, joined
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import CdcError, TransactionError, UnknownXaError
from cdc_pipeline.lake.prepared import Effect
from cdc_pipeline.lake.records import Note
from cdc_pipeline.pipeline.capture.stretch import Stretch
from cdc_pipeline.pipeline.decode.decoding import DecodedTable, PreparedGroup
from cdc_pipeline.pipeline.decode.transaction_control import OpenTransaction, XaEnd

_GATHERED_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class AddPiece:
    """Add a piece's rows to the XA transaction that comes in pieces."""

    opened: OpenTransaction
    tables: tuple[DecodedTable, ...]


@dataclass(frozen=True, slots=True)
class CommitPieces:
    """Apply the transaction in pieces: it was committed in one phase, under its own seq.

    Attributes:
        undone: event ordinals that do not count (see `Savepoints.undone`).
    """

    effect: Effect
    undone: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Park:
    """Park a prepared transaction, with the pieces that came before its end.

    Attributes:
        undone: event ordinals of these pieces that do not count; None without pieces.
    """

    group: PreparedGroup
    undone: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class _EndPaired:
    """Apply or drop a transaction whose prepare and end come in the same run of slices."""

    group: PreparedGroup
    end: XaEnd


@dataclass(frozen=True, slots=True)
class _EndParked:
    """Apply or drop a transaction that was parked before."""

    end: XaEnd


@dataclass(frozen=True, slots=True)
class _PassOver:
    """Pass over the end of a transaction whose prepare was not seen."""

    end: XaEnd


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget what is parked under the xid of a group: it was prepared again."""

    group: PreparedGroup


XaStep = AddPiece | CommitPieces | Park | _EndPaired | _EndParked | _PassOver | Forget


class XaPlanner:
    """Matches decoded prepares and XA statements with parked rows.

    Args:
        accepted: canonical xids of XA COMMITs that may be unknown.
    """

    def __init__(self, stretch: Stretch, *, accepted: Collection[str]) -> None:
        self._stretch = stretch
        self._parking = stretch.parking
        self._targets = stretch.targets
        self._accepted = frozenset(accepted)

    def plan(self, prepared: Sequence[PreparedGroup], ends: Sequence[XaEnd]) -> tuple[XaStep, ...]:
        """Plan the steps for a run of slices.

        Raises:
            UnknownXaError: XA COMMIT of a transaction whose prepare was not seen.
            TransactionError: an xid is prepared while it is open.
            SchemaError, KeylessTableError, StagingError: the rows cannot be applied.
        """
        steps: list[XaStep] = []
        waiting: dict[str, int] = {}  # xids that this run prepared, each with its step
        ended: set[str] = set()  # xids that were parked before and end in this run
        items: list[PreparedGroup | XaEnd] = [*prepared, *ends]
        for item in sorted(items, key=lambda one: (journal_number(one.journal), one.tx_offset)):
            is_parked = item.xid in self._parking and item.xid not in ended
            try:
                if isinstance(item, XaEnd):
                    if item.xid in waiting:
                        at = waiting.pop(item.xid)
                        steps[at] = self._paired(steps[at], item)
                        continue
                    steps.append(self._end(item, is_parked=is_parked))
                    ended.add(item.xid)
                    continue
                if item.xid in waiting or is_parked:
                    self._check_again(item)
                    if is_parked:
                        steps.append(Forget(item))
                        ended.add(item.xid)
                    else:
                        steps[waiting[item.xid]] = Forget(item)
                self.check_rows(item.tables)
                waiting[item.xid] = len(steps)
                steps.append(Park(item))
            except CdcError as error:
                error.journal, error.offset = item.journal, item.offset
                raise
        return tuple(steps)

    def plan_pieces(self, group: PreparedGroup, undone: NDArray[np.int64]) -> tuple[XaStep, ...]:
        """Plan the end of a prepared transaction whose rows came in pieces; see `plan`."""
        *forgotten, _ = self.plan([group], ())
        return (*forgotten, Park(group, undone))

    def check_rows(self, tables: Sequence[DecodedTable]) -> None:
        """Check prepared rows against their targets.

        Raises:
            SchemaError, KeylessTableError: prepared rows do not fit their targets; the table is
                named.
        """
        for table in tables:
            with table.named_in_errors():
                self._targets.check(table.rows.schema)
                self._targets.check_rows(table.rows)

    def _paired(self, step: XaStep, end: XaEnd) -> _EndPaired:
        assert isinstance(step, Park)
        if end.is_commit:
            for table in step.group.tables:
                self._confirm(table.rows.schema)
        return _EndPaired(step.group, end)

    def _end(self, end: XaEnd, *, is_parked: bool) -> _EndParked | _PassOver:
        if is_parked:
            if end.is_commit:
                for schema in self._parking.schemas(end.xid):
                    if self._stretch.applies_parked(schema):
                        self._targets.masks.check_parked(schema)
                        self._confirm(schema)
            return _EndParked(end)
        if end.is_commit and end.xid not in self._accepted:
            raise UnknownXaError(
                f"XA COMMIT of a transaction whose XA PREPARE was not read: {end.xid}",
                setting="accept.unknown_xa",
                expected="an XA PREPARE of this xid at or after the start of the capture",
                got="it was prepared before: its rows were never read",
                next_step="start before its XA PREPARE; or take new snapshots of the tables that "
                "it changed, "
                "and list this xid in accept.unknown_xa: it is then skipped and "
                "recorded",
            )
        return _PassOver(end)

    def _check_again(self, group: PreparedGroup) -> None:
        if group.xid not in self._accepted:
            raise TransactionError(
                f"the XA transaction {group.xid} is prepared while one with the same xid is open",
                setting="accept.unknown_xa",
                expected="XA COMMIT or XA ROLLBACK of the one before it",
                got="another XA PREPARE: the log lacks the end of the first one (sql_log_bin = 0)",
                next_step="take new snapshots of the tables that the first one changed, and list "
                "this xid in "
                "accept.unknown_xa: the rows of the first one are then dropped, "
                "which is recorded",
            )

    def _confirm(self, schema: TableSchema) -> None:
        try:
            self._stretch.overlap.check_changes(self._targets.confirm(schema), schema.full_name)
        except CdcError as error:
            error.table = error.table or schema.full_name
            raise


class XaStaging:
    """Carries out planned steps: parks rows, and stages those that become effective."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._parking = stretch.parking
        self._place = stretch.place
        self._stager = stretch.stager
        self._rows_applied = 0
        # Rows of XA COMMITs that are staged together: staging costs far more per call than per row.
        self._gathered: dict[TableSchema, list[DecodedRows]] = {}
        self._gathered_bytes = 0

    def apply(self, steps: Sequence[XaStep]) -> int:
        """Carry out a plan, within `Stager.together`; return the number of changes made
        effective."""
        self._rows_applied = 0
        for step in steps:
            match step:
                case AddPiece():
                    self._add_piece(step)
                case CommitPieces():
                    self._commit_pieces(step)
                case Park():
                    self._park(step)
                case _EndPaired():
                    self._end_paired(step.group, step.end)
                case _EndParked():
                    self._end_parked(step.end)
                case _PassOver():
                    self._pass_over(step.end)
                case Forget():
                    self._forget(step.group)
                case _:
                    assert_never(step)
        self._stage_gathered()
        return self._rows_applied

    # -- a transaction in pieces -------------------------------------------------------------------

    def _add_piece(self, piece: AddPiece) -> None:
        opened = piece.opened
        if not self._parking.has_pieces:
            self._parking.begin(journal=opened.journal, offset=opened.tx_offset, gtid=opened.gtid)
        for table in piece.tables:
            self._parking.add(table.rows)

    def _commit_pieces(self, end: CommitPieces) -> None:
        self._parking.undo(end.undone)
        for rows in self._parking.pieces(end.effect):
            if self._stretch.applies_parked(rows.schema):
                self._gather(rows)
        self._stage_gathered()
        self._parking.drop_pieces()

    # -- prepared transactions and their ends ------------------------------------------------------

    def _park(self, step: Park) -> None:
        group = step.group
        self._place.count("xa_prepared", 1)
        if step.undone is not None:
            self._parking.undo(step.undone)
        else:
            self._parking.begin(journal=group.journal, offset=group.tx_offset, gtid=group.gtid)
        for table in group.tables:
            self._parking.add(table.rows)
        self._parking.park(group.xid, prepared_at_us=group.prepared_at_us)

    def _end_paired(self, group: PreparedGroup, end: XaEnd) -> None:
        self._place.count("xa_prepared", 1)
        self._ended(end, any_rows=bool(group.tables))
        for table in group.tables if end.is_commit else ():
            self._gather(self._effect(end).on(table.rows))

    def _end_parked(self, end: XaEnd) -> None:
        any_rows = False
        if end.is_commit:
            for rows in self._parking.rows(end.xid, self._effect(end)):
                if not self._stretch.applies_parked(rows.schema):
                    continue
                self._gather(rows)
                any_rows = True
        self._ended(end, any_rows=any_rows)
        self._parking.end(end.xid)

    def _pass_over(self, end: XaEnd) -> None:
        self._place.count("xa_unknown", 1)
        if end.is_commit:
            text = (
                f"XA COMMIT of {end.xid} was skipped: it was prepared before the start, so its "
                "rows are missing"
            )
            self._stager.note(
                Note(kind="accepted_unknown_xa", text=text, journal=end.journal, offset=end.offset)
            )

    def _forget(self, group: PreparedGroup) -> None:
        self._place.count("xa_unknown", 1)
        if group.xid in self._parking:
            self._parking.end(group.xid)
        text = f"rows of {group.xid} were dropped: it was prepared again, and the log lacks its end"
        self._stager.note(
            Note(kind="accepted_unknown_xa", text=text, journal=group.journal, offset=group.offset)
        )

    def _ended(self, end: XaEnd, *, any_rows: bool) -> None:
        self._place.count("xa_committed" if end.is_commit else "xa_rolled_back", 1)
        if end.is_commit and any_rows:
            self._place.count("transactions_applied", 1)

    def _effect(self, end: XaEnd) -> Effect:
        return Effect(self._stretch.epoch, end.journal, end.tx_offset, end.commit_ts_us)

    # -- rows that became effective ----------------------------------------------------------------

    def _gather(self, rows: DecodedRows) -> None:
        self._rows_applied += len(rows)
        self._gathered.setdefault(rows.schema, []).append(rows)
        self._gathered_bytes += rows.before.nbytes + rows.after.nbytes
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self._stage_gathered()

    def _stage_gathered(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        targets = self._stretch.targets
        for schema, parts in gathered.items():
            rows = joined(parts)
            self._stager.stage(
                targets.with_rescued(targets.confirm(schema), rows), rows, open_transaction=False
            )
