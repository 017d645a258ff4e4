"""A load whose process dies at any moment of its swap: the next run ends with the tables as the
server's SELECT has them, each batch once, and nothing of the side lake left (K2, K17)."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.operations.snapshot.swap_states import States, left_of_operations
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import lake_rows, server_rows

pytestmark = [pytest.mark.spark, pytest.mark.whole]

# In the order in which a load meets them: a mirror's files are adopted, then a history's rows are
# written again.
MOMENTS = [
    "snapshot_swapping",
    "before_record",
    "after_record",
    "file_shared",
    "before_replaced",
    "between_merges",
    "before_replaced_2",
    "between_merges_2",
    "before_cut",
    "cut_published",
    "cursor_written",
    "snapshot_swapped",
    "snapshot_over",
    "half_removed",
    "side_removed",
    "snapshot_removed",
]
# The suite plays those that differ most; CDC_PIPELINE_ALL_MOMENTS=1 plays all.
IN_SUITE = [
    "file_shared",
    "before_replaced",
    "between_merges",
    "between_merges_2",
    "cut_published",
    "half_removed",
]


class Project:
    """A folder with a lake and a cursor."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.folder = folder
        sink = {"lake_path": str(folder / "lake"), "spark": SPARK, "merge_threads": 1}
        self.config = PipelineConfig.model_validate({**document, "sink": sink})
        self.cursors = FileCursorStore(folder / "cursors", source=self.config.name)
        self.paths = LakePaths(self.config.sink.lake_path, self.config.name)

    def assert_each_batch_once(self) -> None:
        numbers = list_numbers(self.paths.cuts)
        assert numbers == list(range(1, len(numbers) + 1))
        for log in self.paths.lake.glob("[!_]*/*/_delta_log"):
            actions = [
                json.loads(line)
                for commit in log.glob("*.json")
                for line in commit.read_text().splitlines()
            ]
            versions = Counter(
                (a["txn"]["appId"], a["txn"]["version"]) for a in actions if "txn" in a
            )
            assert set(versions.values()) == {1}, log


def test_k2_k17_a_load_that_dies_at_any_moment_of_its_swap(
    mysql_server: Server, mysql_database: str, spark: Any, tmp_path: Path
) -> None:
    server, database = mysql_server, mysql_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE h (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES " + ", ".join(f"({key}, 'first')" for key in range(60)),
        "INSERT INTO h VALUES (1, 1), (2, 2), (3, 3)",
    )
    document: dict[str, Any] = {
        "name": "bank",
        "source": live(server),
        "tables": {"include": [f"{database}.*"]},
        "start": here(server),
        "targets": [{"tables": [f"{database}.h"], "mode": "history"}],
        "snapshot": {"chunk_rows": 30, "readers": 1},
    }
    # Both tables are there, and partial: the load replaces one, and keeps versions of the other.
    server.execute_all(
        f"USE `{database}`",
        "UPDATE a SET v = 'second' WHERE id < 5",
        "UPDATE h SET v = 20 WHERE id = 2",
        "UPDATE h SET v = 21 WHERE id = 2",
    )
    project = Project(tmp_path / "load", document)
    capture(project.config, cursors=project.cursors)
    states = States(project.folder, tmp_path)
    with states.kept():
        report = take_snapshot(project.config, cursors=project.cursors)
    assert sorted(report.targets) == [f"{database}.a", f"{database}.h_history"]
    assert list(states.moments) == MOMENTS

    server.execute_all(
        f"USE `{database}`",
        "UPDATE a SET v = 'third' WHERE id IN (3, 30)",
        "DELETE FROM a WHERE id = 59",
    )
    expected = {table: server_rows(server, database, table, ["id", "v"]) for table in "ah"}
    for moment in MOMENTS if os.environ.get("CDC_PIPELINE_ALL_MOMENTS") else IN_SUITE:
        left = Project(states.moments[moment], document)
        cut = last_cut(left.paths)
        assert cut is not None
        is_published = all(not state.partial for state in cut.cursor.targets.values())
        again = take_snapshot(left.config, cursors=left.cursors)
        # A batch that is recorded is finished by the capture that each load begins with.
        is_recorded = MOMENTS.index(moment) >= MOMENTS.index("after_record")
        assert (again.outcome, len(again.resumed)) == (
            ("nothing_to_do", 0) if is_recorded else ("taken", 1)
        ), moment
        assert is_published == (MOMENTS.index(moment) >= MOMENTS.index("cut_published")), moment
        found = lake_rows(spark, left.paths.lake, database, "a", ["id", "v"])
        assert found == expected["a"], moment
        versions = lake_rows(
            spark, left.paths.lake, database, "h_history", ["id", "v", "__START_AT", "__END_AT"]
        )
        assert [row[:2] for row in versions if row[3] is None] == expected["h"], moment
        assert len({(key, start) for key, _, start, _ in versions}) == len(versions) == 4, moment
        left.assert_each_batch_once()
        assert left_of_operations(left.paths) == ["operations.lock"], moment
        assert not list(left.paths.staging_root.glob("*")), moment
