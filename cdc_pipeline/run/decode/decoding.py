"""Decode slices of events into the changes of each captured table.

Rules:
- Rows of a transaction that ends with ROLLBACK never count, nor do those that ROLLBACK TO a
  savepoint undid.
- Rows that wait for the end of an XA transaction are kept apart (K8).
- Rows of a suspended table are counted and not decoded: its table maps may be the reason for the
  suspension (K4).
- Rows are masked as soon as they are decoded, so that no later stage sees the original values
  (K14). What was erased on request is left out just before: whoever reads a log does it here.
- A value that its Delta type cannot hold is rescued, a row that cannot be applied goes to the
  quarantine, or either stops its table with journal and offset, as the table's policies say
  (`targets/row_policies.py`). Rows of prepared transactions always stop it, because it is
  not known yet whether they count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk, EventSlice
from cdc_pipeline.binlog.decoded import INSERT, UPDATE, DecodedRows, InvalidValue
from cdc_pipeline.binlog.rows.partial_rows import NO_DOCUMENT
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.seq import journal_number, seq_of_place
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.wire_types import WireType
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    IncompleteRowsError,
    UnrepresentableValueError,
    located,
)
from cdc_pipeline.lake.records import Note
from cdc_pipeline.run.decode.transaction_control import TransactionKey, Undone
from cdc_pipeline.targets.confirmed import as_recorded, found_by, table_policy
from cdc_pipeline.targets.erased import ErasedRows
from cdc_pipeline.targets.quarantine import BadRows, bad_event, bad_rows
from cdc_pipeline.targets.row_policies import unrepresentable
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import NameRule
from cdc_pipeline.text.wording import and_more
from cdc_pipeline.transaction.savepoints import is_undone
from cdc_pipeline.transaction.table_maps import KnownSchemas, MapsMark, TableMaps

_KEPT_BINARY_NOTE: Final = "kept_binary"
_BLOBS: Final = frozenset(
    {
        WireType.BLOB_COMPRESSED,
        WireType.VECTOR,
        WireType.JSON,
        WireType.TINY_BLOB,
        WireType.MEDIUM_BLOB,
        WireType.LONG_BLOB,
        WireType.BLOB,
        WireType.GEOMETRY,
    }
)


@dataclass(frozen=True, slots=True)
class DecodedTable:
    """Changes of one table, and the place of the first of them."""

    rows: DecodedRows
    journal: str
    offset: int

    def named_in_errors(self) -> AbstractContextManager[None]:
        return located(at=self, table=self.rows.schema.full_name)


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """`tables`: by table and schema version; `transactions_applied`: with a row of a captured
    table, without those that wait; `waiting`: changes of captured tables of each;
    `row_events_ignored`, `row_events_suspended`: of tables not captured, or suspended (K4);
    `rows_erased`: left out, or changed; `bad`: for the quarantine, not among `tables`; `notes`: of
    columns that keep the type of their target, once for each.
    """

    tables: tuple[DecodedTable, ...]
    row_events_ignored: int
    transactions_applied: int
    waiting: Mapping[TransactionKey, Sequence[DecodedTable]] = field(default_factory=dict)
    row_events_suspended: int = 0
    rows_erased: int = 0
    bad: tuple[BadRows, ...] = ()
    notes: tuple[Note, ...] = ()


_Mark: TypeAlias = tuple[MapsMark, frozenset[tuple[str, str]]]


class RunDecoder:
    """Decoder of slices in log order; carries table maps of an open transaction along."""

    def __init__(
        self,
        *,
        epoch: int,
        schemas: KnownSchemas | None = None,
        names: NameRule = NameRule.AS_GIVEN,
        erased: ErasedRows,
    ) -> None:
        self._maps = TableMaps(self._takes, schemas=schemas, names=names)
        self._epoch = epoch
        self._targets: Targets  # of the slices that are being decoded
        self._notes: list[Note] = []
        self._noted: set[tuple[str, str]] = set()
        self._erased = erased
        self._rows_erased = 0

    def mark(self) -> _Mark:
        return self._maps.mark(), frozenset(self._noted)

    def rewind(self, mark: _Mark) -> None:
        """Restore the state of `mark`, so that the slices since then can be decoded again."""
        maps, noted = mark
        self._maps.rewind(maps)
        self._noted, self._notes = set(noted), []

    def _takes(self, database: str, table: str) -> bool:
        return self._targets.takes(database, table)

    def reset(self) -> None:
        """Forget the table maps of a transaction that never ended."""
        self._maps.reset()

    def decode(
        self,
        slices: Sequence[EventSlice],
        targets: Targets,
        undone: Undone | None = None,
        waiting: Collection[TransactionKey] = (),
    ) -> DecodedRun:
        """`waiting`: transactions whose rows wait: none of them goes to the quarantine. Raises
        BinlogError or SchemaError with journal and offset; nothing of `slices` counts then.
        """
        undone, self._targets, self._rows_erased = undone or {}, targets, 0
        selections: dict[TableSchema, list[RowsSelection]] = {}
        held: dict[TableSchema, list[RowsSelection]] = {}
        ignored = left = 0
        applied: dict[str, list[NDArray[np.int64]]] = {}  # offsets of transactions by journal
        for piece in slices:
            rolled_back = piece.rolled_back_offsets
            journal = piece.chunk.journal
            waits_at = np.array([at for of, at in waiting if of == journal], dtype=np.int64)
            for group in self._maps.resolve(piece):
                rows = group.rows
                if targets.is_suspended(group.database, group.table):
                    left += len(rows)
                    continue
                if group.schema is None:
                    ignored += len(rows)
                    continue
                events = piece.chunk.events
                schema = self._as_recorded(group.schema, journal, int(events["offset"][rows[0]]))
                if len(rolled_back):
                    rows = rows[~np.isin(events["tx_offset"][rows], rolled_back)]
                rows = _without_undone(piece.chunk, rows, undone)
                if len(waits_at):
                    waits = np.isin(events["tx_offset"][rows], waits_at)
                    if waits.any():
                        held.setdefault(schema, []).append(RowsSelection(piece.chunk, rows[waits]))
                        rows = rows[~waits]
                if not len(rows):
                    continue
                selections.setdefault(schema, []).append(RowsSelection(piece.chunk, rows))
                applied.setdefault(piece.chunk.journal, []).append(events["tx_offset"][rows])
        tables = []
        bad: list[BadRows] = []
        for schema, parts in selections.items():
            first = parts[0]
            offset = int(first.chunk.events["offset"][first.rows[0]])
            of_table = self._decoded(parts, schema, bad=bad)
            if len(of_table):
                tables.append(DecodedTable(of_table, first.chunk.journal, offset))
        apart: dict[TransactionKey, list[DecodedTable]] = {}
        for schema, parts in held.items():
            for key, table in _by_transaction(self._decoded(parts, schema, bad=None), parts):
                apart.setdefault(key, []).append(table)
        notes, self._notes = tuple(self._notes), []
        return DecodedRun(
            tuple(tables),
            ignored,
            sum(len(np.unique(np.concatenate(offsets))) for offsets in applied.values()),
            apart,
            left,
            self._rows_erased,
            tuple(bad),
            notes,
        )

    def _as_recorded(self, schema: TableSchema, journal: str, offset: int) -> TableSchema:
        recorded = as_recorded(self._targets, schema)
        for column, kept in zip(schema.columns, recorded.columns, strict=True):
            if column.kind is kept.kind or (schema.full_name, column.name) in self._noted:
                continue
            self._noted.add((schema.full_name, column.name))
            text = (
                f"column `{column.name}` is {column.kind} at the source; its target was created "
                f"with {kept.kind} and keeps it"
            )
            self._notes.append(
                Note(
                    kind=_KEPT_BINARY_NOTE,
                    text=text,
                    journal=journal,
                    offset=offset,
                    table=schema.full_name,
                )
            )
        return recorded

    def _decoded(
        self, parts: Sequence[RowsSelection], schema: TableSchema, *, bad: list[BadRows] | None
    ) -> DecodedRows:
        """The others go to `bad`, if the policies allow that; None: no row may be left out."""
        try:
            keys = found_by(self._targets, schema)
            decoded = decode_rows(parts, schema, epoch=self._epoch, found_by=keys)
        except DamagedJournalError as error:
            policy = table_policy(self._targets, self._targets.masks.schema(schema))
            if bad is None or policy.rows.on_bad_row == "fail":
                raise
            split = _without_event(parts, error)
            if split is None:
                raise
            part, at, others = split
            event = part.chunk.events[int(part.rows[at])]
            is_erased = self._erased.may_be_in(
                schema.full_name,
                *_journals([part]),
                seq=seq_of_place(self._epoch, part.chunk.journal, int(event["tx_offset"])),
                time_us=int(event["commit_ts_us"]),
            )
            keeps_bytes = not (policy.hidden or is_erased)
            bad.append(
                bad_event(part, at, schema, error, epoch=self._epoch, keeps_bytes=keeps_bytes)
            )
            return self._decoded(others, schema, bad=bad)
        count = 0
        if self._erased:
            chunk, rows = parts[0].chunk, parts[0].rows
            with located(at=(chunk.journal, int(chunk.events["offset"][rows[0]]))):
                decoded, count = self._erased.without(decoded, _journals(parts))
            self._rows_erased += count
        decoded = self._targets.masks.apply(decoded)
        if not decoded.invalid and decoded.all_present:
            return decoded
        policy = table_policy(self._targets, decoded.schema)
        decided = policy.judge(decoded)
        may_leave = bad is not None
        if decided.failing is not None or (decided.bad and not may_leave):
            raise _unapplicable(decoded, parts, decided.failing or decided.bad[0])
        causes = {value.row: _cause(value, schema) for value in decided.bad}
        incomplete = (
            None if decoded.all_present else _check_images(decoded, parts, taken=policy.takes)
        )
        if incomplete is not None:
            lacking, those = incomplete
            if not may_leave or policy.rows.on_bad_row == "fail":
                raise lacking
            causes.update(dict.fromkeys(those, (type(lacking).__name__, lacking.what)))
        if causes:
            assert bad is not None
            before, hidden = decided.before, policy.hidden
            bad.append(bad_rows(before, causes, parts, hidden=hidden, keeps_bytes=not count))
        return decided.without(causes)


def _journals(parts: Sequence[RowsSelection]) -> set[tuple[int, int]]:
    chunks = (part.chunk for part in parts)
    return {(journal_number(one.journal), one.journal_format.created_s) for one in chunks}


def _without_event(
    parts: Sequence[RowsSelection], error: CdcError
) -> tuple[RowsSelection, int, list[RowsSelection]] | None:
    others: list[RowsSelection] = []
    event = None
    for part in parts:
        at = np.flatnonzero(part.chunk.events["offset"][part.rows] == error.offset)
        if event is not None or part.chunk.journal != error.journal or not len(at):
            others.append(part)
            continue
        event = part, int(at[0])
        others.append(RowsSelection(part.chunk, np.delete(part.rows, at[0])))
    return None if event is None else (*event, others)


def _cause(value: InvalidValue, schema: TableSchema) -> tuple[str, str]:
    name = schema.columns[value.column].name
    if value.reason == NO_DOCUMENT:
        return "IncompleteRowsError", f"column {name} changed by {value.reason}"
    return (
        "UnrepresentableValueError",
        f"column {name} cannot hold its value in the {value.image} image: {value.reason}",
    )


def _without_undone(chunk: Chunk, rows: NDArray[np.int64], undone: Undone) -> NDArray[np.int64]:
    for (journal, tx_offset), ranges in undone.items():
        if journal == chunk.journal:
            events = chunk.events[rows]
            rows = rows[
                ~((events["tx_offset"] == tx_offset) & is_undone(events["tx_ordinal"], ranges))
            ]
    return rows


def _by_transaction(
    decoded: DecodedRows, parts: Sequence[RowsSelection]
) -> Iterator[tuple[TransactionKey, DecodedTable]]:
    if not len(decoded):
        return
    offsets = np.concatenate([part.chunk.events["tx_offset"][part.rows] for part in parts])
    numbers = np.concatenate([np.full(len(part.rows), at) for at, part in enumerate(parts)])
    transaction, part_of = offsets[decoded.event_row], numbers[decoded.event_row]
    new = (transaction[1:] != transaction[:-1]) | (part_of[1:] != part_of[:-1])
    cuts = [0, *(np.flatnonzero(new) + 1).tolist(), len(decoded)]
    for first, stop in pairwise(cuts) if len(decoded) else ():
        rows = decoded.part(first, stop)
        journal, offset = _event_position(decoded, parts, first)
        yield (journal, int(transaction[first])), DecodedTable(rows, journal, offset)


def _event_position(
    decoded: DecodedRows, parts: Sequence[RowsSelection], row: int
) -> tuple[str, int]:
    at = int(decoded.event_row[row])
    for part in parts:
        if at < len(part.rows):
            break
        at -= len(part.rows)
    return part.chunk.journal, int(part.chunk.events["offset"][part.rows[at]])


def _unlogged(
    decoded: DecodedRows, taken: Callable[[str], bool]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which columns of which inserts, and of which updates, have values that the log does not
    contain, each (rows, columns). An insert lacks what took its default; an update what did not
    change, and generated columns on MariaDB 11.8: those are in neither image, though the one before
    is not the key alone. NOBLOB leaves out BLOBs that did not change.
    """
    columns = decoded.schema.columns
    before, after = decoded.has_before, decoded.has_after
    key = np.zeros(len(columns), bool)
    key[list(decoded.schema.primary_key)] = True
    more_than_key = key.any() & (before & ~key).any(axis=1)
    plain = np.array(
        [column.wire_type not in _BLOBS and taken(column.name) for column in columns], dtype=bool
    )
    updates = ((decoded.op == UPDATE) & more_than_key)[:, None] & ~before & ~after & plain
    return (decoded.op == INSERT)[:, None] & ~after, updates


