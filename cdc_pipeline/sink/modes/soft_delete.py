"""A mirror that keeps what is gone: a deleted row stays, with its last values and ``_cdc_deleted`` = true (K10, K11).

Rules:
- A delete marks the row: ``_cdc_op`` is ``delete``, ``_cdc_seq`` and ``_cdc_ts`` are those of the delete. An insert of
  the same key makes it a living row again. A key update is a delete of the old key and an insert of the new one.
- A row whose key the target does not know is there afterwards, deleted, with the values that the log tells: what the
  table holds does not depend on where batches end.
"""

# ruff: noqa: S608 - names and literals in the SQL are quoted by `sql`; there is no other way to build statements

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.expand import DELETE, LEAVE
from cdc_pipeline.sink.modes.mode_columns import DELETED_COLUMN, OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.modes.reduce import Layout, last_per_key, reduced_sql
from cdc_pipeline.sink.modes.versions import THERE, make_events, operation
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def merge_sql(session: SparkSession, path: Path, target: RecordedTarget, *, equals: str, within: str) -> str:
    """The MERGE of the view ``staged`` into the target; makes further views in `session`.

    Args:
        equals: the operator that compares keys.
        within: predicate over the target as ``t`` that all rows of changed keys satisfy.
    """
    layout = Layout(target)
    if target.all_present:
        reduced = reduced_sql(session, target, target_table=table_at(path))
    else:
        make_events(session, layout, target_table=table_at(path), where=within)
        reduced = f"SELECT * FROM ({last_per_key('events', layout)}) WHERE _op <> {THERE}"
    session.sql(reduced).createOrReplaceTempView("reduced")
    gone = f"s._op IN ({DELETE}, {LEAVE})"
    values = {
        **{quoted(column.name): f"s.c{at}" for at, column in enumerate(target.columns)},
        OP_COLUMN: f"CASE WHEN {gone} THEN 'delete' ELSE {operation('s._op')} END",
        SEQ_COLUMN: "s._seq",
        TS_COLUMN: "s._ts",
        DELETED_COLUMN: gone,
    }
    same = [f"t.{quoted(name)} {equals} s.{key}" for name, key in zip(target.key, layout.keys, strict=True)]
    return f"""
        MERGE INTO {table_at(path)} AS t USING reduced AS s ON {" AND ".join([*same, within])}
        WHEN MATCHED AND s._seq > t.{SEQ_COLUMN} THEN UPDATE SET
            {", ".join(f"t.{name} = {value}" for name, value in values.items())}
        WHEN NOT MATCHED THEN INSERT ({", ".join(values)}) VALUES ({", ".join(values.values())})"""


def truncate_sql(path: Path, *, seq: int, ts_us: int) -> str:
    """The UPDATE that marks every row as deleted, for a TRUNCATE or DROP."""
    return (
        f"UPDATE {table_at(path)} SET {DELETED_COLUMN} = true, {OP_COLUMN} = 'delete', "
        f"{SEQ_COLUMN} = {seq_literal(seq)}, {TS_COLUMN} = timestamp_micros({ts_us}) "
        f"WHERE NOT {DELETED_COLUMN}"
    )
