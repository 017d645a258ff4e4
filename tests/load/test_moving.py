"""A main lake that others capture while a load brings its side lake up to it (K17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.pipeline.capture import capture
from cdc_pipeline.pipeline.load import load
from cdc_pipeline.pipeline.load_observer import SilentLoadObserver
from cdc_pipeline.position.cursor import MemoryCursorStore
from tests.load.test_load import Lake, project
from tests.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]


def test_k17_tables_are_swapped_in_only_where_both_lakes_stand_at_one_place(
    mariadb_server: Server, mariadb_database: str, spark: Any, tmp_path: Path
) -> None:
    server, database = mariadb_server, mariadb_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
    )
    config = project(server, database, tmp_path, [])
    cursors = MemoryCursorStore()
    moved: list[str] = []

    class Moving(SilentLoadObserver):
        """Somebody changes rows and captures the source, between the side lake's capture and the swap."""

        def reached(self, joint: str) -> None:
            if joint == "load_caught_up" and not moved:
                moved.append(joint)
                server.execute_all(
                    f"USE `{database}`",
                    "UPDATE a SET v = 10 WHERE id = 1",
                    "DELETE FROM a WHERE id = 2",
                    "INSERT INTO a VALUES (4, 4)",
                )
                capture(config, cursors=cursors)

    report = load(config, cursors=cursors, observer=Moving())
    assert (len(report.targets), len(moved)) == (1, 1)
    Lake(spark, config, server, database).check("a", ["id", "v"])
