"""Reduce a changelog to the rows that its changes leave, as SQL: the last image of each key, or the
sum of all changes without a key.

Rules:
- Changes count from the last TRUNCATE on.
- With a key: the last image, unless it is a delete; an update that moves a key is a delete of the
  old one.
- Without a key each change is one row more or less (``_weight`` 1 or -1): an insert adds its row, a
  delete removes it, an update does both. Their sum is the rows of the source with their
  multiplicity.
- A row from before an ADD COLUMN counts with the value that the server gave it then
  (`lake/column_defaults.py`).
- An image that lacks a column makes a sum uncertain: such a table is not compared.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

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


def last_images(sides: Sides, view: str, frame: Any, *, of_shard: str) -> str:
    """Return a query for the last image of each key, unless it is a delete.

    Args:
        frame: the view's frame, a version of the Delta table.
        of_shard: predicate of the rows of the compared source table.
    """
    compared, since = _after(sides, frame), _since(view)
    keys = [quoted(name) for name in sides.key]
    moved = " AND ".join(f"{BEFORE_COLUMN}.{key} <=> {key}" for key in keys)
    nulls = ", ".join(
        f"{BEFORE_COLUMN}.{quoted(sides.target.spec.columns[at].name)}"
        if at in sides.key_positions
        else "NULL"
        for at in sides.positions
    )
    rank = f"PARTITION BY {', '.join(f'c{at}' for at in sides.key_positions)} ORDER BY _seq DESC"
    values = ", ".join(f"c{at}" for at in sides.positions)
    return f"""
        SELECT {values}, _seq, _absent FROM (SELECT *, row_number() OVER ({rank}) AS _rank FROM (
            SELECT {compared}, {SEQ_COLUMN} AS _seq, {ABSENT_COLUMN} AS _absent, {OP_COLUMN} =
                'delete' AS _gone
            FROM {view}
            WHERE {OP_COLUMN} <> 'truncate' AND {SEQ_COLUMN} > {since} AND {of_shard}
            UNION ALL
            SELECT {nulls}, CAST({SEQ_COLUMN} - 1 AS {SEQ_TYPE}), NULL, true FROM {view}
            WHERE {OP_COLUMN} = 'update' AND {SEQ_COLUMN} > {since} AND NOT ({moved}) AND
                {of_shard}))
        WHERE _rank = 1 AND NOT _gone"""


def sum_of_changes(
    session: SparkSession, sides: Sides, view: str, frame: Any, *, of_shard: str
) -> str:
    """Return a query for all rows that changes add or remove, with ``_weight``.

    Raises:
        UntoldChangesError: images lack columns that are compared.
    """
    counted = f"{OP_COLUMN} <> 'truncate' AND {SEQ_COLUMN} > {_since(view)} AND {of_shard}"
    names = ", ".join(text_literal(sides.target.spec.columns[at].name) for at in sides.positions)
    lacking = " OR ".join(
        f"coalesce(arrays_overlap({absent}, array({names})), false)"
        for absent in (ABSENT_COLUMN, f"IF({OP_COLUMN} = 'update', {BEFORE_ABSENT_COLUMN}, NULL)")
    )
    untold = session.sql(f"SELECT count(*) FROM {view} WHERE {counted} AND ({lacking})").collect()[
        0
    ][0]
    if untold:
        raise UntoldChangesError(
            f"{untold:,} changes of a table without a key have images that lack columns: "
            "their sum is unknown",
            table=sides.target.table,
            setting="binlog_row_image",
            expected="complete images (FULL)",
            next_step="SET GLOBAL binlog_row_image = 'FULL', then take a new snapshot of the "
            "table, which starts "
            "its changes again",
        )
    change = f"{SEQ_COLUMN} AS _seq, CAST(NULL AS array<string>) AS _absent"
    weight = f"IF({OP_COLUMN} = 'delete', -1, 1)"
    return f"""
        SELECT {_after(sides, frame)}, {change}, {weight} AS _weight FROM {view} WHERE {counted}
        UNION ALL
        SELECT {_before(sides, frame)}, {change}, -1 FROM {view} WHERE {counted} AND {OP_COLUMN} =
            'update'"""


def _since(view: str) -> str:
    return f"coalesce((SELECT max({SEQ_COLUMN}) FROM {view} WHERE {OP_COLUMN} = 'truncate'), -1)"


def _after(sides: Sides, frame: Any) -> str:
    return _compared_columns(sides, "", frame.columns)


def _before(sides: Sides, frame: Any) -> str:
    return _compared_columns(
        sides, f"{BEFORE_COLUMN}.", frame.schema[BEFORE_COLUMN].dataType.fieldNames()
    )


def _compared_columns(sides: Sides, within: str, there: list[str]) -> str:
    """Return the compared columns of an image."""
    defaults = {one.column: one for one in sides.given}
    made = []
    for at in sides.positions:
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
