"""Every change of one row that the log, changelogs and histories know, joined.

Rules:
- A change is one entry, whoever knows it: by its place in the order of changes (K1), else by
  transaction, operation and keys (another server's log has other places). Rows of an XA transaction
  belong to its COMMIT.
- A row is followed over changes of its key, in both directions: each further key costs another
  reading. Other rows that had such a key before or after are not part of it.
- Nothing of the log is shown that no target of the table shows: masks apply before anything else,
  excluded columns are left out, and statements have no literals (K14, K26). Rows whose columns have
  no names are a hole.
- What nobody knows is named: a `Hole`, never silence. DDL of the table is an entry if the log has
  it.
- Rows are found by kernels. Python loops over what was found.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.binlog.chunk import Role
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.events.xa import parse_prepare
from cdc_pipeline.binlog.rows.text_jsonl import iso_time, jsonl_lines
from cdc_pipeline.binlog.seq import (
    EVENT_BITS,
    JOURNAL_BITS,
    OFFSET_BITS,
    ROW_BITS,
    journal_number,
    pack_seq,
)
from cdc_pipeline.binlog.value_text import text_of, texts_of, value_of
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import ColumnsRule
from cdc_pipeline.errors import CdcError, ConfigError, PositionError, SchemaError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.operations.backfill.lake import checked_tables
from cdc_pipeline.operations.inspect.bare_table_maps import MEANINGS
from cdc_pipeline.operations.inspect.change_log import LogPiece
from cdc_pipeline.operations.inspect.inspect import ColumnRenames, Inspection
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.operations.undo import Image, RowChange, undo_sql
from cdc_pipeline.position.cursor import CursorState, CursorStore
from cdc_pipeline.position.gtid.sets import parse_gtid_set
from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.lookup import journals_before, journals_to_scan
from cdc_pipeline.run.plan.reconcile import reconcile
from cdc_pipeline.run.plan.starting import choose
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.schema.ddl.published import published, without_literals
from cdc_pipeline.schema.ddl.statement import TABLE_DDL, StatementKind
from cdc_pipeline.sink.modes import mode_columns as own
from cdc_pipeline.sink.read.lake import Lake
from cdc_pipeline.sink.target import Target
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.targets.masks import mask_of
from cdc_pipeline.targets.targets import Targets, targets_at
from cdc_pipeline.text.table_names import exact_pattern, split_table_name
from cdc_pipeline.transaction.savepoints import Savepoints, is_undone

_K = StatementKind
_KEYS_MAX: Final = 16
_NUMBER: Final = re.compile(r"\b\d+\b")
LOG: Final = "log"
_GUESSED: Final = "the log does not name the charset of the table's texts: they are read as utf8mb4"
_PREPARED: Final = "prepared by XA, and not committed"
_IMAGES: Final = ("before", "after")

Key = tuple[str, ...]  # texts, bytes in hex


class Change(FrozenModel):
    """`op`: insert, update, delete, truncate, ddl, statement (rows that are in the log as text);
    `transaction`: its GTID, or journal:offset of its begin; `sql`: without literals.
    """

    op: str
    transaction: str | None
    position: str
    time: str | None
    known_by: tuple[str, ...]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    changed: tuple[str, ...] = ()
    sql: str | None = None
    note: str = ""


class Hole(FrozenModel):
    """What nobody knows, between two places; "" where there is none."""

    begin: str
    end: str
    why: str


class Story(FrozenModel):
    source: str
    table: str
    key: dict[str, str]
    changes: tuple[Change, ...]
    holes: tuple[Hole, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    op: str
    seq: int  # of the before image
    transaction: str | None
    time_us: int
    known_by: list[str] = field(default_factory=list)
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    keys: tuple[Key | None, Key | None] = (None, None)
    sql: str | None = None
    note: str = ""
    row: RowChange | None = None  # of the log
    is_guessed: bool = False  # its texts are in a charset that the log does not name


@dataclass(slots=True)
class _Open:
    """Of transactions that may still change what was found: by xid, and by transaction."""

    xids: dict[str, tuple[str, list[_Found]]] = field(default_factory=dict)
    savepoints: dict[str, Savepoints] = field(default_factory=dict)


@contextmanager
def open_story(
    config: PipelineConfig,
    table: str,
    *,
    cursors: CursorStore,
    selection: Selection = Selection(),  # noqa: B008 - a plain value
) -> Iterator[StoryReader]:
    """`selection`: of transactions. Raises what would keep a run from starting."""
    cut = build_sink(config).last_cut()
    cursor = reconcile(cursors.read(), cut).cursor
    source = build_source(choose(config).config)
    try:
        source.check()
        names = source.identity.names
        config = config.comparing(names)
        (table,) = checked_tables(config, [table])
        selection = replace(selection, tables=(exact_pattern(table),), names=names)
        yield StoryReader(config, table, selection, source, targets_at(config, cut, cursor), cursor)
    finally:
        source.close()


# Columns of the key, changes of the table, the transaction of each -> which are asked for.
_Wanted = Callable[[DecodedRows, pa.Array], pa.Array]


@dataclass(slots=True)
class StoryReader:
    config: PipelineConfig
    table: str
    selection: Selection
    source: Source
    targets: Targets
    cursor: CursorState | None
    columns: tuple[str, ...] = ()  # of the key
    holes: list[Hole] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    _prepared: dict[str, str] = field(default_factory=dict)  # transaction of each XA COMMIT

    def story(self, key: dict[str, str]) -> Story:
        """`key`: columns with the texts of their values. ConfigError: it is not the table's."""
        changes = self._of_row(key)
        self._note_before(changes)
        return Story(
            source=self.config.name,
            table=self.table,
            key=key,
            changes=tuple(map(self._shown, changes)),
            holes=tuple(self.holes),
            notes=tuple(self.notes),
        )

    def _of_row(self, key: dict[str, str]) -> list[_Found]:
        asked = self._checked(key)
        keys = {asked}
        while True:
            self.holes, self.notes = [], {}
            log = self._logged(lambda rows, _: _touching(rows, self.columns, sorted(keys)))  # noqa: B023
            changes = _lives_with(_joined(log, self._of_lake(sorted(keys))), asked)
            found = {one for each in changes for one in each.keys if one is not None}
            if found <= keys:
                return changes
            if len(keys | found) > _KEYS_MAX:
                self.notes["its key changes often: ask for a later or earlier key too"] = None
                return changes
            keys |= found

    def undo(self, key: dict[str, str], transaction: str) -> Iterator[str]:
        """SQL that takes back what a transaction changed in the row, without `key` in the table.
        Raises as `story`; PositionError: the log lacks such changes; SchemaError (`undo.py`).
        """
        yield from undo_sql(self._changes_of(transaction, key), transaction=transaction)

    def _changes_of(self, transaction: str, key: dict[str, str]) -> list[RowChange]:
        routes = self.targets.routes_of(self.table)
        if filters := [route.rule.filter for route in routes if route.rule.filter]:
            raise SchemaError(
                f"{transaction} cannot be taken back: it may hold rows that no target shows",
                table=self.table,
                expected="a table without `filter`",
                got=filters[0],
                next_step="write the statements by hand, at the source",
            )
        if key:
            changes = self._of_row(key)
        else:
            changes = self._logged(lambda _rows, names: pc.equal(names, transaction))
            if (prepared := self._prepared.get(transaction)) is not None:
                self.holes = []  # rows of an XA transaction are logged before its COMMIT
                changes = self._logged(lambda _rows, names: pc.equal(names, prepared))
        changes = [each for each in changes if each.transaction == transaction]
        is_guessed = any(each.is_guessed for each in changes)
        rows = [each.row for each in changes if each.row is not None and each.note != _PREPARED]
        if self.holes or is_guessed or not rows or len(rows) < len(changes):
            raise PositionError(
                f"the log cannot tell how to take {transaction} back",
                table=self.table,
                expected="a transaction with changes of these rows, and no statement on the table",
                got=next((each.sql for each in changes if each.row is None), None)
                or "; ".join(hole.why for hole in self.holes)
                or (_GUESSED if is_guessed else "")
                or "no change of them",
                next_step="name one that the row's story shows as known by the log",
            )
        return rows

    def _checked(self, key: dict[str, str]) -> Key:
        self.columns = tuple(key)
        for target in self._kept_by():
            expected = target.spec.sources[self.table]
            names = [column.name for column in expected.columns]
            if not set(key) <= set(names) or (expected.key and set(key) != set(expected.key)):
                raise _no_key(self.table, expected.key or names, self.columns)
            for column in expected.columns:
                if column.name in key and not _hashes(target, column.name):
                    type_ = arrow_of_delta(column.delta_type)
                    if type_ is None or value_of(key[column.name], type_) is None:
                        raise _no_key(self.table, [column.delta_type], [column.name])
        return tuple(key.values())

    def _kept_by(self) -> list[Target]:
        return [each for each in self.targets.by_name.values() if self.table in each.spec.sources]

    @property
    def _epoch(self) -> int:
        """Of the log, as a run would number it."""
        if self.cursor is None:
            return 1
        return self.cursor.epoch + (not self.cursor.identity.same_server(self.source.identity))

    def _shown(self, found: _Found) -> Change:
        before, after = found.before, found.after
        names = {} if before is None or after is None else {**before, **after}
        place = found.seq >> _ORDINAL_BITS
        number = place >> OFFSET_BITS & (1 << JOURNAL_BITS) - 1
        base = self.source.earliest_position().journal.rpartition(".")[0]
        note = found.note
        if None not in found.keys and found.keys[0] != found.keys[1]:
            note = note or "its key changes"
        return Change(
            op=found.op,
            transaction=found.transaction,
            position=f"{base}.{number:06d}:{place & (1 << OFFSET_BITS) - 1}",
            time=None if found.time_us < 0 else iso_time(found.time_us),
            known_by=tuple(found.known_by),
            before=before,
            after=after,
            changed=tuple(n for n in names if (before or {}).get(n) != (after or {}).get(n)),
            sql=found.sql,
            note=note,
        )

    # -- the log -----------------------------------------------------------------------------------

    def _logged(self, wanted: _Wanted) -> list[_Found]:
        """In the order of changes, up to a place that cannot be read."""
        found: list[_Found] = []
        open_ = _Open()
        inspection: Inspection | None = None
        end = begin = self.source.end_position()
        try:
            begin = self._begin()
            inspection = Inspection(
                self.selection,
                annotations=True,
                current=True,
                to_end=self._hides_columns,
                ask=lambda _all: self.source.catalog(
                    lambda *name: name == split_table_name(self.table), since=begin
                ),
            )
            chunks = self.source.chunks(begin, end)
            for piece, changes in inspection.changes((Path(), chunk) for chunk in chunks):
                for table_rows, rows in changes:
                    if why := self._unreadable(inspection, rows):
                        self._leave_out(piece, table_rows, why)
                    else:
                        found += self._rows_in(inspection, piece, table_rows, rows, wanted)
                for row in piece.statements.tolist():
                    found = self._with_statement(piece, row, found, open_)
            counts = inspection.log.counts
            if counts.shown_too_early and (counts.abandoned or counts.unfinished):
                why = "a large transaction that has no end is shown"
                self.holes.append(Hole(begin=str(begin), end=str(end), why=why))
        except CdcError as error:
            place = str(begin) if error.offset is None else f"{error.journal}:{error.offset}"
            if inspection is None or not inspection.is_done:
                why = f"it cannot be read: {error.what}"
                self.holes.append(Hole(begin=place, end=str(end), why=why))
        self._hide(found, [] if inspection is None else inspection.renames)
        return sorted(found, key=lambda each: each.seq)

    def _unreadable(self, inspection: Inspection, rows: DecodedRows) -> str:
        missing = inspection.bare_tables.schemas.get(rows.schema, ())
        if missing and missing != ("charsets",):  # masks might not be found
            why = "; ".join(MEANINGS[part] for part in missing)
            return f"the log does not describe the table completely: {why}"
        if not set(self.columns) <= set(rows.schema.column_names):
            return "the key's columns had other names"
        return ""

    def _leave_out(self, piece: LogPiece, rows: np.ndarray, why: str) -> None:
        """A hole, or more of the same one."""
        offsets = piece.chunk.events["offset"][rows].tolist()
        begin, end = (f"{piece.chunk.journal}:{offsets[at]}" for at in (0, -1))
        if self.holes and self.holes[-1].why == why:
            begin = self.holes.pop().begin
        self.holes.append(Hole(begin=begin, end=end, why=why))

    def _begin(self) -> Position:
        asked, earliest = self.selection, self.source.earliest_position()
        names = [info.journal for info in self.source.journals()]
        first = earliest.journal
        if asked.from_position is not None:
            first = asked.from_position.journal
        elif asked.from_us is not None:
            first = names[journals_to_scan(self.source, names, t_us=asked.from_us).first]
        elif asked.exclude_gtids:
            first = names[max(0, journals_before(self.source, names, asked.exclude_gtids) - 1)]
        return Position(first)

    def _note_before(self, changes: Sequence[_Found]) -> None:
        """Name what lies between the lake's end and the log's begin, and before both."""
        earliest, asked = self.source.earliest_position(), self.selection
        is_whole = journal_number(earliest.journal) == 1 and not earliest.gtid_set
        if is_whole or asked.from_position or asked.from_us is not None or asked.exclude_gtids:
            return
        begin = earliest.seq(self._epoch)
        first = changes[0] if changes else None
        if first is None or first.op != "insert" or LOG not in first.known_by:
            why = "neither the log nor a table of the lake goes back further"
            self.holes.insert(0, Hole(begin="", end=str(earliest), why=why))
        ends = [
            (held.seq, str(held.position))
            for target in self._recording()
            for held in (target.state.suspended or self.cursor,)
            if held is not None
        ]
        if ends and max(ends)[0] < begin:
            why = "the lake does not have it yet, and the log has it no more"
            self.holes.append(Hole(begin=max(ends)[1], end=str(earliest), why=why))

    def _rows_in(
        self,
        inspection: Inspection,
        piece: LogPiece,
        table_rows: np.ndarray,
        rows: DecodedRows,
        wanted: _Wanted,
    ) -> Iterator[_Found]:
        journal, events = piece.chunk.journal, piece.chunk.events[table_rows]
        gtids = piece.gtids_of(table_rows)
        transactions = [
            gtids.text(at) or f"{journal}:{offset}"
            for at, offset in enumerate(events["tx_offset"].tolist())
        ]
        of_rows = pa.array(transactions, pa.string()).take(pa.array(rows.event_row))
        is_guessed = rows.schema in inspection.bare_tables.schemas
        generated = self._generated(inspection, piece, int(table_rows[0]))
        rows = self.targets.masks.apply(rows)
        rows = rows.where(wanted(rows, of_rows).to_numpy(zero_copy_only=False))
        if not len(rows):
            return
        if is_guessed:
            self.notes[_GUESSED] = None
        keys = [_keys(image, self.columns) for image in (rows.before, rows.after)]
        lines = jsonl_lines(
            rows, journal=journal, offsets=events["offset"], gtids=[None] * len(events)
        )
        for at, line in enumerate(map(json.loads, lines)):
            event = int(rows.event_row[at])
            before, after = line["before"], line["after"]
            old, new = (
                None if line[i] is None else k[at] for i, k in zip(_IMAGES, keys, strict=True)
            )
            yield _Found(
                op=line["op"],
                seq=int(rows.seq[at].as_py()) + (self._epoch - 1 << _EPOCH_SHIFT),
                transaction=transactions[event],
                time_us=int(rows.commit_ts_us[at]),
                known_by=[LOG],
                keys=(old, new if new is None or None not in new else old),
                sql=self._statement_of(piece, int(table_rows[event])),
                row=RowChange(rows.schema, before, after, generated),
                is_guessed=is_guessed,
            )

    def _generated(self, inspection: Inspection, piece: LogPiece, row: int) -> tuple[str, ...]:
        place = piece.chunk.journal, int(piece.chunk.events["offset"][row])
        known = inspection.schemas.before(*split_table_name(self.table), *place)
        return tuple(column.name for column in (known and known.generated) or ())

    @property
    def _hides_columns(self) -> bool:
        """By names, so that what a column is renamed to later counts."""
        rules = [route.rule for route in self.targets.routes_of(self.table)]
        return any(rule.masks or rule.columns != ColumnsRule() for rule in rules)

    def _hide(self, found: Sequence[_Found], renames: Sequence[ColumnRenames]) -> None:
        """Give the rows of the log their images, without the columns that no target shows."""
        kept = [self._names(target) for target in self._kept_by()]
        shown = {name.lower() for of_target in kept for name in of_target}
        routes = self.targets.routes_of(self.table)

        @cache
        def hidden(names: tuple[str, ...], later: int) -> frozenset[str]:
            """By what the columns are called now, too: dropped ones have no name."""
            found = []
            for name in names:
                now = name.lower()
                for _, of_statement in renames[later:]:
                    now = of_statement.get(now, now)
                is_renamed = now != name.lower()
                if (
                    mask_of(routes, name) == "drop"
                    or (kept and not {name.lower(), now} <= shown)
                    or (is_renamed and mask_of(routes, now) is not None)
                ):
                    found.append(name)
            return frozenset(found)

        places = [seq for seq, _ in renames]
        for each in found:
            if each.row is not None:
                later = bisect(places, each.seq - (self._epoch - 1 << _EPOCH_SHIFT))
                row = replace(each.row, hidden=hidden(each.row.schema.column_names, later))
                each.row = row
                each.before, each.after = (
                    _without(image, row.hidden) for image in (row.before, row.after)
                )

    def _dropped(self, names: Sequence[str]) -> set[str]:
        routes = self.targets.routes_of(self.table)
        return {name for name in names if mask_of(routes, name) == "drop"}

    def _statement_of(self, piece: LogPiece, row: int) -> str | None:
        assert piece.annotations is not None
        sql = piece.annotations[row - piece.first].as_py()
        if sql is None:
            return None
        is_mariadb = piece.chunk.journal_format.is_mariadb
        # In a charset of several bytes a quote may be half of a letter.
        text = None if "\ufffd" in sql else without_literals(sql, is_mariadb=is_mariadb)
        # What is a type's length in DDL is a value here: CHAR(115).
        return f"({len(sql.encode())} bytes)" if text is None else _NUMBER.sub("?", text)

    def _with_statement(
        self, piece: LogPiece, row: int, found: list[_Found], open_: _Open
    ) -> list[_Found]:
        """With its entry, or what the end of an XA transaction or ROLLBACK makes of others."""
        chunk, event = piece.chunk, piece.chunk.events[row]
        offset = int(event["tx_offset"] if event["tx_offset"] >= 0 else event["offset"])
        transaction = piece.gtids_of(np.array([row])).text(0) or f"{chunk.journal}:{offset}"
        ordinal = max(0, int(event["tx_ordinal"]))
        place = pack_seq(self._epoch, journal_number(chunk.journal), offset, ordinal)
        time_us = int(event["commit_ts_us"])
        if event["role"] == Role.XA_PREPARE:
            prepared = parse_prepare(chunk, row)
            if not prepared.one_phase:
                rows = [each for each in found if each.transaction == transaction]
                open_.xids[prepared.xid] = transaction, rows
                for each in rows:
                    each.note = _PREPARED
        elif event["role"] == Role.ROLLBACK:
            return [each for each in found if each.row is None or each.transaction != transaction]
        elif event["role"] == Role.STATEMENT:
            logged = query.parse_query(chunk, row)
            statement = self.selection.parse(logged, is_mariadb=chunk.journal_format.is_mariadb)
            if statement.kind is _K.XA_ROLLBACK:
                _, gone = open_.xids.pop(statement.name, ("", []))
                return [each for each in found if not any(each is one for one in gone)]
            if statement.kind is _K.XA_COMMIT and statement.name in open_.xids:
                self._prepared[transaction], rows = open_.xids.pop(statement.name)
                for each in rows:
                    low = (1 << _ORDINAL_BITS) - 1
                    each.seq, each.note = place & ~low | each.seq & low, ""
                    each.transaction, each.time_us = transaction, time_us
            elif statement.kind in _OF_SAVEPOINTS:
                points = open_.savepoints.setdefault(transaction, Savepoints())
                if statement.kind is _K.SAVEPOINT:
                    points.set(statement.name, ordinal)
                elif statement.kind is _K.RELEASE_SAVEPOINT:
                    points.release(statement.name)
                elif not points.rollback_to(statement.name, ordinal):
                    self._leave_out(piece, np.array([row]), "some of its rows were rolled back")
                return [e for e in found if e.transaction != transaction or not _is_gone(e, points)]
            elif (statement.kind in _TOLD or statement.drops_database) and (
                self.selection.wants_statement(statement)
            ):
                op = _TOLD.get(statement.kind, "ddl")
                entry = _Found(op, place, transaction, time_us, [LOG], sql=published(statement))
                return [*found, entry]
        return found

    # -- the lake ----------------------------------------------------------------------------------

    def _recording(self) -> list[Target]:
        """Changelogs first, which say more."""
        kept = [each for each in self._kept_by() if MODES[each.spec.mode].keeps_every_change]
        return sorted(kept, key=lambda each: MODES[each.spec.mode].keeps_versions)

    def _of_lake(self, keys: Sequence[Key]) -> Iterator[_Found]:
        lake = Lake(self.config.sink.lake_path.absolute())
        for target in self._recording():
            if target.state.table_version < 0:
                continue
            spec = target.spec
            names = self._names(target)
            if not set(self.columns) <= names.keys():
                self.notes[f"{target.name} does not have the key's columns"] = None
                continue
            key_columns = [names[name] for name in self.columns]
            reader = lake.read(target.name, source=self.config.name, allow_suspended=True)
            parts = [reader.schema.empty_table()]
            for batch in reader:
                rows = pa.table(batch)
                is_asked = _are_in([rows[name] for name in key_columns], keys)
                if MODES[spec.mode].rows_are_changes:
                    before = rows[own.BEFORE_COLUMN]
                    fields = [pc.struct_field(before, name) for name in key_columns]
                    is_asked = pc.or_(is_asked, _are_in(fields, keys))
                    is_asked = pc.or_(is_asked, pc.equal(rows[own.OP_COLUMN], "truncate"))
                if spec.shape is not None and spec.shape.shard_column:
                    shard = pc.equal(rows[spec.shape.shard_column], spec.shape.shard_value)
                    is_asked = pc.and_(is_asked, pc.fill_null(shard, False))
                parts.append(rows.filter(is_asked))
            read = _history if MODES[spec.mode].keeps_versions else _changelog
            for each in read(pa.concat_tables(parts), names, self.columns):
                each.known_by.append(target.name)
                if self._is_asked(each):
                    yield each

    def _names(self, target: Target) -> dict[str, str]:
        recorded = target.spec.sources[self.table]
        renamed, present = dict(recorded.names), {column.name for column in target.spec.columns}
        own_names = [column.name for column in recorded.columns]
        shown = [name for name in own_names if name not in self._dropped(own_names)]
        return {n: renamed.get(n, n) for n in shown if renamed.get(n, n) in present}

    def _is_asked(self, found: _Found) -> bool:
        """By the conditions of the selection, as the log applies them to itself."""
        asked, epoch = self.selection, self._epoch
        if asked.from_position is not None and found.seq < asked.from_position.seq(epoch):
            return False
        if asked.to_position is not None and found.seq >= asked.to_position.seq(epoch):
            return False
        if asked.from_us is not None and found.time_us < asked.from_us:
            return False
        if asked.to_us is not None and not 0 <= found.time_us < asked.to_us:
            return False
        if not asked.exclude_gtids or found.transaction is None or ":" not in found.transaction:
            return True
        flavor = self.source.identity.flavor
        excluded = parse_gtid_set(asked.exclude_gtids, flavor)
        return not excluded.contains(parse_gtid_set(found.transaction, flavor))


