"""The two sides of a comparison as SQL: rows of the source from a scratch folder, and rows of the
lake that represent it.

A side has the columns ``k0 ...`` (what identifies a row), ``c0 ...`` (values as the target has
them, by the column's position in the target), ``v0 ...`` (the same in the form that is compared),
``_seq`` and ``_absent`` (NULL at the source), ``_weight`` (rows that it represents: -1 if a change
removes one) and ``_bucket``; both are one view, with ``_in_source``.

Rules:
- Both sides pass the same types and expressions: the statements that a batch uses apply the rule's
  filters and computed columns to the source's rows (`sink/modes/shape.py`).
- Only columns that the source has are compared. Columns that it has dropped and the target keeps
  are left out.
- Equal means the same bits (-0.0 is not 0.0); NULL equals NULL.
- A row of the lake counts if it represents a present row of the source, not if it is soft-deleted
  or an ended version. In a changelog the rows count that its changes leave.
- Changes count from the last TRUNCATE on.
- With a key: the last image, unless it is a delete; an update that moves a key is a delete of the
  old one.
- Without a key each change is one row more or less (``_weight`` 1 or -1): an insert adds its row, a
  delete removes it, an update does both. Their sum is the rows of the source with their
  multiplicity.
- Where a DDL changed the key, the rows that the changes before it leave by their key are the first
  rows of what follows (`lake/earlier_layouts.py`).
- A row from before an ADD COLUMN counts with the value that the server gave it then
  (`lake/earlier_layouts.py`).
- An image that lacks a column makes a sum uncertain, and so does one that lacks a column of a later
  key: such a table is not compared.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import ColumnDefault, EarlierLayout, RecordedTarget
from cdc_pipeline.sink.modes.expand import INSERT
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    OP_COLUMN,
    RESCUED_COLUMN,
    SEQ_COLUMN,
    SEQ_TYPE,
)
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import exact
from cdc_pipeline.sink.modes.shape import shaped_view
from cdc_pipeline.sink.read.read import old_frame
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of the second checksum, which is independent of the first.
_SALT: Final = 7_046_029_254_386_353_087


@dataclass(frozen=True)
class ComparisonSql:
    """What is compared.

    Attributes:
        target: as its staged rows are read: with `_cdc_rescued` among its columns, if it has one.
        columns: names of the target's columns that the source has.
        key: names among them that identify a row; () for all of them, with multiplicity.
        source_version: an earlier version of the Delta table that takes the source's place.
        shard: column and value of the rows of the lake that belong to this source table; None for
            all.
        column_defaults: for a changelog, the values at the source of rows older than a column.
        layouts: for a changelog, what earlier rows were written with, oldest first.
        source_table: the compared table, by which `layouts` names keys.
    """

    target: RecordedTarget
    columns: tuple[str, ...]
    key: tuple[str, ...]
    path: Path
    version: int
    shard: tuple[str, str] | None = None
    source_version: int | None = None
    column_defaults: tuple[ColumnDefault, ...] = ()
    layouts: tuple[EarlierLayout, ...] = ()
    source_table: str = ""

    @property
    def is_sum(self) -> bool:
        """Whether the lake's side is a sum of changes: its rows have weights."""
        return MODES[self.target.spec.mode].rows_are_changes and not self.key

    @property
    def positions(self) -> list[int]:
        named = set(self.columns)
        return [at for at, column in enumerate(self.target.spec.columns) if column.name in named]

    @property
    def key_positions(self) -> list[int]:
        names = [column.name for column in self.target.spec.columns]
        return [names.index(name) for name in self.key] if self.key else self.positions

    @property
    def value_positions(self) -> list[int]:
        key = set(self.key_positions)
        return [at for at in self.positions if at not in key]

    @property
    def keys(self) -> list[str]:
        return [f"k{number}" for number in range(len(self.key_positions))]

    def type_of(self, position: int) -> str:
        return self.target.spec.columns[position].delta_type

    def exact(self, column: str, position: int) -> str:
        return exact(column, self.type_of(position))


def make_sides(
    session: SparkSession, sides: ComparisonSql, source_files: Sequence[Path], *, buckets: int
) -> None:
    if sides.source_version is None:
        source = _from_files(session, sides, source_files)
    else:
        source = _from_table(session, sides, sides.source_version, "source_rows")
    lake = _from_table(session, sides, sides.version, "lake_rows")
    session.sql(
        f"SELECT *, true AS _in_source FROM ({_side(sides, source, buckets)}) UNION ALL "
        f"SELECT *, false AS _in_source FROM ({_side(sides, lake, buckets)})"
    ).createOrReplaceTempView("sides")


def _from_files(session: SparkSession, sides: ComparisonSql, files: Sequence[Path]) -> str:
    plain = sides.target.with_spec(mode="mirror").model_copy(update={"all_present": True})
    schema = Layout(plain).read_schema()
    if files:
        frame: Any = session.read.schema(schema).parquet(*[str(file) for file in files])
    else:
        nothing: Any = []
        frame = session.createDataFrame(nothing, schema)
    shaped_view(session, plain, frame, "staged_source")
    values = ", ".join(f"c{at}" for at in sides.positions)
    return (
        f"SELECT {values}, CAST(NULL AS decimal(38,0)) AS _seq, CAST(NULL AS array<string>) AS "
        f"_absent, 1 AS _weight FROM staged_source WHERE _op = {INSERT}"
    )


