"""Dagster as `make dev` starts it, on a project folder of the test's own.

Rules:
- The project is the shipped one: its workspace.yaml, jobs and dagster.yaml, copied; only where the
  journals are is said by their full path, so that the lake and Dagster's history lie in the copy.
- Nothing outlives the test: `dagster dev` and all that it starts are one session, ended as Ctrl-C
  does, then killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
LOCATION = "cdc_pipeline"
REPOSITORY = "__repository__"
START_DEADLINE_S = 300
RUN_DEADLINE_S = 400
_STOP_DEADLINE_S = 15
_POLL_S = 0.2

_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}
"""
_RUN = "query Run($id: ID!) { runOrError(runId: $id) { __typename ... on Run { status } } }"
_FAILURES = """
query Logs($id: ID!) {
  logsForRun(runId: $id) {
    ... on EventConnection {
      events {
        ... on ExecutionStepFailureEvent { error { message } failureMetadata { description } }
        ... on RunFailureEvent { message }
      }
    }
  }
}
"""


def copy_project(to: Path) -> Path:
    (to / "jobs").mkdir(parents=True)
    (to / "dagster_home").mkdir()
    shutil.copy(ROOT / "workspace.yaml", to)
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", to / "dagster_home")
    for file in (ROOT / "jobs").glob("*.py"):
        shutil.copy(file, to / "jobs")
    shop = yaml.safe_load((ROOT / "jobs" / "shop.yaml").read_text(encoding="utf-8"))
    shop["source"]["directory"] = str((ROOT / "jobs" / shop["source"]["directory"]).resolve())
    (to / "jobs" / "shop.yaml").write_text(yaml.safe_dump(shop), encoding="utf-8")
    return to


def ask(url: str, query: str, variables: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The data of an answer to `query` by the Dagster at `url`. One with errors fails the test."""
    request = urllib.request.Request(
        f"{url}/graphql",
        json.dumps({"query": query, "variables": dict(variables or {})}).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error}: {error.read().decode(errors='replace')[:2000]}") from error
    assert "errors" not in told, told["errors"]
    data: dict[str, Any] = told["data"]
    return data


def is_loaded(url: str) -> bool:
    try:
        found = ask(
            url, "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }"
        )
    except OSError:
        return False
    entries = found["workspaceOrError"].get("locationEntries", [])
    return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)


def launch(
    url: str,
    job: str,
    run_config: Mapping[str, object],
    selection: Mapping[str, object] | None = None,
) -> str:
    """Launch a job, or assets and checks of it, as a page does. The run's id."""
    selector = {
        "repositoryLocationName": LOCATION,
        "repositoryName": REPOSITORY,
        "jobName": job,
        **(selection or {}),
    }
    params = {"selector": selector, "mode": "default", "runConfigData": run_config}
    answer = ask(url, _LAUNCH, {"params": params})["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


class Dagit:
    """``dagster dev -w workspace.yaml`` in `project`, on a free port. A context manager: inside, it
    answers."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.log = project / "dagster-dev.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = threading.Event()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"

    def __enter__(self) -> Dagit:
        environment = {
            **os.environ,
            "DAGSTER_HOME": str(self.project / "dagster_home"),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
        }
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        dagster = Path(sys.executable).with_name("dagster")
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *prefix,
                    str(dagster),
                    "dev",
                    "-w",
                    "workspace.yaml",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    self.url.split(":")[-1],
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.project,
                env=environment,
                start_new_session=True,
                # A shell's background job ignores Ctrl-C, and so would its children.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        try:
            self._wait_ready()
            # The first visit's greeting would cover the pages.
            self.graphql("mutation { setNuxSeen }")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _STOP_DEADLINE_S
        # Not reaped before its group is killed: until then no other group can have its number.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > deadline:
                break
            self._pause.wait(_POLL_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None

    def graphql(self, query: str, variables: Mapping[str, object] | None = None) -> dict[str, Any]:
        return ask(self.url, query, variables)

    def launch(
        self,
        *,
        job: str,
        step: str,
        config: Mapping[str, object],
        selection: Sequence[tuple[str, ...]] = (),
        wanted: str = "SUCCESS",
    ) -> str:
        """Launch `job` with `config` for its step, as the launchpad does, and wait for its end,
        which is to be `wanted`; with a `selection` for these assets alone. The run's id."""
        chosen = {"assetSelection": [{"path": list(key)} for key in selection]}
        run_config = {"ops": {step: {"config": dict(config)}}}
        return self._launched(job, chosen if selection else {}, run_config, wanted)

    def run_job(self, job: str) -> str:
        return self._launched(job, {}, {})

    def materialize(self, *keys: str) -> str:
        chosen = [{"path": [key]} for key in keys]
        return self._launched("__ASSET_JOB", {"assetSelection": chosen}, {})

    def check(self, checks: Mapping[tuple[str, ...], Sequence[str]]) -> str:
        """Execute checks of assets alone, as their page does, and wait for success. The run's
        id."""
        selection = [
            {"assetKey": {"path": list(key)}, "name": name}
            for key, names in checks.items()
            for name in names
        ]
        return self._launched(
            "__ASSET_JOB", {"assetSelection": [], "assetCheckSelection": selection}, {}
        )

    def _launched(
        self,
        job: str,
        selection: Mapping[str, object],
        run_config: Mapping[str, object],
        wanted: str = "SUCCESS",
    ) -> str:
        run_id = launch(self.url, job, run_config, selection)
        deadline = time.monotonic() + RUN_DEADLINE_S
        while (status := self.graphql(_RUN, {"id": run_id})["runOrError"]["status"]) != wanted:
            assert status not in ("SUCCESS", "FAILURE", "CANCELED"), (
                status,
                self.graphql(_FAILURES, {"id": run_id}),
            )
            assert time.monotonic() < deadline, (
                f"run {run_id} is {status} after {RUN_DEADLINE_S} s\n{self._log_end()}"
            )
            self._pause.wait(_POLL_S)
        return run_id

    def pause(self) -> None:
        self._pause.wait(_POLL_S)

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            assert self._process.poll() is None, (
                f"dagster dev ended with {self._process.returncode}\n{self._log_end()}"
            )
            if is_loaded(self.url):
                return
            assert time.monotonic() < deadline, (
                f"no answer after {START_DEADLINE_S} s\n{self._log_end()}"
            )
            self._pause.wait(_POLL_S)

    def _log_end(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]
