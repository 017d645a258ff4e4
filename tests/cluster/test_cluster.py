"""A lake in a bucket of a real S3 server, kept by a driver and executors of a real cluster: in
order, through the death of a worker and of the driver, and without the server for a while."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.daemon import Daemon
from tests.cluster.gateway import Gateway
from tests.cluster.spark import Cluster
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.crash_children import run_child
from tests.support.lake_log import assert_each_batch_once
from tests.support.object_store import ROOT
from tests.support.object_store_server import ACCESS_KEY, SECRET
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = [pytest.mark.spark, pytest.mark.mysql, pytest.mark.nightly]

OUTAGE_S = 60  # the lease is lost after two thirds of LEASE_S
LEASE_S = 30
TIMEOUT_S = 1200
CAPTURE_POINTS = (
    "staging/staging",
    "before_record",
    "after_record",
    "between_merges",
    "between_merges/between_merges",
    "before_cut",
    "before_cursor",
    "before_ack",
)
SNAPSHOT_POINTS = (
    "snapshot_begun",
    "snapshot_created",
    "snapshot_chunks/after_record",
    "snapshot_read/snapshot_caught_up",
    "snapshot_swapping/before_replaced",
    "between_merges",
)


class Project:
    def __init__(
        self, server: Server, database: str, gateway: Gateway, cluster: Cluster, folder: Path
    ) -> None:
        self._server = server
        self._database = database
        self._folder = folder
        self.lake = gateway.store.lake()
        self.on_disk = gateway.on_disk(self.lake)
        create_tables(server, database)
        self.workload = Workload(server, database, seed=3)
        self.document: dict[str, Any] = {
            "name": "bank",
            "source": live(server),
            "tables": {"include": [f"{database}.{table}" for table in COLUMNS]},
            "start": here(server),
            "snapshot": {"chunk_rows": 100},
            "batch": {"decode": "executors", "merge_rows": 60},
            "sink": {
                "lake_path": self.lake,
                "spark": cluster.spark(),
                "merge_threads": 2,
                "storage": {
                    "endpoint": gateway.store.endpoint,
                    "access_key_id": ACCESS_KEY,
                    "secret_access_key": SECRET,
                    "lease_s": LEASE_S,
                    "retry_s": 5,
                },
            },
        }

    def run(
        self, commands: str, *at_points: str, document: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        file = self._folder / "config.json"
        file.write_text(json.dumps(document or self.document), encoding="utf-8")
        return run_child(
            [str(file), str(self._folder / "cursors"), commands, *at_points],
            environment={"PYTHONPATH": str(ROOT)},
            folder=self._folder,
            module="tests.cluster.child",
            timeout_s=TIMEOUT_S,
        )

    def told(
        self, commands: str, *at_points: str, document: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        done = self.run(commands, *at_points, document=document)
        assert done.returncode == 0, done.stderr[-6000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def killed_at(self, commands: str, points: str) -> None:
        done = self.run(commands, points)
        assert done.returncode == -signal.SIGKILL, (points, done.stderr[-6000:])

    def end_journal(self) -> None:
        self._server.flush_journal()

    def archive(self) -> None:
        self.end_journal()
        to = self._folder / "archive"
        to.mkdir()
        for journal in self._server.journals()[:-1]:
            if journal.name >= self.document["start"]["journal"]:
                shutil.copy(journal, to)

    def captured_from_archive(self) -> Path:
        """Capture the archive into a lake of its own; its folder on the disk."""
        lake = f"{self.lake.rpartition('/')[0]}/from-archive"
        source = {"kind": "archive", "directory": str(self._folder / "archive")}
        sink = {**self.document["sink"], "lake_path": lake}
        own = {"name": "archived", "source": source, "start": "earliest", "sink": sink}
        assert self.told("capture", document={**self.document, **own})["capture"] == "applied"
        return self.on_disk.parent / "from-archive"

    def assert_equal(self, lake: Path | None = None, tables: tuple[str, ...] = ()) -> None:
        """The lake holds what the server's SELECT says, and each batch once."""
        for table in tables or tuple(COLUMNS):
            columns = COLUMNS[table]
            expected = server_rows(self._server, self._database, table, columns)
            found = lake_rows(None, lake or self.on_disk, self._database, table, columns)
            assert found == expected, table
        if lake is None:
            assert_each_batch_once(self.on_disk, "bank")