_ORDINAL_BITS: Final = EVENT_BITS + ROW_BITS + 1
_EPOCH_SHIFT: Final = _ORDINAL_BITS + OFFSET_BITS + JOURNAL_BITS
_TOLD: Final = {
    **dict.fromkeys(TABLE_DDL, "ddl"), _K.TRUNCATE_TABLE: "truncate", _K.DML: "statement",
    _K.UNKNOWN: "statement",
}  # fmt: skip
_OF_SAVEPOINTS: Final = (_K.SAVEPOINT, _K.ROLLBACK_TO_SAVEPOINT, _K.RELEASE_SAVEPOINT)


def _is_gone(found: _Found, points: Savepoints) -> bool:
    ordinal = found.seq >> ROW_BITS + 1 & (1 << EVENT_BITS) - 1
    return found.row is not None and bool(is_undone(np.array([ordinal]), points.undone)[0])


def _no_key(table: str, expected: Sequence[str], got: Sequence[str]) -> ConfigError:
    return ConfigError(
        "this is not a key of the table",
        table=table,
        setting="key",
        expected=", ".join(expected),
        got=", ".join(got),
        next_step="give each column of the key once, with the text of its value, bytes in hex: "
        "--key COLUMN=VALUE",
    )


def _hashes(target: Target, column: str) -> bool:
    shape = target.spec.shape
    return shape is not None and shape.masks.get(column.lower(), "").startswith("hash")


