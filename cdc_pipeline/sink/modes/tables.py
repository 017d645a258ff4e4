"""Create a target's Delta table, or create it again, idempotently (K13).

Rules:
- Repeating it does nothing. What an interrupted CREATE left is removed first
  (`log.clear_interrupted_create`). How a table changes afterwards is `sink/apply/schema_steps.py`.
- Its properties show that a table is ours: source, source table, and the transaction application id
  that it was created with. Anything else in its place stops (K16: a target belongs to one source).
- New tables have deletion vectors if they are permitted (`features`), and no other reader feature
  except what a column's type needs (TIMESTAMP_NTZ).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.log import clear_interrupted_create
from cdc_pipeline.sink.delta.plain_commit import can_create, create_plain
from cdc_pipeline.sink.delta.table_log import (
    APP_ID_PROPERTY,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    check_owner,
    read_table_log,
)
from cdc_pipeline.sink.modes.mode_columns import own_columns
from cdc_pipeline.sink.modes.shape import check_expressions, needs_shaping, placement_sql
from cdc_pipeline.sink.spark.sql import properties_sql, quoted, table_at, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def create_without_spark(
    path: Path,
    target: RecordedTarget,
    *,
    source: str,
    properties: Mapping[str, str],
    fixed: Mapping[str, str],
    note: str,
) -> bool:
    """As `create_table`, without a JVM. False, with nothing done, if Spark must do it."""
    shape = target.spec.shape
    columns, settings = _columns(target), _properties(target, source, properties)
    if (
        (
            shape is not None
            and (shape.partition_by or shape.cluster_by or needs_shaping(target.spec))
        )
        or target.spec.properties
        or not can_create(columns, settings, fixed=fixed)
    ):
        return False
    clear_interrupted_create(path, table=target.table)
    create_plain(path, columns, settings, comments=target.spec.comments, note=note)
    return True


def create_table(
    session: SparkSession,
    path: Path,
    target: RecordedTarget,
    *,
    source: str,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """One that it replaces keeps only its history. LakeStateError: another table, or something that
    is not a table, is in its place.
    """
    there = read_table_log(path)
    replaced = there is not None and bool(target.replaces) and there.app_id == target.replaces
    if there is not None and not replaced:
        check_owner(there, target.table, target.app_id, path=path)
        return
    if there is None:
        clear_interrupted_create(path, table=target.table)
    check_expressions(session, target)
    columns = _columns(target)
    comments = target.spec.comments
    settings = _properties(target, source, properties)
    about = f" COMMENT {text_literal(comments[''])}" if "" in comments else ""
    if not replaced:
        listing = ", ".join(
            f"{quoted(column.name)} {column.delta_type}"
            + (f" COMMENT {text_literal(text)}" if (text := comments.get(column.name)) else "")
            for column in columns
        )
        session.sql(
            f"CREATE TABLE {table_at(path)} ({listing}) USING delta{placement_sql(target)}{about} "
            f"TBLPROPERTIES ({properties_sql(settings)})"
        )
        return
    # With other columns Delta replaces the table of a path only by AS SELECT, and switches no
    # feature on by itself.
    if any("timestamp_ntz" in column.delta_type for column in columns):
        settings["delta.feature.timestampNtz"] = "supported"
    nothing = ", ".join(
        f"CAST(NULL AS {column.delta_type}) AS {quoted(column.name)}" for column in columns
    )
    rows = session.sql(f"SELECT {nothing} WHERE false")
    with_comments(rows, comments).createOrReplaceTempView("replaced")
    session.sql(
        f"CREATE OR REPLACE TABLE {table_at(path)} USING delta{placement_sql(target)}{about} "
        f"TBLPROPERTIES ({properties_sql(settings)}) AS SELECT * FROM replaced"
    )


def with_comments(rows: DataFrame, comments: Mapping[str, str]) -> DataFrame:
    """Which a statement AS SELECT gives to its table."""
    columns = []
    for name in rows.columns:
        described = {"comment": comments[name]} if name in comments else {}
        columns.append(rows[quoted(name)].alias(name, metadata=described))
    return rows.select(*columns)


def _columns(target: RecordedTarget) -> list[TargetColumn]:
    spec = target.spec
    return [*spec.columns, *own_columns(spec.mode, spec.columns, spec.key)]


def _properties(
    target: RecordedTarget, source: str, properties: Mapping[str, str]
) -> dict[str, str]:
    return {
        **properties,
        **target.spec.properties,
        "delta.appendOnly": "false",
        SOURCE_PROPERTY: source,
        TABLE_PROPERTY: target.table,
        APP_ID_PROPERTY: target.app_id,
    }
