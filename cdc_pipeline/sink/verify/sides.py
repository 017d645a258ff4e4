"""The two sides of a comparison as SQL: rows of the source from a scratch folder, and rows of the
lake that represent it.

A side has the columns ``k0 ...`` (what identifies a row), ``c0 ...`` (values as the target has
them, by the column's position in the target), ``v0 ...`` (the same in the form that is compared),
``_seq`` and ``_absent`` (NULL at the source), ``_weight`` (rows that it represents: -1 if a change
removes one) and ``_bucket``.

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
- Changes from before a DDL that renamed, dropped or filled columns, or changed the key, have
  another layout (`CutTable.layout_seq`). Then only keys that changed since are compared; a table
  without a key is not.
- An image that lacks a column makes a sum uncertain: such a table is not compared.
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
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.expand import INSERT
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    OP_COLUMN,
    SEQ_COLUMN,
    SEQ_TYPE,
)
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import RESCUED_COLUMN, exact
from cdc_pipeline.sink.modes.shape import shaped_view
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
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
        since: for a changelog, the seq from which on its rows have the present layout; 0 for all.
    """

    target: RecordedTarget
    columns: tuple[str, ...]
    key: tuple[str, ...]
    path: Path
    version: int
    shard: tuple[str, str] | None = None
    source_version: int | None = None
    since: int = 0

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
    for name, rows in (("side_source", source), ("side_lake", lake)):
        session.sql(_side(sides, rows, buckets)).createOrReplaceTempView(name)
    if sides.since:
        images = _images(sides, "lake_rows", session.table("lake_rows"))
        keys = ", ".join(_exact_keys(sides))
        same = " AND ".join(f"s.{key} <=> o.{key}" for key in sides.keys)
        session.sql(
            f"SELECT s.* FROM side_source AS s LEFT SEMI JOIN (SELECT {keys} FROM ({images})) AS o "
            f"ON {same}"
        ).createOrReplaceTempView("side_source")


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
    with old_commits_readable(session):
        frame = table_frame(session, sides.path, version=version)
    frame.createOrReplaceTempView(view)
    if MODES[sides.target.spec.mode].rows_are_changes:
        return _rows_left(session, sides, view, frame)
    return _live(sides, view, frame.columns)


def checksums(sides: ComparisonSql) -> tuple[str, str]:
    """Two independent hashes of a side's row: 64 bits each, summed without a wrap. NULL has a
    special mark, since Spark's hash skips it.
    """
    of = [*sides.keys, *(f"v{at}" for at in sides.value_positions)]
    values = ", ".join(f"{name} IS NULL, {name}" for name in of)
    return f"xxhash64({values})", f"xxhash64({_SALT}L, {values})"


def _side(sides: ComparisonSql, rows: str, buckets: int) -> str:
    keys = _exact_keys(sides)
    values = [f"{sides.exact(f'c{at}', at)} AS v{at}" for at in sides.value_positions]
    marked = ", ".join(f"{key} IS NULL, {key}" for key in sides.keys)
    return (
        f"SELECT *, CAST(pmod(xxhash64({marked}), {buckets}) AS int) AS _bucket "
        f"FROM (SELECT *, {', '.join([*keys, *values])} FROM ({rows}))"
    )


def _exact_keys(sides: ComparisonSql) -> list[str]:
    return [
        f"{sides.exact(f'c{at}', at)} AS {key}"
        for key, at in zip(sides.keys, sides.key_positions, strict=True)
    ]


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


def _live(sides: ComparisonSql, view: str, there: Sequence[str]) -> str:
    live = SINK_MODES[sides.target.spec.mode].live_rows or "true"
    listed = ", ".join(
        [*_named(sides, there), f"{SEQ_COLUMN} AS _seq", "CAST(NULL AS array<string>) AS _absent"]
    )
    return f"SELECT {listed}, 1 AS _weight FROM {view} WHERE {live} AND {_of_shard(sides)}"


class IncompleteChangelogError(CdcError):
    """The changes of a changelog do not determine the rows that they leave."""


