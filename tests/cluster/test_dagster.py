"""Dagster with its state in PostgreSQL, the web server, the daemon and each run as processes of
their own: the cursor, limits, retries and backfills of docs/dagster.md hold there too."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.execution.backfill import BulkActionStatus

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.runs.execute import open_instance
from tests.browser.dagit import LOCATION, REPOSITORY, ask, is_loaded, launch
from tests.cluster.daemon import Daemon, free_port
from tests.cluster.postgres import (
    DATABASE,
    PASSWORD,
    USER,
    Postgres,
    find_postgres,
    running_postgres,
)
from tests.servers import Server
from tests.support.captures import SPARK, here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.dagster_runs import stored_run
from tests.support.lake_log import assert_each_batch_once, cuts_of
from tests.support.object_store import ROOT
from tests.support.workload import COLUMNS, Workload, create_tables

pytestmark = [pytest.mark.spark, pytest.mark.mysql, pytest.mark.nightly]

DEADLINE_S = 600
_PASSWORD_VARIABLE = "TESTS_DAGSTER_PASSWORD"
_CURSOR = dg.AssetKey(["bank", "cursor"])

# The first run of this project kills its own process behind a record; no other does.
_DEFINITIONS = """
import os
from contextlib import ExitStack
from pathlib import Path

from cdc_pipeline.fault_points import listening
from cdc_pipeline.orchestration.definitions import build_definitions
from tests.support.kills import AtPoint, sigkill

HERE = Path(__file__).resolve().parent


