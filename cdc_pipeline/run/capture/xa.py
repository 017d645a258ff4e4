"""Prepared XA transactions of a run: parked at their prepare, applied at XA COMMIT (K8).

    waiting rows, XA ends --XaPlanner--> steps --XaStaging--> parked rows, staged rows

Rules:
- Rows of an XA transaction that is not whole yet are added to the one under way; its last part, or
  its only one, shows whether it is prepared or was committed in one phase (K34).
- Planning judges everything, parked rows too, and changes nothing; staging then carries the steps
  out, and judges nothing. So an XA COMMIT that cannot be applied suspends its table, or stops the
  run, before anything of its slice is staged.
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
  it is open, its earlier end is lost (`lost_xa.py`), and the same setting accepts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, assert_never

from cdc_pipeline.binlog.decoded import DecodedRows, joined
from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import UnknownXaError, UnsupportedDdlError, located
from cdc_pipeline.lake.prepared import CommitPlace, XaParking
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture_session import CaptureSession
from cdc_pipeline.run.capture.lost_xa import lost_end, unknown_xa_note
from cdc_pipeline.run.decode.decoding import DecodedTable
from cdc_pipeline.run.decode.transaction_control import Ending, TransactionKey, XaEnd, XaPart
from cdc_pipeline.schema.evolution.statement_context import Decision
from cdc_pipeline.targets.confirmed import accepted
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import table_name

_GATHERED_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class _Add:
    """Add a part to the XA transaction under way; if it ends with that, park it or apply it."""

    part: XaPart
    tables: Sequence[DecodedTable]


@dataclass(frozen=True, slots=True)
class _End:
    """Apply or drop what is parked, or its `tables`, if its prepare is in the same slices."""

    end: XaEnd
    tables: Sequence[DecodedTable] | None = None


@dataclass(frozen=True, slots=True)
class _PassOver:
    end: XaEnd


@dataclass(frozen=True, slots=True)
class _Forget:
    """Forget what is parked under an xid: it was prepared again."""

    part: XaPart


XaStep = _Add | _End | _PassOver | _Forget


class XaPlanner:
    """`accepted`: unknown XA COMMITs."""

    def __init__(self, session: CaptureSession, *, accepted: Collection[str], source: str) -> None:
        self._session = session
        self._parking = session.parking
        self._accepted = frozenset(accepted)
        self._source = source

    def plan(
        self,
        parts: Sequence[XaPart],
        ends: Sequence[XaEnd],
        rows: Mapping[TransactionKey, Sequence[DecodedTable]],
        targets: Targets,
    ) -> tuple[tuple[XaStep, ...], Targets]:
        """The steps for a run of slices, and the targets behind them; `rows`: of the parts. Raises
        UnknownXaError; TransactionError: an xid is prepared while it is open; SchemaError,
        KeylessTableError, StagingError: the rows cannot be applied.
        """
        steps: list[XaStep] = []
        waiting: dict[str, int] = {}  # xids that this run prepared, each with its step
        ended: set[str] = set()  # xids that were parked before and end in this run
        items: list[XaPart | XaEnd] = [*parts, *ends]
        for item in sorted(items, key=lambda one: (journal_number(one.journal), one.tx_offset)):
            is_parked = item.xid in self._parking and item.xid not in ended
            with located(at=item):
                if isinstance(item, XaEnd):
                    if item.xid in waiting:
                        at = waiting.pop(item.xid)
                        # Behind a transaction in pieces a unit has nothing: this one came whole.
                        tables = _added(steps[at]).tables
                        steps[at] = _End(item, tables)
                        if item.is_commit:
                            targets = self._accept(_rows(tables), item, targets)
                        continue
                    step, targets = self._end(item, targets, is_parked=is_parked)
                    steps.append(step)
                    ended.add(item.xid)
                    continue
                if item.xid in waiting or is_parked:
                    if is_parked:
                        begin = self._parking.begin_of(item.xid)
                        self._check_again(item.xid, begin, self._parking.rows_of(item.xid))
                        steps.append(_Forget(item))
                        ended.add(item.xid)
                    else:
                        at = waiting[item.xid]
                        self._check_again(item.xid, *_waiting(_added(steps[at])))
                        steps[at] = _Forget(item)
                tables = rows.get(item.key, ())
                _check(tables, targets)
                if item.ending is Ending.PREPARED:
                    waiting[item.xid] = len(steps)
                elif item.ending is Ending.COMMITTED:
                    of_parts = chain(self._parking.pieces(), _rows(tables))
                    targets = self._accept(of_parts, item, targets)
                steps.append(_Add(item, tables))
        return tuple(steps), targets

    def _end(
        self, end: XaEnd, targets: Targets, *, is_parked: bool
    ) -> tuple[_End | _PassOver, Targets]:
        if is_parked:
            if end.is_commit:
                for schema in self._parking.schemas(end.xid):
                    if targets.takes(schema.database, schema.table):
                        targets.masks.check_parked(schema)
                targets = self._accept(self._parking.rows(end.xid), end, targets)
            return _End(end), targets
        is_unknown = end.is_commit and end.xid not in self._accepted
        if is_unknown and not self._session.run.is_applied:
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
        return _PassOver(end), targets

    def _check_again(self, xid: str, begin: Position, rows: Mapping[str, int]) -> None:
        if xid not in self._accepted:
            evidence = "another XA PREPARE of it follows"
            raise lost_end(xid, begin, rows, source=self._source, found=evidence)

    def _accept(
        self, rows: Iterable[DecodedRows], end: XaEnd | XaPart, targets: Targets
    ) -> Targets:
        for part in rows:
            if not targets.takes(part.schema.database, part.schema.table):
                continue
            name = part.schema.full_name
            with located(table=name):
                targets, following = accepted(targets, part)
                self._session.overlap.check_changes(following, name, first_us=end.commit_ts_us)
        return targets


def _check(tables: Sequence[DecodedTable], targets: Targets) -> None:
    """Raises as `accepted`, with the table; nothing is known by rows that may never count."""
    for table in tables:
        with table.named_in_errors():
            accepted(targets, table.rows)


def _rows(tables: Sequence[DecodedTable]) -> Iterator[DecodedRows]:
    return (table.rows for table in tables)


def _added(step: XaStep) -> _Add:
    assert isinstance(step, _Add)
    return step


def _waiting(step: _Add) -> tuple[Position, dict[str, int]]:
    begin = Position(step.part.journal, step.part.tx_offset)
    return begin, {table.rows.schema.full_name: len(table.rows) for table in step.tables}


class XaStaging:
    def __init__(self, session: CaptureSession) -> None:
        self._session = session
        self._parking = session.parking
        self._stager = session.stager
        self._counts: Counter[str] = Counter()
        # Rows of XA COMMITs that are staged together: staging costs far more per call than per row.
        self._gathered: dict[TableSchema, list[DecodedRows]] = {}
        self._gathered_bytes = 0

    def apply(self, steps: Sequence[XaStep]) -> Counter[str]:
        """Within `Stager.together`: an interval's counts, and the ``rows`` that took effect."""
        self._counts = Counter()
        for step in steps:
            match step:
                case _Add():
                    self._add(step.part, step.tables)
                case _End():
                    self._ended(step.end, step.tables)
                case _PassOver():
                    self._pass_over(step.end)
                case _Forget():
                    self._forget(step.part)
                case _:
                    assert_never(step)
        self._stage_gathered()
        return self._counts

    # -- waiting rows and their ends ---------------------------------------------------------------

    def _add(self, part: XaPart, tables: Sequence[DecodedTable]) -> None:
        parking = self._parking
        if not parking.has_pieces:
            parking.begin(journal=part.journal, offset=part.tx_offset, gtid=part.gtid)
        if part.ending is Ending.COMMITTED:
            parking.undo(part.undone)
            self._take(chain(parking.pieces(), _rows(tables)), part)
            self._stage_gathered()
            parking.drop_pieces()
            return
        for table in tables:
            parking.add(table.rows)
        if part.ending is Ending.PREPARED:
            parking.undo(part.undone)
            self._counts["xa_prepared"] += 1
            parking.park(part.xid, prepared_at_us=part.commit_ts_us)

    def _pass_over(self, end: XaEnd) -> None:
        self._counts["xa_unknown"] += 1
        if end.is_commit:
            text = (
                f"XA COMMIT of {end.xid} was skipped: it was prepared before the start, so its "
                "rows are missing"
            )
            self._stager.note(unknown_xa_note(text, end.journal, end.offset))

    def _forget(self, part: XaPart) -> None:
        self._counts["xa_unknown"] += 1
        if part.xid in self._parking:
            self._parking.end(part.xid)
        text = f"rows of {part.xid} were dropped: it was prepared again, and the log lacks its end"
        self._stager.note(unknown_xa_note(text, part.journal, part.offset))

    def _ended(self, end: XaEnd, tables: Sequence[DecodedTable] | None) -> None:
        self._counts["xa_committed" if end.is_commit else "xa_rolled_back"] += 1
        if end.is_commit:
            self._take(self._parking.rows(end.xid) if tables is None else _rows(tables), end)
        if tables is None:
            self._parking.end(end.xid)
        else:
            self._counts["xa_prepared"] += 1

    # -- rows that became effective ----------------------------------------------------------------

    def _take(self, rows: Iterable[DecodedRows], end: XaEnd | XaPart) -> None:
        place = CommitPlace(self._session.epoch, end.journal, end.tx_offset, end.commit_ts_us)
        has_rows = False
        for part in rows:
            # If not, it is no longer captured, or suspended: it then reads this transaction again
            # when it catches up (K4).
            if self._session.targets.takes(part.schema.database, part.schema.table):
                self._gather(place.on(part))
                has_rows = True
        self._counts["transactions_applied"] += has_rows

    def _gather(self, rows: DecodedRows) -> None:
        self._counts["rows"] += len(rows)
        self._gathered.setdefault(rows.schema, []).append(rows)
        self._gathered_bytes += rows.before.nbytes + rows.after.nbytes
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self._stage_gathered()

    def _stage_gathered(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        for parts in gathered.values():
            rows = joined(parts)
            targets = self._session.targets
            following = targets.following(rows.schema.database, rows.schema.table)
            self._stager.stage(targets, following, rows, open_transaction=False)


def check_not_parked(decision: Decision, *, parking: XaParking, targets: Targets) -> None:
    """UnsupportedDdlError: a table is renamed while rows of it wait (K8, K28)."""
    for table in dict.fromkeys(old for old, _ in decision.statement.renames):
        source = table_name(*table)
        if parking.holds_rows_of(source) and not targets.is_suspended(*table):
            raise UnsupportedDdlError(
                "a table is renamed while a prepared XA transaction that changed it is open",
                table=source,
                at=decision.ddl,
                next_step="commit or roll back the XA transaction at the source, and take the "
                "table's snapshot under its new name",
            )
