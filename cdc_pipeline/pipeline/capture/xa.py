"""Prepared XA transactions of a run: parked at their prepare, applied at XA COMMIT (K8).

Rules:
- `plan` judges everything and changes nothing; `apply` then acts. So an XA COMMIT that cannot be
  applied stops the run before anything of its slice is staged.
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

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

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
from cdc_pipeline.pipeline.decode.transaction_control import XaEnd

_GATHERED_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class XaStep:
    """One action.

    Park `group`; with `end` (paired), apply or drop it at once. `end` alone ends a parked group,
    or one never seen (unknown). Else forget what is parked under the xid of `group`.
    """

    kind: Literal["park", "paired", "parked", "unknown", "forget"]
    group: PreparedGroup | None = None
    end: XaEnd | None = None


class XaControl:
    """Matches decoded prepares and XA statements with parked rows.

    Args:
        captured: whether a table is captured, by database and table name.
        accepted: canonical xids of XA COMMITs that may be unknown.
    """

    def __init__(
        self,
        stretch: Stretch,
        *,
        captured: Callable[[str, str], bool],
        accepted: Collection[str],
    ) -> None:
        self._parking = stretch.parking
        self._targets = stretch.targets
        self._stager = stretch.stager
        self._overlap = stretch.overlap
        self._place = stretch.place
        self._epoch = stretch.epoch
        self._captured = captured
        self._accepted = frozenset(accepted)
        self._rows_applied = 0
        # Rows of XA COMMITs that are staged together: staging costs far more per call than per row.
        self._gathered: dict[TableSchema, list[DecodedRows]] = {}
        self._gathered_bytes = 0

    def holds_rows_of(self, source: str) -> bool:
        """Return whether an open prepared transaction has rows of a source table."""
        return self._parking.holds_rows_of(source)

    def take_rows_applied(self) -> int:
        """Return changes that XA COMMITs made effective since the last call."""
        rows, self._rows_applied = self._rows_applied, 0
        return rows

    # -- whole transactions -------------------------------------------------------------------------------------------

    def plan(self, prepared: Sequence[PreparedGroup], ends: Sequence[XaEnd]) -> list[XaStep]:
        """Plan the actions for a run of slices.

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
                        steps.append(XaStep("forget", group=item))
                        ended.add(item.xid)
                    else:
                        steps[waiting[item.xid]] = XaStep("forget", group=item)
                self.check_piece(item.tables)
                waiting[item.xid] = len(steps)
                steps.append(XaStep("park", group=item))
            except CdcError as error:
                error.journal, error.offset = item.journal, item.offset
                raise
        return steps

    def apply(self, steps: Sequence[XaStep]) -> None:
        """Execute a plan; only within `Stager.together`."""
        for step in steps:
            group, end = step.group, step.end
            if step.kind == "unknown" and end is not None:
                self._unknown(end)
            elif step.kind == "forget" and group is not None:
                self._forget(group)
            elif step.kind == "park" and group is not None:
                self._park(group)
            elif step.kind == "paired" and group is not None and end is not None:
                self._place.count("xa_prepared", 1)
                self._ended(end, any_rows=bool(group.tables))
                for table in group.tables if end.is_commit else ():
                    self._gather(self._effect(end).on(table.rows))
            elif step.kind == "parked" and end is not None:
                self._apply_parked(end)
        self._stage_gathered()

    def _paired(self, step: XaStep, end: XaEnd) -> XaStep:
        assert step.group is not None
        if end.is_commit:
            for table in step.group.tables:
                self._confirm(table.rows.schema)
        return XaStep("paired", group=step.group, end=end)

    def _end(self, end: XaEnd, *, is_parked: bool) -> XaStep:
        if is_parked:
            if end.is_commit:
                for schema in self._parking.schemas(end.xid):
                    if self._counts(schema):
                        self._targets.masks.check_parked(schema)
                        self._confirm(schema)
            return XaStep("parked", end=end)
        if end.is_commit and end.xid not in self._accepted:
            raise UnknownXaError(
                f"XA COMMIT of a transaction whose XA PREPARE was not read: {end.xid}",
                setting="accept.unknown_xa",
                expected="an XA PREPARE of this xid at or after the start of the capture",
                got="it was prepared before: its rows were never read",
                next_step="start before its XA PREPARE; or reload the tables that it changed, "
                "and list this xid in accept.unknown_xa: it is then skipped and "
                "recorded",
            )
        return XaStep("unknown", end=end)

    def _check_again(self, group: PreparedGroup) -> None:
        if group.xid not in self._accepted:
            raise TransactionError(
                f"the XA transaction {group.xid} is prepared while one with the same xid is open",
                setting="accept.unknown_xa",
                expected="XA COMMIT or XA ROLLBACK of the one before it",
                got="another XA PREPARE: the log lacks the end of the first one (sql_log_bin = 0)",
                next_step="reload the tables that the first one changed, and list this xid in "
                "accept.unknown_xa: the rows of the first one are then dropped, "
                "which is recorded",
            )

    def _unknown(self, end: XaEnd) -> None:
        self._place.count("xa_unknown", 1)
        if end.is_commit:
            text = f"XA COMMIT of {end.xid} was skipped: it was prepared before the start, so its rows are missing"
            self._stager.note(Note(kind="accepted_unknown_xa", text=text, journal=end.journal, offset=end.offset))

    def _forget(self, group: PreparedGroup) -> None:
        self._place.count("xa_unknown", 1)
        if group.xid in self._parking:
            self._parking.end(group.xid)
        text = f"rows of {group.xid} were dropped: it was prepared again, and the log lacks its end"
        self._stager.note(Note(kind="accepted_unknown_xa", text=text, journal=group.journal, offset=group.offset))

    def _park(self, group: PreparedGroup) -> None:
        self._place.count("xa_prepared", 1)
        self._parking.begin(journal=group.journal, offset=group.tx_offset, gtid=group.gtid)
        for table in group.tables:
            self._parking.add(table.rows)
        self._parking.park(group.xid, prepared_at_us=group.prepared_at_us)

    def _apply_parked(self, end: XaEnd) -> None:
        any_rows = False
        if end.is_commit:
            for rows in self._parking.rows(end.xid, self._effect(end)):
                if not self._counts(rows.schema):
                    continue
                self._gather(rows)
                any_rows = True
        self._ended(end, any_rows=any_rows)
        self._parking.end(end.xid)

    def _gather(self, rows: DecodedRows) -> None:
        self._rows_applied += len(rows)
        self._gathered.setdefault(rows.schema, []).append(rows)
        self._gathered_bytes += rows.before.nbytes + rows.after.nbytes
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self._stage_gathered()

    def _stage_gathered(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        for schema, parts in gathered.items():
            rows = joined(parts)
            targets = self._targets.with_rescued(self._targets.confirm(schema), rows)
            self._stager.stage(targets, rows, open_transaction=False)

    def _ended(self, end: XaEnd, *, any_rows: bool) -> None:
        self._place.count("xa_committed" if end.is_commit else "xa_rolled_back", 1)
        if end.is_commit and any_rows:
            self._place.count("transactions_applied", 1)

    def _effect(self, end: XaEnd) -> Effect:
        return Effect(self._epoch, end.journal, end.tx_offset, end.commit_ts_us)

    def check_piece(self, tables: Sequence[DecodedTable]) -> None:
        """Check prepared rows against their targets.

        Raises:
            SchemaError, KeylessTableError: prepared rows do not fit their targets; the table is
                named.
        """
        for table in tables:
            try:
                self._targets.check(table.rows.schema)
                self._targets.check_rows(table.rows)
            except CdcError as error:
                error.table = error.table or table.rows.schema.full_name
                error.journal, error.offset = table.journal, table.offset
                raise

    def _confirm(self, schema: TableSchema) -> None:
        try:
            self._overlap.check_changes(self._targets.confirm(schema), schema.full_name)
        except CdcError as error:
            error.table = error.table or schema.full_name
            raise

    def _counts(self, schema: TableSchema) -> bool:
        """Return whether rows of a table are applied at the commit.

        They are not if it is no longer captured, or suspended: it then reads this transaction
        again when it catches up (K4).
        """
        database, table = schema.database, schema.table
        return self._captured(database, table) and not self._targets.is_suspended(database, table)

    # -- a transaction in pieces --------------------------------------------------------------------------------------

    def add_piece(self, tables: Sequence[DecodedTable]) -> None:
        """Take rows of an XA transaction in pieces; call `check_piece` and `begin_pieces` before."""
        for table in tables:
            self._parking.add(table.rows)

    def begin_pieces(self, *, journal: str, tx_offset: int, gtid: str) -> None:
        """Begin an XA transaction that comes in pieces, unless it has begun."""
        if not self._parking.has_pieces:
            self._parking.begin(journal=journal, offset=tx_offset, gtid=gtid)

    def undo_pieces(self, undone: NDArray[np.int64]) -> None:
        """Drop some of its rows, undone by ROLLBACK TO (see `Savepoints.undone`)."""
        self._parking.undo(undone)

    def park_pieces(self, group: PreparedGroup) -> None:
        """Park it: its last piece ends with XA PREPARE.

        `group.tables` is empty, because the rows came before.

        Raises:
            TransactionError: the xid is open.
        """
        for step in self.plan([group], []):
            if step.kind == "forget":
                self._forget(group)
        self._place.count("xa_prepared", 1)
        self._parking.park(group.xid, prepared_at_us=group.prepared_at_us)

    def commit_pieces(self, *, journal: str, tx_offset: int, commit_ts_us: int) -> None:
        """Apply it: it was committed in one phase, and its rows count under its own seq."""
        for rows in self._parking.pieces(Effect(self._epoch, journal, tx_offset, commit_ts_us)):
            if self._counts(rows.schema):
                self._gather(rows)
        self._stage_gathered()
        self._parking.drop_pieces()
