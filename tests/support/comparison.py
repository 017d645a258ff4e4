"""Rows of the lake against the server's own SELECT: the expected values never come from our
decoder."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path, PosixPath
from typing import Any

from cdc_pipeline.config.pipeline_config import PipelineConfig
from tests.servers import Server
from tests.support.delta_reader import newest_rows
from tests.support.memory_sink import MemoryLake
from tests.support.workload import COLUMNS


def server_rows(
    server: Server, database: str, table: str, columns: list[str], *, where: str = ""
) -> list[tuple[Any, ...]]:
    types = dict(
        server.query(
            "SELECT COLUMN_NAME, LOWER(COLUMN_TYPE) FROM information_schema.COLUMNS "
            f"WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = '{table}'"
        )
    )
    listed = ", ".join(f"`{column}`" for column in columns)
    rows = server.query(f"SELECT {listed} FROM `{database}`.`{table}` {where}")
    return sorted(
        (
            tuple(_plain(value, types[c]) for value, c in zip(row, columns, strict=True))
            for row in rows
        ),
        key=repr,
    )


def lake_rows(
    spark: Any, lake: Path, database: str, table: str, columns: list[str]
) -> list[tuple[Any, ...]]:
    """Sorted, in the forms of `server_rows`. Those of a folder are read without Spark, in a few
    milliseconds; `campaigns/sink/test_packs.py` shows that Spark reads the same. In the place of
    Spark's session a `MemoryLake` is read.
    """
    if isinstance(spark, MemoryLake):
        rows = ([row[name] for name in columns] for row in spark.rows(lake / database / table))
        return sorted((tuple(_plain(value, "") for value in row) for row in rows), key=repr)
    if isinstance(lake, PosixPath):
        rows = newest_rows(lake / database / table, *columns)
        return sorted(
            (tuple(_plain(value, "") for value in row.values()) for row in rows), key=repr
        )
    from cdc_pipeline.sink.read.read import table_frame

    frame = table_frame(spark, lake / database / table)
    names = ["`" + column.replace("`", "``") + "`" for column in columns]
    rows = frame.select(*names).toArrow().to_pylist()
    return sorted((tuple(_plain(value, "") for value in row.values()) for row in rows), key=repr)


def present(rows: list[dict[str, Any]], mode: str) -> list[dict[str, Any]]:
    """Those of a target's rows that are the source's now; of a changelog all."""
    if mode == "soft_delete":
        return [row for row in rows if not row["_cdc_deleted"]]
    return [row for row in rows if row["__END_AT"] is None] if mode == "history" else rows


def source_values(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the lake without the columns of the lake's own."""
    return tuple(value for name, value in row.items() if not name.startswith("_"))


def lake_value(value: Any) -> Any:
    """In the form that `server_rows` gives."""
    return _plain(value, "")


def _plain(value: Any, column_type: str) -> Any:
    if isinstance(value, bytes) and column_type == "bit(1)":
        return value == b"\x01"
    if isinstance(value, dt.timedelta):
        seconds = int(value.total_seconds())
        sign = "-" if seconds < 0 else ""
        return f"{sign}{abs(seconds) // 3600:02d}:{abs(seconds) // 60 % 60:02d}:{abs(seconds) % 60:02d}"  # noqa: E501
    if isinstance(value, dt.datetime):
        # TIMESTAMP columns are instants in the lake; the sessions of the tests' servers run in
        # +00:00.
        return value.replace(tzinfo=None)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Decimal):
        return str(value)
    return value


def assert_equal(
    spark: Any,
    config: PipelineConfig,
    server: Server,
    database: str,
    tables: Mapping[str, list[str]] = COLUMNS,
) -> None:
    """`tables`: their columns by name."""
    for table, columns in tables.items():
        expected = server_rows(server, database, table, columns)
        assert lake_rows(spark, config.sink.lake_path, database, table, columns) == expected, table