def die():
    try:
        os.close(os.open(HERE / "killed", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    sigkill()


kept = ExitStack()
kept.enter_context(listening(AtPoint("after_record", die)))
defs = build_definitions(HERE)
"""

_BACKFILL = """
mutation Backfill($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_SCHEDULE = """
query Schedule($selector: ScheduleSelector!) {
  scheduleOrError(scheduleSelector: $selector) { ... on Schedule { id } }
}
"""
_STOP = """
mutation Stop($id: String!) { stopRunningSchedule(id: $id) { __typename } }
"""


class Project:
    def __init__(self, folder: Path, server: Server, database: str, postgres: Postgres) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.postgres = postgres
        self._server = server
        self._database = database
        for name in ("jobs", "dagster_home"):
            (folder / name).mkdir()
        shutil.copy(ROOT / "workspace.yaml", folder)
        (folder / "jobs" / "definitions.py").write_text(_DEFINITIONS, encoding="utf-8")
        self._write("jobs/bank.yaml", self._pipeline())
        settings = yaml.safe_load((ROOT / "dagster_home" / "dagster.yaml").read_text())
        settings["storage"] = {
            "postgres": {
                "postgres_db": {
                    "hostname": "127.0.0.1",
                    "port": postgres.port,
                    "username": USER,
                    "password": {"env": _PASSWORD_VARIABLE},
                    "db_name": DATABASE,
                    "scheme": "postgresql+psycopg2",
                }
            }
        }
        deployed = ROOT / "docs" / "deploy" / "files" / "dagster.yaml"
        settings["run_retries"] = yaml.safe_load(deployed.read_text())["run_retries"]
        settings["run_monitoring"] |= {
            "poll_interval_seconds": 2,
            "free_slots_after_run_end_seconds": 2,
        }
        self._write("dagster_home/dagster.yaml", settings)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        own = ["-h", "127.0.0.1", "-p", str(self.port)]
        self.web = self._program("dagster-webserver", own, lambda: is_loaded(self.url))
        self.daemon = self._program("dagster-daemon", ["run"], lambda: True)

    def _pipeline(self) -> dict[str, Any]:
        return {
            "source": live(self._server),
            "tables": {"include": [f"{self._database}.{table}" for table in COLUMNS]},
            "start": here(self._server),
            "sink": {"lake_path": str(self.lake), "spark": SPARK},
            "schedule": {"cron": "* * * * *", "enabled": True},
        }

    def _write(self, name: str, document: dict[str, Any]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(document), encoding="utf-8")

    def _program(self, name: str, options: list[str], is_ready: Callable[[], bool]) -> Daemon:
        program = str(Path(sys.executable).with_name(name))
        return Daemon(
            name,
            [program, *options, "-w", "workspace.yaml"],
            log=self.folder / f"{name}.log",
            is_ready=is_ready,
            folder=self.folder,
            environment={
                "DAGSTER_HOME": str(self.folder / "dagster_home"),
                "DAGSTER_DISABLE_TELEMETRY": "yes",
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
                ),
                _PASSWORD_VARIABLE: PASSWORD,
            },
        )

    def stop_schedule(self) -> None:
        selector = {
            "repositoryLocationName": LOCATION,
            "repositoryName": REPOSITORY,
            "scheduleName": "bank_capture_schedule",
        }
        found = ask(self.url, _SCHEDULE, {"selector": selector})["scheduleOrError"]
        answer = ask(self.url, _STOP, {"id": found["id"]})["stopRunningSchedule"]
        assert answer["__typename"] == "ScheduleStateResult", answer

    def backfill(self, *tables: str) -> str:
        """Ask for partitions of the loads' asset, as its page does. The backfill's id."""
        params = {
            "assetSelection": [{"path": ["bank", "snapshot"]}],
            "partitionNames": [f"{self._database}.{table}" for table in tables],
        }
        answer = ask(self.url, _BACKFILL, {"params": params})["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.web.running
            assert self.daemon.running
            assert time.monotonic() < deadline, f"{what}\n{self.daemon.log_end()}"
            threading.Event().wait(0.5)

    def assert_equal(self) -> None:
        for table, columns in COLUMNS.items():
            expected = server_rows(self._server, self._database, table, columns)
            assert lake_rows(None, self.lake, self._database, table, columns) == expected, table
        assert_each_batch_once(self.lake, "bank")


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    try:
        find_postgres()
    except Exception as error:
        pytest.skip(str(error))
    with running_postgres() as running:
        yield running


@pytest.mark.timeout(3600)
def test_k3_k16_cursor_limits_retries_and_backfills_with_dagsters_state_in_postgresql(
    mysql_server: Server,
    mysql_database: str,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_tables(mysql_server, mysql_database)
    project = Project(tmp_path, mysql_server, mysql_database, postgres)
    monkeypatch.setenv(_PASSWORD_VARIABLE, PASSWORD)
    workload = Workload(mysql_server, mysql_database, seed=9)
    workload.run(20)
    with ExitStack() as stack:
        stack.callback(workload.close)
        instance = stack.enter_context(open_instance(project.folder / "dagster_home"))
        stack.enter_context(project.web)
        stack.enter_context(project.daemon)

        # A scheduled run dies; the daemon sees it, frees its slot and retries it.
        project.wait("no run failed", lambda: _runs(instance, dg.DagsterRunStatus.FAILURE))
        project.stop_schedule()
        project.wait("no retry", lambda: _runs(instance, dg.DagsterRunStatus.SUCCESS))
        (died,) = _runs(instance, dg.DagsterRunStatus.FAILURE)
        assert died.tags["dagster/schedule_name"] == "bank_capture_schedule"
        retries = [
            run
            for run in _runs(instance, dg.DagsterRunStatus.SUCCESS)
            if run.parent_run_id == died.run_id
        ]
        assert [run.tags["dagster/retry_number"] for run in retries] == ["1"]
        assert (project.folder / "jobs" / "killed").exists()
        _wait_for_all(project, instance)
        project.assert_equal()
        _assert_cursor(project, instance)

        # Two runs at once: the pool has one slot, so that the second one's step waits.
        workload.run(5)
        both = [launch(project.url, "bank_capture", {}) for _ in range(2)]
        _wait_for_all(project, instance, *both)
        first, second = sorted(_step(instance, run_id) for run_id in both)
        assert first[1] <= second[0], "their steps do not overlap"
        project.assert_equal()

        # The daemon is killed before it has launched what a backfill asks for.
        began = len(cuts_of(project.lake, "bank"))
        backfill_id = project.backfill("account", "transfer")
        project.daemon.kill()
        project.daemon.start()

        def is_filled() -> bool:
            found = instance.get_backfill(backfill_id)
            assert found is not None
            assert found.status not in (BulkActionStatus.FAILED, BulkActionStatus.COMPLETED_FAILED)
            return found.status is BulkActionStatus.COMPLETED_SUCCESS

        project.wait("the backfill does not end", is_filled)
        assert {"snapshot"} <= {cut.kind for cut in cuts_of(project.lake, "bank")[began:]}

        # The database goes away between two runs, and comes back.
        postgres.daemon.stop()
        postgres.daemon.start()
        project.web.kill()  # it keeps connections; the daemon does not
        project.web.start()
        workload.run(5)
        _wait_for_all(project, instance, launch(project.url, "bank_capture", {}))
        project.assert_equal()
        _assert_cursor(project, instance)
    assert not list((project.folder / "dagster_home").rglob("*.db")), "nothing is in SQLite"


def _runs(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(statuses=[status])))


def _wait_for_all(project: Project, instance: dg.DagsterInstance, *run_ids: str) -> None:
    project.wait(
        "a run does not end",
        lambda: all(run.is_finished for run in instance.get_runs()),
    )
    for run_id in run_ids:
        run = stored_run(instance, run_id)
        assert run.status is dg.DagsterRunStatus.SUCCESS, run_id


def _step(instance: dg.DagsterInstance, run_id: str) -> tuple[float, float]:
    kinds = dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_SUCCESS
    began, ended = (instance.all_logs(run_id, of_type=kind)[0].timestamp for kind in kinds)
    return began, ended


def _assert_cursor(project: Project, instance: dg.DagsterInstance) -> None:
    stored = DagsterCursorStore(instance, asset_key=_CURSOR, source="bank").read()
    cut = last_cut(LakePaths(project.lake, "bank"))
    assert stored is not None
    assert cut is not None
    assert stored.batch_number == cut.batch_number
    assert stored.position == cut.cursor.position
