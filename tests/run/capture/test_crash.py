"""A run that is killed with SIGKILL at every fault point of K2, and before them after a put and in
the spill of the store, loses nothing and doubles nothing.

Each run is a real Dagster run, those that are killed in a process of their own. After a kill the
next run has other batch limits, so that what it would cut today differs from what was recorded.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from cdc_pipeline.lake.records import Cut
from tests.servers import Server
from tests.support import crash_child
from tests.support.captures import SPARK, here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.crash_children import run_child
from tests.support.lake_log import assert_each_batch_once, cuts_of
from tests.support.project import write_settings
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = pytest.mark.spark

# (fault point, its occurrence): in the order of K2, with merges and cuts of first and of later
# batches.
POINTS = [
    ("put", 3),
    ("spill", 2),
    ("staging", 3),
    ("before_record", 1),
    ("after_record", 1),
    ("between_merges", 1),
    ("between_merges", 2),
    ("before_cut", 1),
    ("before_cursor", 1),
    ("before_ack", 1),
]
LIMITS = [
    {"merge_rows": 60},
    {"merge_rows": 25},
    {"merge_rows": 100_000},
    {"merge_rows": 40, "get_bytes": 2048},
]


class Project:
    """Jobs, lake and Dagster home of one test."""

    def __init__(
        self, folder: Path, source: dict[str, Any], include: list[str], start: dict[str, Any]
    ) -> None:
        self.lake = folder / "lake"
        self.home = folder / "home"
        self.jobs = folder / "jobs"
        write_settings(self.home)
        self.jobs.mkdir()
        self._document = {
            "source": source,
            "tables": {"include": include},
            "start": start,
            "snapshot": {"lock_wait_s": 1},
            # 8 KiB of memory: everything else goes through files.
            "store": {
                "kind": "mixed",
                "ring_events": 128,
                "memory_unit_bytes": 64,
                "directory": str(folder / "spill"),
            },
            "sink": {"lake_path": str(self.lake), "spark": SPARK},
        }

    @property
    def environment(self) -> dict[str, str]:
        return {"DAGSTER_HOME": str(self.home), "DAGSTER_DISABLE_TELEMETRY": "yes"}

    def run(self, limits: dict[str, int], *kill: str) -> subprocess.CompletedProcess[str]:
        """A run in a process of its own."""
        self._configure(limits)
        return run_child(
            [str(self.jobs), "bank", *kill], environment=self.environment, folder=self.home.parent
        )

    def run_here(self, limits: dict[str, int]) -> subprocess.CompletedProcess[str]:
        """The same for a run that nothing kills, in this process: its Spark session is warm."""
        self._configure(limits)
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.environment), redirect_stdout(out), redirect_stderr(err):
            code = crash_child.main(str(self.jobs), "bank")
        return subprocess.CompletedProcess([], code, out.getvalue(), err.getvalue())

    def _configure(self, limits: dict[str, int]) -> None:
        document = {**self._document, "batch": limits}
        (self.jobs / "bank.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def cuts(self) -> list[Cut]:
        return cuts_of(self.lake, "bank")

    def assert_each_batch_once(self) -> None:
        assert_each_batch_once(self.lake, "bank")

    def assert_intervals_join(self) -> None:
        """The cursor's materializations cover the log without a gap; one that a crash had kept back
        came later."""
        import dagster as dg

        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            found = instance.fetch_materializations(dg.AssetKey(["bank", "cursor"]), limit=1000)
        intervals = [
            str(record.asset_materialization.metadata["interval"].value).split(" - ")
            for record in reversed(found.records)
            if record.asset_materialization is not None
        ]
        assert intervals
        for before, after in pairwise(intervals):
            assert after == before or after[0] == before[1]


@pytest.fixture
def project(mysql_server: Server, mysql_database: str, tmp_path: Path) -> Project:
    start = here(mysql_server)
    create_tables(mysql_server, mysql_database)
    workload = Workload(mysql_server, mysql_database, seed=7)
    workload.run(25)
    workload.large_transaction(400)
    mysql_server.execute(
        f"ALTER TABLE `{mysql_database}`.label ADD COLUMN rank_number INT NOT NULL DEFAULT 3"
    )
    workload.run(10)
    workload.close()
    return Project(
        tmp_path, live(mysql_server), [f"{mysql_database}.{table}" for table in COLUMNS], start
    )


def _assert_exact(project: Project, server: Server, database: str, spark: Any) -> None:
    columns = {**COLUMNS, "label": [*COLUMNS["label"], "rank_number"]}
    for table, names in columns.items():
        assert lake_rows(spark, project.lake, database, table, names) == server_rows(
            server, database, table, names
        )
    project.assert_each_batch_once()
    project.assert_intervals_join()


@pytest.mark.whole
def test_k2_killed_at_every_fault_point(
    project: Project, mysql_server: Server, mysql_database: str, spark: Any
) -> None:
    """SPEC P9, P10: wherever it is killed, also between cursor and ack, the rerun resumes at the
    right transaction."""
    for number, (point, occurrence) in enumerate(POINTS):
        done = project.run(LIMITS[number % len(LIMITS)], point, str(occurrence))
        if done.returncode == 0:
            # The log ended before the fault point came: the remaining kills need something to do.
            workload = Workload(mysql_server, mysql_database, seed=20 + number)
            workload.run(4)
            workload.close()
            done = project.run(LIMITS[number % len(LIMITS)], point, "1")
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.stdout}\n{done.stderr}"
    last = project.run_here({"merge_rows": 150})
    assert last.returncode == 0, last.stderr
    # K14
    assert [path.name for path in (project.lake.parent / "spill").glob("*/*")] == ["store.lock"]
    _assert_exact(project, mysql_server, mysql_database, spark)
    idle = project.run({"merge_rows": 10})
    report = json.loads(idle.stdout.splitlines()[-1])
    assert report["outcome"] == "nothing_new"
    assert not report["spark_started"]


@pytest.mark.whole
def test_two_captures_of_a_source_exclude_each_other(project: Project) -> None:
    """K16: the lock goes with the process that holds it, and is waited for no longer than is
    said."""
    from cdc_pipeline.lake.storage.lock import writer_lock

    with writer_lock(project.lake / "_cdc" / "bank" / "writer.lock"):
        done = project.run({})
    assert done.returncode == 1
    assert "another" in done.stderr.lower()
