"""Reduce a changelog to the rows that its changes leave, as SQL: the last image of each key, or the
sum of all changes without a key.

Rules:
- Changes count from the last TRUNCATE on.
- With a key: the last image, unless it is a delete; an update that moves a key is a delete of the
  old one.
- Without a key each change is one row more or less (``_weight`` 1 or -1): an insert adds its row, a
  delete removes it, an update does both. Their sum is the rows of the source with their
  multiplicity.
- Where a DDL changed the key, the rows that the changes before it leave by their key are the first
  rows of what follows (`lake/earlier_layouts.py`).
- A row from before an ADD COLUMN counts with the value that the server gave it then
  (`lake/column_defaults.py`).
- An image that lacks a column makes a sum uncertain, and so does one that lacks a column of a later
  key: such a table is not compared.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import CdcError
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    OP_COLUMN,
    SEQ_COLUMN,
    SEQ_TYPE,
)
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.sink.verify.sides import Sides


class UntoldChangesError(CdcError):
    """The changes of a changelog do not determine the rows that they leave."""


@dataclass(frozen=True)
class _Part:
    """The changes, chosen by `condition`, between two DDL that changed the key; `key` has
    positions.
    """

    condition: str
    key: tuple[int, ...]


def rows_left(session: SparkSession, sides: Sides, view: str, frame: Any, *, of_shard: str) -> str:
    """The rows that all changes leave: ``c0 ...``, ``_seq``, ``_absent`` and ``_weight``, which
    is other than 1 only without a key. `of_shard` is a predicate of the source table's rows.

    Raises UntoldChangesError: images lack columns that are needed.
    """
    rows = ""
    parts = _parts(sides, f"{OP_COLUMN} <> 'truncate' AND {SEQ_COLUMN} > {_since(view)} AND "
                   f"{of_shard}")  # fmt: skip
    images = _Images(session, sides, view, frame, parts)
    for number, part in enumerate(parts):
        if not part.key:
            rows = images.sum(part, rows)
        elif number and not parts[number - 1].key:
            rows = images.last(part, _counted(sides, images.positions, rows))
        else:
            rows = images.last(part, rows)
    listed = ", ".join(f"c{at}" for at in sides.positions)
    return f"SELECT {listed}, _seq, _absent, _weight FROM ({rows})"


def _parts(sides: Sides, condition: str) -> list[_Part]:
    """The parts of the changes that a key each holds for, oldest first."""
    positions = {column.name: at for at, column in enumerate(sides.target.spec.columns)}
    parts, since = [], "true"
    for layout in sides.layouts:
        if sides.source_table not in layout.keys:
            continue
        key = layout.keys[sides.source_table]
        if any(name not in positions for name in key):
            raise UntoldChangesError(
                "rows from before a change of the primary key were identified by "
                f"({', '.join(key)}), which is no longer in the table",
                table=sides.target.table,
                next_step="take a new snapshot of the table, which starts its changes again",
            )
        shard = (sides.shard[0],) if sides.shard is not None and key else ()
        before = f"{SEQ_COLUMN} < {seq_literal(int(layout.seq))}"
        parts.append(
            _Part(
                f"{condition} AND {since} AND {before}",
                tuple(positions[name] for name in (*key, *shard)),
            )
        )
        since = f"NOT ({before})"
    key_now = tuple(sides.key_positions) if sides.key else ()
    return [*parts, _Part(f"{condition} AND {since}", key_now)]


class _Images:
    def __init__(
        self,
        session: SparkSession,
        sides: Sides,
        view: str,
        frame: Any,
        parts: Sequence[_Part],
    ) -> None:
        keys = {at for part in parts for at in part.key}
        self.positions = sorted({*sides.positions, *keys})
        self._session = session
        self._sides = sides
        self._view = view
        self._after = _image(sides, self.positions, "", frame.columns)
        there = frame.schema[BEFORE_COLUMN].dataType.fieldNames()
        self._before = _image(sides, self.positions, f"{BEFORE_COLUMN}.", there)
        self._absent = _absent_now(sides, ABSENT_COLUMN)
        self._before_absent = _absent_now(sides, BEFORE_ABSENT_COLUMN)

    def last(self, part: _Part, earlier: str) -> str:
        """The last image of each key, of some rows and the changes after them."""
        self._check_key(part, earlier)
        names = [quoted(self._name(at)) for at in part.key]
        moved = " AND ".join(f"{BEFORE_COLUMN}.{key} <=> {key}" for key in names)
        nulls = ", ".join(
            f"{BEFORE_COLUMN}.{quoted(self._name(at))} AS c{at}" if at in part.key else "NULL"
            for at in self.positions
        )
        values = ", ".join(f"c{at}" for at in self.positions)
        rank = f"PARTITION BY {', '.join(f'c{at}' for at in part.key)} ORDER BY _seq DESC"
        before = f"UNION ALL SELECT {values}, _seq, _absent, false FROM ({earlier})"
        return f"""
            SELECT {values}, _seq, _absent, 1 AS _weight FROM (
                SELECT *, row_number() OVER ({rank}) AS _rank FROM (
                    SELECT {self._after}, {SEQ_COLUMN} AS _seq, {self._absent} AS _absent,
                        {OP_COLUMN} = 'delete' AS _gone
                    FROM {self._view} WHERE {part.condition}
                    UNION ALL
                    SELECT {nulls}, CAST({SEQ_COLUMN} - 1 AS {SEQ_TYPE}), NULL, true
                    FROM {self._view}
                    WHERE {OP_COLUMN} = 'update' AND NOT ({moved}) AND {part.condition}
                    {before if earlier else ""}))
            WHERE _rank = 1 AND NOT _gone"""

    def sum(self, part: _Part, earlier: str) -> str:
        """Some rows and all rows that the changes after them add or remove."""
        lacking = " OR ".join(
            self._lacks(absent, self.positions)
            for absent in (self._absent, f"IF({OP_COLUMN} = 'update', {self._before_absent}, NULL)")
        )
        untold = self._count(f"{self._view} WHERE {part.condition} AND ({lacking})")
        if earlier:
            untold += self._count(f"({earlier}) WHERE {self._lacks('_absent', self.positions)}")
        if untold:
            raise _untold(
                self._sides,
                f"{untold:,} changes of a table without a key have images that lack columns: "
                "their sum is unknown",
            )
        change = f"{SEQ_COLUMN} AS _seq, CAST(NULL AS array<string>) AS _absent"
        weight = f"IF({OP_COLUMN} = 'delete', -1, 1)"
        values = ", ".join(f"c{at}" for at in self.positions)
        before = f"UNION ALL SELECT {values}, _seq, _absent, _weight FROM ({earlier})"
        return f"""
            SELECT {self._after}, {change}, {weight} AS _weight FROM {self._view}
            WHERE {part.condition}
            UNION ALL
            SELECT {self._before}, {change}, -1 FROM {self._view}
            WHERE {part.condition} AND {OP_COLUMN} = 'update'
            {before if earlier else ""}"""

    def _check_key(self, part: _Part, earlier: str) -> None:
        """Rows from before a change of the key must have the new key's columns."""
        if not earlier:
            return
        untold = self._count(f"({earlier}) WHERE {self._lacks('_absent', part.key)}")
        if untold:
            raise _untold(
                self._sides,
                f"{untold:,} rows from before a change of the primary key have images that lack "
                "columns of the new key",
            )

    def _lacks(self, absent: str, positions: Sequence[int]) -> str:
        """A predicate: an image lacks one of some columns."""
        names = ", ".join(text_literal(self._name(at)) for at in positions)
        return f"coalesce(arrays_overlap({absent}, array({names})), false)"

    def _count(self, rows: str) -> int:
        return int(self._session.sql(f"SELECT count(*) FROM {rows}").collect()[0][0])

    def _name(self, at: int) -> str:
        return self._sides.target.spec.columns[at].name