@pytest.fixture
def project(
    mysql_server: Server,
    mysql_database: str,
    gateway: Gateway,
    cluster: Cluster,
    tmp_path: Path,
) -> Iterator[Project]:
    made = Project(mysql_server, mysql_database, gateway, cluster, tmp_path)
    yield made
    made.workload.close()


def test_k2_k16_k17_every_command_on_a_cluster_over_a_bucket(project: Project) -> None:
    project.end_journal()
    project.workload.run(40)
    assert project.told("snapshot")["snapshot"] == "taken"
    project.end_journal()
    project.workload.run(40)
    project.workload.rolled_back_transaction()
    project.archive()
    told = project.told("capture,verify,maintain,backfill")
    assert told["capture"] == "applied"
    assert told["verify"][0] == "equal"
    assert len(told["verify"][1]) == len(COLUMNS)
    assert told["maintain"][0] == []
    assert told["maintain"][1]
    assert told["backfill"][0] == "applied"
    assert told["backfill"][1], "executors have decoded journals"
    project.assert_equal()
    project.assert_equal(project.on_disk.parent / "side", ("transfer",))
    project.assert_equal(project.captured_from_archive())


@pytest.mark.timeout(7200)
def test_k2_the_driver_is_killed_in_captures_and_the_next_one_goes_on(project: Project) -> None:
    """A chain: each run has to finish first what the one before had begun when it was killed."""
    for point in CAPTURE_POINTS:
        project.workload.run(12)
        project.killed_at("capture", point)
    project.workload.run(5)
    assert project.told("capture")["capture"] == "applied"
    project.assert_equal()


@pytest.mark.timeout(7200)
def test_k2_k17_the_driver_is_killed_in_a_load_and_the_next_one_goes_on(project: Project) -> None:
    """The last kill is that of the run that finishes the swap."""
    project.workload.run(20)
    for point in SNAPSHOT_POINTS:
        project.killed_at("snapshot", point)
        project.workload.run(3)
    project.told("snapshot,capture")
    project.assert_equal()


@pytest.mark.timeout(3600)
def test_k2_a_worker_is_killed_while_tables_are_merged(project: Project, cluster: Cluster) -> None:
    worker = cluster.workers[0]
    project.workload.run(40)
    told = project.told("capture", "between_merges", "SIGKILL", str(worker.group))
    assert told["reached"]
    assert not worker.running
    assert told["capture"] == "applied"
    project.assert_equal()
    cluster.start_again(worker)


@contextmanager
def _back_after(daemon: Daemon, away_s: float) -> Iterator[None]:
    ended = threading.Event()

    def watch() -> None:
        while not daemon.is_away and not ended.wait(0.2):
            pass
        if daemon.is_away:
            threading.Event().wait(away_s)
            daemon.come_back()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["SIGSTOP", "SIGKILL"])
def test_k2_k16_the_store_is_away_for_longer_than_the_lease(
    project: Project, gateway: Gateway, how: str
) -> None:
    """The lease is lost meanwhile (`lease_s`), so the run ends before it writes anything more; the
    next one takes the lease again and finishes the batch."""
    project.workload.run(40)
    with _back_after(gateway.daemon, OUTAGE_S):
        done = project.run("capture", "between_merges", how, str(gateway.daemon.group))
    assert done.returncode == 1, done.stderr[-4000:]
    assert "this run has lost the lease of its source" in done.stderr, done.stderr[-6000:]
    project.workload.run(3)
    assert project.told("capture")["capture"] == "applied"
    project.assert_equal()
