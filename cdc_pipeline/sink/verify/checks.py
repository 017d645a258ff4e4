"""Check one Delta table by its own rows: duplicate keys, versions of a history."""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.sink.modes.mode_columns import END_COLUMN, START_COLUMN
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def duplicate_keys(
    spark: SparkSession, path: Path, version: int, *, mode: Mode, key: Sequence[str]
) -> int:
    """How many keys occur in more than one row that represents a row of the source; 0 for a
    changelog.
    """
    live = SINK_MODES[mode].live_rows
    if live is None:
        return 0
    listed = ", ".join(map(quoted, key))
    rows = _session(spark, path, version).sql(
        f"SELECT count(*) FROM (SELECT 1 FROM lake_rows WHERE {live or 'true'} GROUP BY {listed} "
        "HAVING count(*) > 1)"
    )
    return int(rows.collect()[0][0])


def history_intervals(
    spark: SparkSession, path: Path, version: int, *, key: Sequence[str]
) -> dict[str, int]:
    """Counts: versions, keys, overlaps (versions that end after the next begins, or before they
    begin), not_ended (current versions that another follows), gaps (versions that end before the
    next begins).
    """
    partition = ", ".join(map(quoted, key))
    # Of two that begin at the same place the current one comes last.
    order = f"PARTITION BY {partition} ORDER BY {START_COLUMN}, {END_COLUMN} NULLS LAST"
    row = (
        _session(spark, path, version)
        .sql(f"""
        SELECT count(*) AS versions, count_if(_first = 1) AS keys,
            count_if({END_COLUMN} > _next OR {END_COLUMN} < {START_COLUMN} OR {START_COLUMN} IS NULL
                OR _next = {START_COLUMN}) AS overlaps,
            count_if({END_COLUMN} IS NULL AND _next IS NOT NULL) AS not_ended,
            count_if({END_COLUMN} < _next) AS gaps
        FROM (SELECT {START_COLUMN}, {END_COLUMN}, lead({START_COLUMN}) OVER ({order}) AS _next,
            row_number() OVER ({order}) AS _first FROM lake_rows)""")
        .collect()[0]
    )
    return {name: int(row[name]) for name in ("versions", "keys", "overlaps", "not_ended", "gaps")}


def _session(spark: SparkSession, path: Path, version: int) -> SparkSession:
    session = new_session(spark)
    with old_commits_readable(session):
        table_frame(session, path, version=version).createOrReplaceTempView("lake_rows")
    return session
