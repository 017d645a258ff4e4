"""Zero dates and bytes that are no text, from both servers into the lake; the expected texts are
the server's own."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.status import status
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta.table_log import read_table_log
from tests.servers import Server
from tests.support.captures import SPARK, here, live

pytestmark = [pytest.mark.spark]

COLUMNS = (
    "(id INT PRIMARY KEY, d DATE, t DATETIME(2), s TIMESTAMP NULL, n VARCHAR(9) CHARACTER SET ujis)"
)
NO_TEXT = "x'8ea0'"  # no character, to MySQL


def _server_view(server: Server, database: str, table: str) -> dict[int, dict[str, str]]:
    """Values that Delta's types cannot hold, by the server's own CAST and HEX."""
    listed = ", ".join(f"CAST({name} AS CHAR)" for name in "dts")
    found = {}
    for key, *texts, name, raw in server.query(
        f"SELECT id, {listed}, CONVERT(n USING utf8mb4), HEX(n) FROM `{database}`.`{table}`"
    ):
        values = {c: text for c, text in zip("dts", texts, strict=True) if text and "-00" in text}
        if name and set(name) == {"?"} and "3F" not in raw:  # which the server has stored itself
            values["n"] = f"0x{raw}"
        found[key] = values
    return found


@pytest.mark.whole
def test_rescued_values_are_the_servers_own_texts_and_heal(
    server: Server, fresh_database: str, tmp_path: Any, spark: Any
) -> None:
    """The column comes to the tables that need it, in the batch that needs it first; one MERGE more
    clears it."""
    config = PipelineConfig.model_validate(
        {
            "name": "bank",
            "source": live(server),
            "tables": {"include": [f"{fresh_database}.*"]},
            "sink": {"lake_path": tmp_path / "lake", "spark": SPARK},
            "start": here(server),
        }
    )
    cursors, paths = MemoryCursorStore(), LakePaths(tmp_path / "lake", "bank")
    session = ["SET sql_mode = ''", f"USE `{fresh_database}`"]
    server.execute_all(
        *session,
        *(f"CREATE TABLE {table} {COLUMNS}" for table in "ab"),
        "INSERT INTO a VALUES (1, '2026-01-01', '2026-01-01', '2026-01-01', 'x')",
        "INSERT INTO b VALUES (1, NULL, NULL, NULL, NULL)",
    )
    capture(config, cursors=cursors)
    names = {table: f"{fresh_database}.{table}" for table in "ab"}
    assert all("_cdc_rescued" not in _log(paths, name).columns for name in names.values())

    server.execute_all(
        *session,
        "SET time_zone = '+00:00'",
        f"INSERT INTO a VALUES (2, '0000-00-00', '0000-00-00', '0000-00-00', {NO_TEXT}), (3, "
        "'2026-02-00', '2026-00-03 04:05:06.78', NULL, 'y'), (4, '0000-00-00', NULL, NULL, NULL), "
        "(5, '0000-00-00', NULL, NULL, 'k')",
        "UPDATE a SET d = '0000-00-00' WHERE id = 1",
        "UPDATE a SET n = 'only' WHERE id = 2",
        "UPDATE a SET d = '2026-03-03' WHERE id = 4",
        "UPDATE a SET id = 50 WHERE id = 5",
        "BEGIN", "SAVEPOINT s1", "INSERT INTO a VALUES (90, '0000-00-00', NULL, NULL, NULL)",
        "ROLLBACK TO s1",
        "INSERT INTO a VALUES (91, NULL, NULL, NULL, NULL)", "COMMIT",
    )  # fmt: skip
    xa = [
        "XA START 'r'",
        "INSERT INTO a VALUES (60, '2026-00-00', NULL, NULL, 'xa')",
        "XA END 'r'",
        "XA PREPARE 'r'",
    ]
    if server.flavor == "mysql":
        server.execute_all(*session, *xa)
    report = capture(config, cursors=cursors)
    assert report.tables[names["a"]].rescued["d"] >= 5
    assert "_cdc_rescued" in _log(paths, names["a"]).columns
    assert "_cdc_rescued" not in _log(paths, names["b"]).columns
    assert _lake_view(spark, paths, names["a"]) == _server_view(server, fresh_database, "a")
    assert _server_view(server, fresh_database, "a")[2].keys() == {"d", "t", "s"}

    server.execute_all(
        *(["XA COMMIT 'r'"] if server.flavor == "mysql" else []), *session,
        f"UPDATE a SET d = '2026-04-04', n = {NO_TEXT} WHERE id = 2", "DELETE FROM a WHERE id = 3",
        "UPDATE a SET n = 'kept' WHERE id = 50",
    )  # fmt: skip
    report = capture(config, cursors=cursors)
    assert _lake_view(spark, paths, names["a"]) == _server_view(server, fresh_database, "a")
    shown = status(config, cursors=cursors).tables[names["a"]].rescued
    assert shown["d"] > report.tables[names["a"]].rescued["d"] > 0
    if server.flavor == "mysql":
        assert _server_view(server, fresh_database, "a")[2] == {"t": ANY, "s": ANY, "n": "0x8EA0"}


def _log(paths: LakePaths, table: str) -> Any:
    found = read_table_log(paths.table(table))
    assert found is not None
    return found


def _lake_view(spark: Any, paths: LakePaths, table: str) -> dict[int, dict[str, str]]:
    rows = (
        spark.read.format("delta")
        .load(str(paths.table(table)))
        .select("id", "_cdc_rescued", "d", "t", "s", "n")
    )
    found = {}
    for row in rows.collect():
        rescued = row["_cdc_rescued"] or {}
        assert all(row[name] is None for name in rescued)
        found[row["id"]] = rescued
    return found
