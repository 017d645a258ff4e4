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
  or an ended version. In a changelog the rows count that its changes leave
  (`sink/verify/changes.py`).
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import ColumnDefault, EarlierLayout, RecordedTarget
from cdc_pipeline.sink.modes.expand import INSERT
from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import RESCUED_COLUMN, exact
from cdc_pipeline.sink.modes.shape import shaped_view
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
from cdc_pipeline.sink.spark.sql import quoted, text_literal
from cdc_pipeline.sink.verify.changes import rows_left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of the second checksum, which is independent of the first.
_SALT: Final = 7_046_029_254_386_353_087


@dataclass(frozen=True)
class Sides:
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
    session: SparkSession, sides: Sides, source_files: Sequence[Path], *, buckets: int
) -> None:
    if sides.source_version is None:
        source = _from_files(session, sides, source_files)
    else:
        source = _from_table(session, sides, sides.source_version, "source_rows")
    lake = _from_table(session, sides, sides.version, "lake_rows")
    for name, rows in (("side_source", source), ("side_lake", lake)):
        session.sql(_side(sides, rows, buckets)).createOrReplaceTempView(name)


def _from_files(session: SparkSession, sides: Sides, files: Sequence[Path]) -> str:
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


def _from_table(session: SparkSession, sides: Sides, version: int, view: str) -> str:
    with old_commits_readable(session):
        frame = table_frame(session, sides.path, version=version)
    frame.createOrReplaceTempView(view)
    of_shard = _of_shard(sides)
    if MODES[sides.target.spec.mode].rows_are_changes:
        return rows_left(session, sides, view, frame, of_shard=of_shard)
    return _live(sides, view, frame.columns, of_shard)


def checksums(sides: Sides) -> tuple[str, str]:
    """Two independent hashes of a side's row: 64 bits each, summed without a wrap. NULL has a
    special mark, since Spark's hash skips it.
    """
    of = [*sides.keys, *(f"v{at}" for at in sides.value_positions)]
    values = ", ".join(f"{name} IS NULL, {name}" for name in of)
    return f"xxhash64({values})", f"xxhash64({_SALT}L, {values})"


def _side(sides: Sides, rows: str, buckets: int) -> str:
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


def _named(sides: Sides, there: Sequence[str]) -> list[str]:
    """`_cdc_rescued` is NULL if no batch has needed it yet."""
    found = []
    for at in sides.positions:
        column = sides.target.spec.columns[at]
        lacks = column.name == RESCUED_COLUMN and column.name not in there
        value = f"CAST(NULL AS {column.delta_type})" if lacks else quoted(column.name)
        found.append(f"{value} AS c{at}")
    return found


def _of_shard(sides: Sides) -> str:
    return (
        f"{quoted(sides.shard[0])} = {text_literal(sides.shard[1])}"
        if sides.shard is not None
        else "true"
    )


def _live(sides: Sides, view: str, there: Sequence[str], of_shard: str) -> str:
    live = SINK_MODES[sides.target.spec.mode].live_rows or "true"
    listed = ", ".join(
        [*_named(sides, there), f"{SEQ_COLUMN} AS _seq", "CAST(NULL AS array<string>) AS _absent"]
    )
    return f"SELECT {listed}, 1 AS _weight FROM {view} WHERE {live} AND {of_shard}"
