"""Complete the staged images of a batch, beside the target's own rows of the same keys (K10, K11).

Rules:
- The target's row of a key that changes precedes the batch's rows as a special event (`THERE`), so
  that one rule fills what an image lacks from the row before it, in the batch or in the target.
- Staged rows that are not newer than the target's row of their key are left out: a batch that is
  applied again adds nothing.
- A key's events fall into segments and lives as in `reduce`; the first may be the target's row.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.sink.modes.expand import ARRIVE, DELETE, INSERT, LEAVE, UPDATE
from cdc_pipeline.sink.modes.mode_columns import OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout, life_roots
from cdc_pipeline.sink.spark.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THERE: Final = 5
UPSERTS: Final = f"({INSERT}, {UPDATE}, {ARRIVE}, {THERE})"
ENDS: Final = f"({DELETE}, {LEAVE})"


def make_events(
    session: SparkSession,
    layout: Layout,
    *,
    target_table: str,
    where: str,
    extra: dict[str, str] | None = None,
) -> None:
    """Make the view ``events``: the staged columns with complete images and without presence
    columns, and the target's rows.

    Args:
        target_table: the Delta table as SQL text.
        where: predicate over the target as ``t`` that its rows of changed keys satisfy.
        extra: further columns of the target's rows, by name in the view; NULL in staged rows.
    """
    extra = extra or {}
    partial = not layout.target.all_present
    columns = ["_op", "_seq", "_ts", *layout.values]
    there = [f"CAST({THERE} AS tinyint) AS _op", f"t.{SEQ_COLUMN} AS _seq", f"t.{TS_COLUMN} AS _ts"]
    there += [
        f"t.{quoted(column.name)} AS {value}"
        for column, value in zip(layout.target.spec.columns, layout.values, strict=True)
    ]
    presence = [f"p{position}" for position in layout.others] if partial else []
    staged = [*columns, *(f"coalesce({name}, true) AS {name}" for name in presence)]
    there += [f"true AS {name}" for name in presence]
    there += [f"t.{expression} AS {name}" for name, expression in extra.items()]
    staged += [f"NULL AS {name}" for name in extra]
    keys = ", ".join(layout.keys)
    same_key = " AND ".join(
        f"t.{quoted(name)} <=> s.{key}"
        for name, key in zip(layout.target.spec.key, layout.keys, strict=True)
    )
    session.sql(f"""
        SELECT * EXCEPT (_there) FROM (
            SELECT *, max(CASE WHEN _op = {THERE} THEN _seq END) OVER (PARTITION BY {keys}) AS
                _there FROM (
                SELECT {", ".join(staged)} FROM staged
                UNION ALL
                SELECT {", ".join(there)} FROM {target_table} AS t
                LEFT SEMI JOIN (SELECT DISTINCT {keys} FROM staged) AS s ON {same_key} WHERE
                    {where}))
        WHERE _op = {THERE} OR _there IS NULL OR _seq > _there""").createOrReplaceTempView("events")
    if partial:
        _fill(session, layout, columns=[*columns, *extra])


def differs(columns: list[str], row: str, other: str) -> str:
    """With NULL equal to NULL."""
    return f"NOT ({row} <=> {other})" if columns else "false"


def operation(op: str) -> str:
    """Our name of an upsert, as SQL."""
    return f"CASE WHEN {op} = {INSERT} THEN 'insert' ELSE 'update' END"


def kept_operation(op: str) -> str:
    """As `operation`; the target's own row keeps the operation that it has."""
    return (
        f"CASE WHEN {op} = {THERE} THEN t.{OP_COLUMN} WHEN {op} = {INSERT} THEN 'insert' "
        "ELSE 'update' END"
    )


def _fill(session: SparkSession, layout: Layout, *, columns: list[str]) -> None:
    """Replace the view ``events`` by one whose images are complete."""
    window = f"(PARTITION BY {', '.join(layout.keys)} ORDER BY _seq)"
    whole = " AND ".join(f"p{position}" for position in layout.others) or "true"
    first = (
        f"_previous IS NULL OR _previous = {THERE} OR _op IN ({INSERT}, {ARRIVE}) OR "
        f"_previous IN {ENDS}"
    )
    # The target's row belongs to the segment that changes it.
    session.sql(f"""
        SELECT *,
            CASE WHEN _op = {THERE} AND _next IN ({UPDATE}, {DELETE}, {LEAVE}) THEN _next_seq
                ELSE max(CASE WHEN {first} THEN _seq END) OVER {window} END AS _seg
        FROM (SELECT *, lag(_op) OVER {window} AS _previous, lead(_op) OVER {window} AS _next,
            lead(_seq) OVER {window} AS _next_seq, {whole} AS _whole FROM events)
        """).createOrReplaceTempView("segments")
    life, join = "_seg", ""
    if layout.target.partial_key_updates:
        links = session.sql(f"""
            SELECT new._seq AS seg, old._seg AS left_seg
            FROM segments AS new JOIN segments AS old ON old._seq = CAST(new._seq - 1 AS
                decimal(38,0))
            WHERE new._op = {ARRIVE} AND NOT new._whole AND old._op = {LEAVE}""").toArrow()
        roots: Any = session.createDataFrame(life_roots(links))
        roots.createOrReplaceTempView("roots")
        life, join = "coalesce(root, _seg)", " LEFT JOIN roots ON seg = _seg"
    over = "(PARTITION BY _life ORDER BY _seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    key = set(layout.values) - {f"c{position}" for position in layout.others}
    listed = [
        name
        if name in key or not name.startswith("c")
        else (
            f"last(CASE WHEN p{name[1:]} THEN struct({name} AS v) END, true) OVER "
            f"{over}.v AS {name}"
        )
        for name in columns
    ]
    session.sql(f"""
        SELECT {", ".join(listed)} FROM (SELECT *, {life} AS _life FROM segments{join})
        """).createOrReplaceTempView("events")