def _from_table(session: SparkSession, sides: ComparisonSql, version: int, view: str) -> str:
    frame = old_frame(session, sides.path, version)
    frame.createOrReplaceTempView(view)
    of_shard = _of_shard(sides)
    if MODES[sides.target.spec.mode].rows_are_changes:
        return rows_left(session, sides, view, frame, of_shard=of_shard)
    return _live(sides, view, frame.columns, of_shard)


def checksums(sides: ComparisonSql) -> tuple[str, str]:
    """Two independent hashes of a side's row: 64 bits each, summed without a wrap. NULL has a
    special mark, since Spark's hash skips it.
    """
    of = [*sides.keys, *(f"v{at}" for at in sides.value_positions)]
    values = ", ".join(f"{name} IS NULL, {name}" for name in of)
    return f"xxhash64({values})", f"xxhash64({_SALT}L, {values})"


def _side(sides: ComparisonSql, rows: str, buckets: int) -> str:
    keys = [
        f"{sides.exact(f'c{at}', at)} AS {key}"
        for key, at in zip(sides.keys, sides.key_positions, strict=True)
    ]
    values = [f"{sides.exact(f'c{at}', at)} AS v{at}" for at in sides.value_positions]
    marked = ", ".join(f"{key} IS NULL, {key}" for key in sides.keys)
    return (
        f"SELECT *, CAST(pmod(xxhash64({marked}), {buckets}) AS int) AS _bucket "
        f"FROM (SELECT *, {', '.join([*keys, *values])} FROM ({rows}))"
    )


def _named(sides: ComparisonSql, there: Sequence[str]) -> list[str]:
    """`_cdc_rescued` is NULL if no batch has needed it yet."""
    columns = []
    for at in sides.positions:
        column = sides.target.spec.columns[at]
        lacks = column.name == RESCUED_COLUMN and column.name not in there
        value = f"CAST(NULL AS {column.delta_type})" if lacks else quoted(column.name)
        columns.append(f"{value} AS c{at}")
    return columns


def _of_shard(sides: ComparisonSql) -> str:
    return (
        f"{quoted(sides.shard[0])} = {text_literal(sides.shard[1])}"
        if sides.shard is not None
        else "true"
    )


def _live(sides: ComparisonSql, view: str, there: Sequence[str], of_shard: str) -> str:
    live = SINK_MODES[sides.target.spec.mode].live_rows or "true"
    listed = ", ".join(
        [*_named(sides, there), f"{SEQ_COLUMN} AS _seq", "CAST(NULL AS array<string>) AS _absent"]
    )
    return f"SELECT {listed}, 1 AS _weight FROM {view} WHERE {live} AND {of_shard}"


class IncompleteChangelogError(CdcError):
    """The changes of a changelog do not determine the rows that they leave."""


@dataclass(frozen=True)
class _Part:
    """Changes between two DDL that changed the key, which is in positions."""

    condition: str
    key: tuple[int, ...]


def rows_left(
    session: SparkSession, sides: ComparisonSql, view: str, frame: Any, *, of_shard: str
) -> str:
    """The rows that all changes leave: ``c0 ...``, ``_seq``, ``_absent`` and ``_weight``, which is
    other than 1 only without a key. `of_shard` is a predicate of the source table's rows. Raises
    IncompleteChangelogError: images lack columns that are needed.
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


def _parts(sides: ComparisonSql, condition: str) -> list[_Part]:
    """The parts of the changes that a key each holds for, oldest first."""
    positions = {column.name: at for at, column in enumerate(sides.target.spec.columns)}
    parts, since = [], "true"
    for layout in sides.layouts:
        if sides.source_table not in layout.keys:
            continue
        key = layout.keys[sides.source_table]
        if any(name not in positions for name in key):
            raise IncompleteChangelogError(
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
        sides: ComparisonSql,
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


def _counted(sides: ComparisonSql, positions: list[int], changes: str) -> str:
    """The rows that a sum of changes adds up to, where each is there once: a key follows."""
    same = ", ".join(sides.exact(f"c{at}", at) for at in positions)
    values = ", ".join(f"any_value(c{at}) AS c{at}" for at in positions)
    return (
        f"SELECT {values}, max(_seq) AS _seq, CAST(NULL AS array<string>) AS _absent, 1 AS _weight "
        f"FROM ({changes}) GROUP BY {same} HAVING sum(_weight) > 0"
    )


def _untold(sides: ComparisonSql, what: str) -> IncompleteChangelogError:
    return IncompleteChangelogError(
        what,
        table=sides.target.table,
        setting="binlog_row_image",
        expected="complete images (FULL)",
        next_step="SET GLOBAL binlog_row_image = 'FULL', then take a new snapshot of the table, "
        "which starts its changes again",
    )


def _since(view: str) -> str:
    return f"coalesce((SELECT max({SEQ_COLUMN}) FROM {view} WHERE {OP_COLUMN} = 'truncate'), -1)"


def _absent_now(sides: ComparisonSql, absent: str) -> str:
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


def _image(sides: ComparisonSql, positions: list[int], within: str, there: list[str]) -> str:
    defaults = {default.column: default for default in sides.column_defaults}
    fields = []
    for at in positions:
        column = sides.target.spec.columns[at]
        # One of our columns that no batch has needed yet.
        value = (
            f"{within}{quoted(column.name)}"
            if column.name in there
            else f"CAST(NULL AS {column.delta_type})"
        )
        if column.name in defaults:
            default = defaults[column.name]
            earlier = f"{SEQ_COLUMN} < {seq_literal(int(default.seq))}"
            old_value = f"CAST({default.value} AS {default.delta_type})"
            value = f"IF({earlier} AND {value} IS NULL, {old_value}, {value})"
        fields.append(f"{value} AS c{at}")
    return ", ".join(fields)