def lacks_values(decoded: DecodedRows, taken: Callable[[str], bool]) -> bool:
    return any(lacking.any() for lacking in _unlogged(decoded, taken))


def _check_images(
    decoded: DecodedRows, parts: Sequence[RowsSelection], *, taken: Callable[[str], bool]
) -> tuple[IncompleteRowsError, list[int]] | None:
    inserts, updates = _unlogged(decoded, taken)
    lacking = np.flatnonzero((inserts | updates).any(axis=1))
    if not len(lacking):
        return None
    row = int(lacking[0])
    journal, offset = _event_position(decoded, parts, row)
    columns = decoded.schema.columns
    of_row = (inserts | updates)[row]
    names = [column.name for column, lacks in zip(columns, of_row, strict=True) if lacks]
    if updates[row].any():
        error = IncompleteRowsError(
            f"an update lacks columns that the server computes: {', '.join(names)}",
            at=(journal, offset),
            table=decoded.schema.full_name,
            expected="images with every column, generated ones too",
            got=f"{len(lacking)} changes without some of them",
            next_step="this server does not log generated columns of updates (MariaDB 11.8 does "
            "not): leave them out (targets: columns: exclude), move the folder of the Delta table "
            "away, and take a new snapshot of the table",
        )
        return error, lacking.tolist()
    error = IncompleteRowsError(
        f"an insert lacks the columns that took their default: {', '.join(names)}",
        at=(journal, offset),
        table=decoded.schema.full_name,
        setting="binlog_row_image",
        expected="inserts with every column",
        got=f"{len(lacking)} inserts without some of them",
        next_step="SET GLOBAL binlog_row_image = 'FULL', end all older sessions, and "
        "start after them",
    )
    return error, lacking.tolist()


def _unapplicable(
    decoded: DecodedRows, parts: Sequence[RowsSelection], value: InvalidValue
) -> UnrepresentableValueError | IncompleteRowsError:
    journal, offset = _event_position(decoded, parts, value.row)
    if value.reason != NO_DOCUMENT:
        return unrepresentable(decoded, value, at=(journal, offset))
    column = decoded.schema.columns[value.column]
    return IncompleteRowsError(
        f"column {column.name} changed by {value.reason}",
        at=(journal, offset),
        table=decoded.schema.full_name,
        setting="binlog_row_image",
        expected="the document before the change in the before image (FULL), or complete "
        "documents after it",
        got=f"only differences{and_more(len(decoded.invalid) - 1)}",
        next_step="SET GLOBAL binlog_row_image = 'FULL' or SET GLOBAL binlog_row_value_options "
        "= '', end the sessions that are older, and start after them",
    )
