"""Delta tables of a mirror: created, and brought to a recorded schema, as often as asked (K13).

Rules:
- Every statement here is a difference between what is recorded and what is there: done again, it does nothing.
- A table is ours by its properties: source, source table, and the transaction application id that it was created with.
  Anything else in its place stops (K16: a target belongs to one source).
- New tables have deletion vectors where they are permitted (`features`), and no other reader feature but what the type
  of a column asks for (TIMESTAMP_NTZ).
"""

# ruff: noqa: S608 - names and literals in the SQL are quoted by `sql`; there is no other way to build statements

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.sink.changelog import add_before_sql
from cdc_pipeline.sink.delta_log import APP_ID_PROPERTY, SOURCE_PROPERTY, TABLE_PROPERTY, TableLog, read_table_log
from cdc_pipeline.sink.manifest import RecordedTarget
from cdc_pipeline.sink.mode_columns import CDC_COLUMNS, OP_COLUMN, SEQ_COLUMN, TS_COLUMN, cdc_columns, live_rows
from cdc_pipeline.sink.sql import quoted, table_at, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CDC_COLUMNS",
    "OP_COLUMN",
    "SEQ_COLUMN",
    "TS_COLUMN",
    "add_columns",
    "backfill_sql",
    "check_owner",
    "create_table",
]


def create_table(
    session: SparkSession,
    path: Path,
    target: RecordedTarget,
    *,
    source: str,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create the target's table where it is not there yet, with these properties besides our own.

    Raises:
        LakeStateError: another table, or something that is no table, lies there.
    """
    there = read_table_log(path)
    if there is not None:
        check_owner(there, target.table, target.app_id, path=path)
        return
    if path.exists() and any(path.iterdir()) and not (path / "_delta_log").is_dir():
        raise LakeStateError(
            f"the folder of a new table is not empty and holds no Delta table: {path}",
            table=target.table,
            next_step="move what is there away, or choose another sink.lake_path",
        )
    properties = {
        **properties,
        "delta.appendOnly": "false",
        SOURCE_PROPERTY: source,
        TABLE_PROPERTY: target.table,
        APP_ID_PROPERTY: target.app_id,
    }
    added = {column.name for column in target.add_columns}
    columns = [column for column in target.columns if column.name not in added]
    columns += cdc_columns(target.mode, tuple(columns), target.key)
    listing = ", ".join(f"{quoted(column.name)} {column.delta_type}" for column in columns)
    settings = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
    session.sql(f"CREATE TABLE {table_at(path)} ({listing}) USING delta TBLPROPERTIES ({settings})")


def add_columns(session: SparkSession, path: Path, target: RecordedTarget) -> None:
    """Add those of the batch's columns that the table lacks, each where the source has it.

    Raises:
        LakeStateError: the table has a column of the name with another type.
    """
    frame = session.read.format("delta").load(str(path))
    there = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    names = [column.name for column in target.columns]
    for column in target.add_columns:
        found = there.get(column.name.lower())
        if found is not None:
            if found != column.delta_type:
                raise LakeStateError(
                    f"column {column.name} is there with another type",
                    table=target.table,
                    expected=column.delta_type,
                    got=found,
                    next_step="drop the column from the Delta table if nobody needs it, then start the run again",
                )
            continue
        if "timestamp_ntz" in column.delta_type and "timestamp_ntz" not in there.values():
            session.sql(f"ALTER TABLE {table_at(path)} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
        position = names.index(column.name)
        place = "FIRST" if position == 0 else f"AFTER {quoted(names[position - 1])}"
        session.sql(f"ALTER TABLE {table_at(path)} ADD COLUMNS ({quoted(column.name)} {column.delta_type} {place})")
        there[column.name.lower()] = column.delta_type
    if target.mode == "changelog":
        before = frame.select("_cdc_before.*").columns
        for column in target.add_columns:
            if column.name.lower() not in {name.lower() for name in before}:
                session.sql(add_before_sql(path, column.name, column.delta_type))


def backfill_sql(path: Path, target: RecordedTarget) -> str | None:
    """The UPDATE that gives old rows the constants of added columns; None where all of them get NULL. Rows that tell of
    the past keep NULL: the column was not there then."""
    live = live_rows(target.mode)
    if live is None:
        return None
    settings = [
        f"{quoted(column.name)} = CAST({column.backfill_sql} AS {column.delta_type})"
        for column in target.add_columns
        if column.backfill_sql.strip().upper() != "NULL"
    ]
    where = f" WHERE {live}" if live else ""
    return f"UPDATE {table_at(path)} SET {', '.join(settings)}{where}" if settings else None


def check_owner(there: TableLog, table: str, app_id: str, *, path: Path) -> None:
    """Raises:
    LakeStateError: the table belongs to another source, was created again, or was not made by the pipeline.
    """
    if there.app_id == app_id and there.properties.get(TABLE_PROPERTY) == table:
        return
    owner = there.properties.get(SOURCE_PROPERTY)
    of = f"source {owner}, table {there.properties.get(TABLE_PROPERTY)}, {there.app_id}" if owner else "another program"
    raise LakeStateError(
        f"the Delta table in {path} is not the one that was created for this target",
        table=table,
        expected=f"application id {app_id}",
        got=f"a table of {of}",
        next_step="move that table away and restore the target from a backup, or use a lake of its own for this source",
    )