# -- keys in Arrow ---------------------------------------------------------------------------------


def _are_in(columns: Sequence[Any], keys: Sequence[Key]) -> Any:
    """Which rows have one of the keys; one that the columns cannot hold is none's."""
    has_key = [pa.array(np.zeros(len(columns[0]), bool))]
    for key in keys:
        scalars = [value_of(text, column.type) for text, column in zip(key, columns, strict=True)]
        if None not in scalars:
            equal = map(pc.equal, columns, scalars)
            has_key.append(pc.fill_null(reduce(pc.and_, equal), False))
    return reduce(pc.or_, has_key)


def _touching(rows: DecodedRows, columns: Sequence[str], keys: Sequence[Key]) -> pa.Array:
    images = ([image.column(name) for name in columns] for image in (rows.before, rows.after))
    return reduce(pc.or_, (_are_in(image, keys) for image in images))


def _keys(image: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> list[Key]:
    texts = []
    for name in columns:
        values = pa.chunked_array([]) if not len(image) else image.column(name)
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        texts.append(texts_of(values))
    return list(zip(*texts, strict=True)) if texts else [()] * len(image)


def _without(image: Image | None, hidden: Collection[str]) -> dict[str, Any] | None:
    if image is None:
        return None
    return {name: value for name, value in image.items() if name not in hidden}


# -- rows of the lake ------------------------------------------------------------------------------


def _changelog(
    rows: pa.Table, names: Mapping[str, str], columns: Sequence[str]
) -> Iterator[_Found]:
    afters, after_keys = _images(rows, names, columns)
    flat = pa.table({to: pc.struct_field(rows[own.BEFORE_COLUMN], to) for to in names.values()})
    befores, before_keys = _images(flat, names, columns)
    for images, of_image in ((afters, own.ABSENT_COLUMN), (befores, own.BEFORE_ABSENT_COLUMN)):
        for image, absent in zip(images, rows[of_image].to_pylist(), strict=True):
            for name in names if absent else ():  # NULL there is no value
                if names[name] in absent:
                    del image[name]
    for at, (op, seq, time, transaction) in enumerate(
        zip(
            rows[own.OP_COLUMN].to_pylist(),
            rows[own.SEQ_COLUMN].to_pylist(),
            rows[own.TS_COLUMN].cast(pa.int64()).to_pylist(),
            rows[own.TRANSACTION_COLUMN].to_pylist(),
            strict=True,
        )
    ):
        is_row = op in ("insert", "update", "delete")
        has_before, has_after = is_row and op != "insert", is_row and op != "delete"
        yield _Found(
            op,
            int(seq) & ~1,
            transaction,
            -1 if time is None else time,
            before=befores[at] if has_before else None,
            after=afters[at] if has_after else None,
            keys=(before_keys[at] if has_before else None, after_keys[at] if has_after else None),
        )


def _history(rows: pa.Table, names: Mapping[str, str], columns: Sequence[str]) -> Iterator[_Found]:
    images, keys = _images(rows, names, columns)
    begins = [int(seq) & ~1 for seq in rows[own.START_COLUMN].to_pylist()]
    ends = rows[own.END_COLUMN].to_pylist()
    times = rows[own.TS_COLUMN].cast(pa.int64()).to_pylist()
    end_times = rows[own.END_TS_COLUMN].cast(pa.int64()).to_pylist()
    ended = {int(seq) & ~1: at for at, seq in enumerate(ends) if seq is not None}
    for at, seq in enumerate(begins):
        was = ended.get(seq)
        is_last = seq == int(rows[own.SEQ_COLUMN][at].as_py()) & ~1
        yield _Found(
            "insert" if was is None else "update",
            seq,
            None,
            times[at] if is_last and times[at] is not None else -1,
            before=None if was is None else images[was],
            after=images[at],
            keys=(None if was is None else keys[was], keys[at]),
        )
    for seq in ended.keys() - set(begins):
        was = ended[seq]
        time_us = -1 if end_times[was] is None else end_times[was]
        yield _Found("delete", seq, None, time_us, before=images[was], keys=(keys[was], None))


def _images(
    rows: pa.Table, names: Mapping[str, str], columns: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Key]]:
    renamed = rows.select([*names.values()]).rename_columns([*names]).combine_chunks()
    values = [_plain(renamed[name]) for name in names]
    images = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    return images, _keys(renamed, columns)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_struct(type_):  # a geometry
        return [
            value and (value["srid"].to_bytes(4, "little", signed=True) + value["wkb"]).hex()
            for value in column.to_pylist()
        ]
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(type_) and type_.scale == 0:
        return [None if value is None else int(value) for value in column.to_pylist()]
    elif pa.types.is_temporal(type_) or pa.types.is_decimal(type_):
        column = text_of(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([]))
    elif pa.types.is_float32(type_):
        return [None if text is None else float(text) for text in column.cast("string").to_pylist()]
    return [value.hex() if isinstance(value, bytes) else value for value in column.to_pylist()]