def _counted(sides: Sides, positions: list[int], changes: str) -> str:
    """The rows that a sum of changes adds up to, where each is there once: a key follows."""
    same = ", ".join(sides.exact(f"c{at}", at) for at in positions)
    values = ", ".join(f"any_value(c{at}) AS c{at}" for at in positions)
    return (
        f"SELECT {values}, max(_seq) AS _seq, CAST(NULL AS array<string>) AS _absent, 1 AS _weight "
        f"FROM ({changes}) GROUP BY {same} HAVING sum(_weight) > 0"
    )


def _untold(sides: Sides, what: str) -> UntoldChangesError:
    return UntoldChangesError(
        what,
        table=sides.target.table,
        setting="binlog_row_image",
        expected="complete images (FULL)",
        next_step="SET GLOBAL binlog_row_image = 'FULL', then take a new snapshot of the table, "
        "which starts its changes again",
    )


def _since(view: str) -> str:
    return f"coalesce((SELECT max({SEQ_COLUMN}) FROM {view} WHERE {OP_COLUMN} = 'truncate'), -1)"


def _absent_now(sides: Sides, absent: str) -> str:
    """The present names of the columns that an image lacks."""
    for layout in sides.layouts:
        if layout.names:
            cases = " ".join(
                f"WHEN {text_literal(name)} THEN CAST(array({', '.join(map(text_literal, after))}) "
                "AS array<string>)"
                for name, after in layout.names.items()
            )
            renamed = f"flatten(transform({absent}, x -> CASE x {cases} ELSE array(x) END))"
            earlier = f"{SEQ_COLUMN} < {seq_literal(int(layout.seq))}"
            absent = f"IF({earlier}, {renamed}, {absent})"
    return absent


def _image(sides: Sides, positions: list[int], within: str, there: list[str]) -> str:
    defaults = {one.column: one for one in sides.column_defaults}
    made = []
    for at in positions:
        column = sides.target.spec.columns[at]
        # One of our columns that no batch has needed yet.
        value = (
            f"{within}{quoted(column.name)}"
            if column.name in there
            else f"CAST(NULL AS {column.delta_type})"
        )
        if column.name in defaults:
            one = defaults[column.name]
            earlier = f"{SEQ_COLUMN} < {seq_literal(int(one.seq))}"
            value = (
                f"IF({earlier} AND {value} IS NULL, CAST({one.value} AS {one.delta_type}), {value})"
            )
        made.append(f"{value} AS c{at}")
    return ", ".join(made)
