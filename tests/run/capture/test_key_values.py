"""Keys that the server tells apart, and their texts do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake, memory_sink


def test_k11_f165_the_number_0_of_an_enum_is_no_key_beside_an_empty_label(
    mysql_server: Server, mysql_database: str, make_config: Callable[..., PipelineConfig]
) -> None:
    database, server = mysql_database, mysql_server
    config = make_config(live(server), include=[f"{database}.*"], start=here(server))
    lake, cursors = MemoryLake(), MemoryCursorStore()

    def run() -> None:
        capture(
            config,
            cursors=cursors,
            sink=memory_sink(lake, source=config.name, config=config.sink),
        )

    def shown(table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = lake_rows(lake, config.sink.lake_path, database, table, list(columns))
        assert rows == server_rows(server, database, table, list(columns))
        return rows

    server.execute_all(
        f"USE `{database}`",
        "SET sql_mode = ''",
        "CREATE TABLE plain (k ENUM('x', 'y') PRIMARY KEY, v ENUM('', 'x'))",
        "CREATE TABLE told (k ENUM('', 'x') PRIMARY KEY, v INT)",
        "INSERT INTO plain VALUES ('bad', ''), ('x', 'bad'), ('y', NULL)",
        "INSERT INTO told VALUES ('', 1), ('x', 2)",
    )
    run()
    assert shown("plain", "k", "v") == [("", ""), ("x", ""), ("y", None)]
    assert shown("told", "k", "v") == [("", 1), ("x", 2)]
    server.execute_all(f"USE `{database}`", "SET sql_mode = ''", "INSERT INTO told VALUES (0, 3)")
    with pytest.raises(TargetSuspendedError, match="'' is a label"):
        run()
    assert ("", 1) in lake_rows(lake, config.sink.lake_path, database, "told", ["k", "v"])
