"""A main lake that others capture, or do not, while a load brings its side lake up to it (K17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.pipeline.capture import capture
from cdc_pipeline.pipeline.load import load
from cdc_pipeline.pipeline.load_main import DirectRuns
from cdc_pipeline.pipeline.load_observer import LoadObserver, SilentLoadObserver
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position
from tests.load.test_load import Lake, project
from tests.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]


def test_k17_tables_are_swapped_in_behind_the_last_mark_and_only_where_both_lakes_stand_at_one_place(
    mariadb_server: Server, mariadb_database: str, spark: Any, tmp_path: Path
) -> None:
    """The first capture after the reading comes to nothing; behind the next one the source moves on, once."""
    server, database = mariadb_server, mariadb_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
    )
    config = project(server, database, tmp_path, [])
    cursors = MemoryCursorStore()
    read: list[Position] = []
    passed: list[str] = []
    caught_up: list[Position] = []

    class Watching(SilentLoadObserver):
        def reached(self, joint: str) -> None:
            if joint == "load_created":  # behind the low mark, and in the chunk
                server.execute(f"INSERT INTO `{database}`.a VALUES (4, 4)")
            elif joint == "load_read":
                read.append(Position(*server.end_position()))
            elif joint == "load_caught_up":
                cursor = cursors.read()
                assert cursor is not None
                caught_up.append(cursor.position)
                if len(caught_up) == 1:
                    server.execute_all(
                        f"USE `{database}`",
                        "UPDATE a SET v = 10 WHERE id = 1",
                        "DELETE FROM a WHERE id = 2",
                        "INSERT INTO a VALUES (5, 5)",
                    )
                    capture(config, cursors=cursors)

    class Lagging(DirectRuns):
        def capture(self, observer: LoadObserver) -> None:
            if read and not passed:
                passed.append("the first one after the reading")
                return
            super().capture(observer)

    report = load(config, cursors=cursors, observer=Watching(), runs=Lagging(config, cursors, ""))
    Lake(spark, config, server, database).check("a", ["id", "v"])
    assert caught_up[0].order >= read[0].order
    assert (len(report.targets), len(passed), len(caught_up)) == (1, 1, 2)