def _rows_left(session: SparkSession, sides: ComparisonSql, view: str, frame: Any) -> str:
    """The rows that the changes leave: ``c0 ...``, ``_seq``, ``_absent`` and ``_weight``, which is
    other than 1 only without a key. Raises IncompleteChangelogError.
    """
    values = ", ".join(f"c{at}" for at in sides.positions)
    if sides.key:
        rank = ", ".join(f"c{at}" for at in sides.key_positions)
        return f"""
            SELECT {values}, _seq, _absent, 1 AS _weight FROM (
                SELECT *, row_number() OVER (PARTITION BY {rank} ORDER BY _seq DESC) AS _rank
                FROM ({_images(sides, view, frame)}))
            WHERE _rank = 1 AND NOT _gone"""
    if sides.since:
        raise IncompleteChangelogError(
            "its columns have changed, and without a key its rows are the sum of all changes",
            table=sides.target.table,
            next_step="take a new snapshot of the table, which starts its changes again",
        )
    changes = _changes(sides, view)
    names = ", ".join(text_literal(sides.target.spec.columns[at].name) for at in sides.positions)
    lacking = " OR ".join(
        f"coalesce(arrays_overlap({absent}, array({names})), false)"
        for absent in (
            ABSENT_COLUMN,
            f"IF({OP_COLUMN} = 'update', {BEFORE_ABSENT_COLUMN}, NULL)",
        )
    )
    untold = session.sql(f"SELECT count(*) FROM {view} WHERE {changes} AND ({lacking})").collect()
    if untold[0][0]:
        raise IncompleteChangelogError(
            f"{untold[0][0]:,} changes of a table without a key have images that lack columns: "
            "their sum is unknown",
            table=sides.target.table,
            setting="binlog_row_image",
            expected="complete images (FULL)",
            next_step="SET GLOBAL binlog_row_image = 'FULL', then take a new snapshot of the "
            "table, which starts its changes again",
        )
    fields_before = frame.schema[BEFORE_COLUMN].dataType.fieldNames()
    before = _image(sides, f"{BEFORE_COLUMN}.", fields_before)
    change = f"{SEQ_COLUMN} AS _seq, CAST(NULL AS array<string>) AS _absent"
    return f"""
        SELECT {_image(sides, "", frame.columns)}, {change},
            IF({OP_COLUMN} = 'delete', -1, 1) AS _weight
        FROM {view} WHERE {changes}
        UNION ALL
        SELECT {before}, {change}, -1
        FROM {view} WHERE {changes} AND {OP_COLUMN} = 'update'"""


def _changes(sides: ComparisonSql, view: str) -> str:
    """A predicate: changes of the source table that count."""
    truncated = (
        f"coalesce((SELECT max({SEQ_COLUMN}) FROM {view} WHERE {OP_COLUMN} = 'truncate'), -1)"
    )
    return (
        f"{OP_COLUMN} <> 'truncate' AND {SEQ_COLUMN} > {truncated} AND "
        f"{SEQ_COLUMN} >= {seq_literal(sides.since)} AND {_of_shard(sides)}"
    )


def _images(sides: ComparisonSql, view: str, frame: Any) -> str:
    """All images by key: ``c0 ...``, ``_seq``, ``_absent``, and ``_gone`` of a row that has left
    its key.
    """
    changes = _changes(sides, view)
    names = {at: quoted(sides.target.spec.columns[at].name) for at in sides.key_positions}
    moved = " AND ".join(f"{BEFORE_COLUMN}.{key} <=> {key}" for key in names.values())
    nulls = ", ".join(
        f"{BEFORE_COLUMN}.{names[at]} AS c{at}" if at in names else "NULL" for at in sides.positions
    )
    return f"""
        SELECT {_image(sides, "", frame.columns)}, {SEQ_COLUMN} AS _seq, {ABSENT_COLUMN} AS _absent,
            {OP_COLUMN} = 'delete' AS _gone
        FROM {view} WHERE {changes}
        UNION ALL
        SELECT {nulls}, CAST({SEQ_COLUMN} - 1 AS {SEQ_TYPE}), NULL, true
        FROM {view} WHERE {OP_COLUMN} = 'update' AND NOT ({moved}) AND {changes}"""


def _image(sides: ComparisonSql, within: str, there: Sequence[str]) -> str:
    """One of our columns that no batch has needed yet is NULL."""
    columns = sides.target.spec.columns
    return ", ".join(
        f"{within}{quoted(columns[at].name)} AS c{at}"
        if columns[at].name in there
        else f"CAST(NULL AS {columns[at].delta_type}) AS c{at}"
        for at in sides.positions
    )
