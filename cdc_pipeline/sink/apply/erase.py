"""Erase rows by key from a target's table, so that no file of its newest version holds them.

Rules:
- Deleting alone would leave their bytes beneath deletion vectors. So what vectors mark is purged
  first, the rows of earlier deletes too, and this statement writes none: it rewrites files.
- A row that is newer than its name's bound is another table's, or new: it stays.
- Every other row with an erased key goes: versions, deleted rows, changes. Of a change in a
  changelog that has another key in one image, the other remains, as an insert or a delete.
- The keys are one row of a view, which no text that Delta keeps of a statement shows. They become
  literals by the one way that quotes them (K20).
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.sink.delta.commit import MERGE_STEP, run_once
from cdc_pipeline.sink.delta.table_log import TableLog
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    OP_COLUMN,
    SEQ_COLUMN,
    SEQ_TYPE,
)
from cdc_pipeline.sink.spark.sql import quoted, table_at, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.schema.target_spec import TargetSpec

BOUND_COLUMN: Final = "_cdc_until"  # of keys: a seq before which rows have them
_VECTORS: Final = "spark.databricks.delta.merge.deletionVectors.persistent"


def erase(
    session: SparkSession,
    path: Path,
    record: BatchRecord,
    target: RecordedTarget,
    there: TableLog,
    *,
    keys: pa.Table,
) -> None:
    """`keys`: texts by column of the target."""
    session.conf.set(_VECTORS, "false")
    session.sql(f"REORG TABLE {table_at(path)} APPLY (PURGE)").collect()
    make_view(session, target.spec, keys)
    run_once(session, _merge_sql(path, target.spec, keys), there, record, step=MERGE_STEP)


def make_view(session: SparkSession, spec: TargetSpec, keys: pa.Table) -> None:
    types = {column.name: column.delta_type for column in spec.columns}
    types[BOUND_COLUMN] = SEQ_TYPE
    structs = []
    for key in keys.to_pylist():
        values = (value_sql(text, types[name]) for name, text in key.items())
        structs.append(f"struct({', '.join(f'{one} AS k{at}' for at, one in enumerate(values))})")
    session.sql(f"SELECT array({', '.join(structs)}) AS keys").createOrReplaceTempView("erased")


def value_sql(text: str, delta_type: str) -> str:
    """The value of a text; of bytes that is hex."""
    if delta_type == "binary":
        return f"unhex({text_literal(text)})"
    return f"CAST({text_literal(text)} AS {delta_type})"


def _has(keys: pa.Table, image: str) -> str:
    same = " AND ".join(
        f"t.{SEQ_COLUMN} < one.k{at}"
        if name == BOUND_COLUMN
        else f"one.k{at} = {image}.{quoted(name)}"
        for at, name in enumerate(keys.column_names)
    )
    return f"coalesce(exists(erased.keys, one -> {same}), false)"


def _erased_sql(spec: TargetSpec, keys: pa.Table) -> str:
    if not MODES[spec.mode].rows_are_changes:
        return _has(keys, "t")
    return f"({_has(keys, 't')} OR {_has(keys, f't.{BEFORE_COLUMN}')})"


def _merge_sql(path: Path, spec: TargetSpec, keys: pa.Table) -> str:
    ways = ""
    if MODES[spec.mode].rows_are_changes:
        own, before = _has(keys, "t"), _has(keys, f"t.{BEFORE_COLUMN}")
        leaves = {one.name: f"t.{BEFORE_COLUMN}.{quoted(one.name)}" for one in spec.columns}
        leaves |= {OP_COLUMN: "'delete'", SEQ_COLUMN: f"CAST(t.{SEQ_COLUMN} - 1 AS decimal(38,0))"}
        leaves |= {ABSENT_COLUMN: f"t.{BEFORE_ABSENT_COLUMN}"}
        enters = {OP_COLUMN: "'insert'", BEFORE_COLUMN: "NULL", BEFORE_ABSENT_COLUMN: "NULL"}
        for is_erased, other, values in ((own, before, leaves), (before, own, enters)):
            settings = ", ".join(f"t.{quoted(name)} = {value}" for name, value in values.items())
            ways += (
                f"WHEN MATCHED AND t.{OP_COLUMN} = 'update' AND {is_erased} AND NOT {other} "
                f"THEN UPDATE SET {settings} "
            )
    return (
        f"MERGE INTO {table_at(path)} AS t USING erased ON {_erased_sql(spec, keys)} "
        f"{ways}WHEN MATCHED THEN DELETE"
    )