# -- one row's story -------------------------------------------------------------------------------


def _joined(log: Sequence[_Found], lake: Iterator[_Found]) -> list[_Found]:
    """One entry for each change, in order."""
    changes = list(log)
    at_seq: dict[int, list[_Found]] = defaultdict(list)
    elsewhere: dict[Any, list[_Found]] = defaultdict(list)
    for each in log:
        at_seq[each.seq].append(each)
        elsewhere[each.transaction, each.op, each.keys].append(each)
    for each in lake:
        target = each.known_by[0]
        same = [  # another log may have another change at the place
            one
            for one in at_seq[each.seq]
            if None in (one.transaction, each.transaction) or one.transaction == each.transaction
        ]
        if not same and each.transaction is not None:  # of a server that had it elsewhere
            others = elsewhere[each.transaction, each.op, each.keys]
            same = [one for one in others if target not in one.known_by][:1]
        if not same:  # of a history, to which a TRUNCATE is the end of a version
            truncated = (one for one in log if one.op == "truncate")
            same = [one for one in truncated if one.seq ^ each.seq < 1 << _ORDINAL_BITS]
        if not same:
            changes.append(each)
        for one in same[:1]:
            one.known_by += each.known_by
            one.before = one.before or each.before
        at_seq[each.seq].append((same or [each])[0])
    return sorted(changes, key=lambda each: each.seq)


def _lives_with(changes: Sequence[_Found], asked: Key) -> list[_Found]:
    """The changes, in order, of all rows that ever had the key, and those of no single row."""
    lives: list[list[_Found]] = []
    alive: dict[Key, list[_Found]] = {}
    for each in changes:
        old, new = each.keys
        if each.op == "truncate":
            alive.clear()
        if old is None and new is None:
            continue
        life = None if old is None else alive.pop(old, None)
        if life is None:
            lives.append(life := [])
        life.append(each)
        if new is not None:
            alive[new] = life
    followed = {
        id(each) for life in lives if any(asked in one.keys for one in life) for each in life
    }
    return [each for each in changes if each.keys == (None, None) or id(each) in followed]
