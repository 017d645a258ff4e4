"""The sample of `make bench NAME=tables`: many tables of a live server, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tables.server import Tables
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.delta_reader import newest_rows

TABLES, CHANGED = 24, 5
COLUMNS = ("id", "customer", "amount", "state", "note", "day", "at")


def test_small_changes_of_many_tables_are_applied_without_spark(
    mysql_server: Server, mysql_database: str, make_config: Callable[..., PipelineConfig]
) -> None:
    config = make_config(
        live(mysql_server), include=[f"{mysql_database}.*"], start=here(mysql_server)
    )
    tables, cursors = Tables(mysql_server, TABLES, database=mysql_database), MemoryCursorStore()
    tables.create()
    for round_ in range(3):
        report = capture(config, cursors=cursors)
        assert not report.spark_started
        assert report.outcome == "applied"
        changed = [table for table in report.tables.values() if table.rows_inserted]
        assert len(changed) == (CHANGED if round_ else TABLES)
        tables.change(CHANGED)
    capture(config, cursors=cursors)
    assert capture(config, cursors=cursors).outcome == "nothing_new"
    for name in tables.names:
        assert _there(mysql_server, name) == _here(config, name), name


def _there(server: Server, table: str) -> list[tuple[Any, ...]]:
    with server.root_connection() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM {table} ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]


def _here(config: PipelineConfig, table: str) -> list[tuple[Any, ...]]:
    folder = config.sink.lake_path.joinpath(*table.split("."))
    return sorted(tuple(row.values()) for row in newest_rows(folder, *COLUMNS))
