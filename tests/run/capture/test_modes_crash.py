"""A run with all modes at once that is killed between its merges: the next one finishes the batch,
each change once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta.log import read_table_log
from tests.run.capture.test_modes import COLUMNS, Lake, as_text, shown, targets
from tests.servers import Server
from tests.support.captures import SPARK, here, live

pytestmark = [pytest.mark.spark, pytest.mark.mariadb, pytest.mark.whole]

ROOT = Path(__file__).resolve().parents[3]


def test_k2_k3_killed_between_the_merges_of_all_modes(
    mariadb_server: Server, mariadb_database: str, spark: Any, tmp_path: Path
) -> None:
    document = {
        "name": "bank",
        "source": live(mariadb_server),
        "tables": {"include": [f"{mariadb_database}.item", f"{mariadb_database}.bag"]},
        "start": here(mariadb_server),
        "targets": targets(mariadb_database)[:-1],
        "sink": {"lake_path": str(tmp_path / "lake"), "spark": SPARK},
    }
    config = PipelineConfig.model_validate(document)
    mariadb_server.execute_all(
        f"USE `{mariadb_database}`",
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(8,2))",
        "CREATE TABLE bag (a INT, b VARCHAR(5))",
        "INSERT INTO item VALUES (1,'a',1),(2,'b',2),(3,'c',3)",
        "UPDATE item SET id = 30, name = 'moved' WHERE id = 3",
        "UPDATE item SET price = price + 1 WHERE id < 3",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO bag VALUES (1,'x'),(1,'x'),(2,'y')",
        "DELETE FROM bag WHERE a = 1 LIMIT 1",
    )
    file = tmp_path / "config.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.run.capture.modes_crash_child",
            str(file),
            "between_merges",
            "3",
        ],
        cwd=ROOT,
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    lake_path = config.sink.lake_path / mariadb_database
    logs = [read_table_log(folder) for folder in lake_path.iterdir()]
    applied = [log is not None and log.transaction_version >= 0 for log in logs]
    assert sum(applied) >= 3

    report = capture(config, cursors=MemoryCursorStore())
    assert report.recovered_batch is not None
    lake = Lake(spark, config, mariadb_database)
    now = shown(mariadb_server, mariadb_database, "item", COLUMNS)
    assert as_text(lake.rows("item", COLUMNS)) == now
    assert as_text(lake.rows("item_soft", COLUMNS, "NOT _cdc_deleted")) == now
    assert as_text(lake.rows("item_history", COLUMNS, "__END_AT IS NULL")) == now
    assert len(lake.rows("item_history", ["id"])) == 6
    assert as_text(lake.folded()) == now
    assert Counter(row[0] for row in lake.rows("item_changelog", ["_cdc_op"])) == {
        "insert": 3,
        "update": 3,
        "delete": 1,
    }
    assert lake.rows("bag", ["a", "b"]) == shown(
        mariadb_server, mariadb_database, "bag", ["a", "b"]
    )
