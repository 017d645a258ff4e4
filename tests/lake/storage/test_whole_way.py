"""From a real server into a lake in an S3-compatible store, through a crash, and back by Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_pipeline.lake.paths import LakePaths, list_numbers
from tests.servers import Server
from tests.support.captures import SPARK, live
from tests.support.comparison import server_rows
from tests.support.object_store import ROOT, Store
from tests.support.object_store_server import ACCESS_KEY, SECRET
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = [pytest.mark.spark, pytest.mark.mysql]


def _run(job: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.lake.storage.capture_child",
            str(job),
            str(job.parent / "cursors"),
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "LAKE_KEY": ACCESS_KEY, "LAKE_SECRET": SECRET},
        capture_output=True,
        text=True,
        check=False,
    )


def _told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.whole
def test_k2_k16_a_lake_in_an_object_store_follows_the_server_through_a_crash(
    mysql_server: Server, mysql_database: str, store: Store, tmp_path: Path
) -> None:
    mysql_server.flush_journal()
    journal, offset = mysql_server.end_position()
    lake = store.lake()
    job = tmp_path / "bank.yaml"
    job.write_text(
        yaml.safe_dump(
            {
                "source": live(mysql_server),
                "start": {"journal": journal, "offset": offset},
                "tables": {"include": [f"{mysql_database}.{table}" for table in COLUMNS]},
                "sink": {
                    "lake_path": lake,
                    "spark": SPARK,
                    "storage": {
                        "endpoint": store.endpoint,
                        "access_key_id": "${LAKE_KEY}",
                        "secret_access_key": "${LAKE_SECRET}",
                        "lease_s": 3000,
                    },
                },
            }
        )
    )
    create_tables(mysql_server, mysql_database)
    workload = Workload(mysql_server, mysql_database, seed=1)
    workload.run(30)
    paths = LakePaths(store.sink_config(lake).lake_path, "bank")

    assert _run(job, "after_record").returncode == -signal.SIGKILL
    assert (list_numbers(paths.batches), list_numbers(paths.cuts)) == ([1], [])
    staged = sorted(file.name for file in paths.staging(1).iterdir())
    assert len(staged) == len(COLUMNS)
    assert len(set(staged)) == len(staged)

    workload.run(10)
    finished = _run(job)
    told = _told(finished)
    assert told["outcome"] == "applied"
    for table, columns in COLUMNS.items():
        assert told["rows"][table] == repr(
            server_rows(mysql_server, mysql_database, table, columns)
        ), table
    assert list_numbers(paths.cuts)[0] == 1
    assert not paths.staging_root.is_dir(), "staged files go when their cut is published"

    idle = _told(_run(job))
    assert (idle["outcome"], idle["spark"]) == ("nothing_new", False)
    for said in (
        finished.stdout,
        finished.stderr,
        *(path.read_text() for path in tmp_path.rglob("*.json")),
    ):
        assert SECRET not in said
    objects = paths.lake.store.sizes(paths.lake.key)  # type: ignore[attr-defined]
    for key in objects:
        if key.endswith((".json", "writer.lock")):
            assert SECRET.encode() not in paths.lake.store.read(key)  # type: ignore[attr-defined]
