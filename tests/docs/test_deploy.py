"""The files of docs/deploy/files are what the programs that read them expect, as far as can be seen
without a cluster."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from cdc_pipeline.errors import ConfigError, ServerUnreachableError
from tests.docs.pages import DOCS
from tests.house.test_commands import mistakes
from tests.support.project import ROOT
from tests.support.waits import wait_until

FILES = DOCS / "deploy" / "files"
_WAITING_RUN = """
import time
from pathlib import Path
import dagster as dg

@dg.op
def wait():
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.05)
    Path("ended").touch()

@dg.job(executor_def=dg.in_process_executor)
def waiting():
    wait()

defs = dg.Definitions(jobs=[waiting])
"""
_INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""
UNITS = sorted(FILES.glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_accepts(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    text = unit.read_text(encoding="utf-8")
    program = re.search(r"^ExecStart=(\S+)/.venv/bin/(\S+).*", text, re.MULTILINE)
    assert program is not None
    assert (Path(sys.executable).with_name(program[2])).is_file()
    here = tmp_path / unit.name
    # The account and the programs are those of the machine that it is made for.
    text = text.replace(program[0], "ExecStart=/bin/true")
    here.write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))
    (tmp_path / "cdc-pipeline-code.service").write_text(here.read_text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, said) == (0, [])


def test_the_instance_of_the_containers_is_the_projects_own_with_another_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = yaml.safe_load((ROOT / "dagster_home" / "dagster.yaml").read_text())
    of_containers = yaml.safe_load((FILES / "dagster.yaml").read_text())
    added = {"storage", "run_retries"}
    assert {k: v for k, v in of_containers.items() if k not in added} == shipped
    retries = of_containers["run_retries"]
    assert retries["retry_on_asset_or_op_failure"] is False, "for killed runs (F251)"
    monkeypatch.setenv("DAGSTER_POSTGRES_HOST", "state")
    monkeypatch.setenv("DAGSTER_POSTGRES_PASSWORD", "secret")
    read, _ = dagster_instance_config(str(FILES))
    assert read["storage"]["postgres"]["postgres_db"]["db_name"] == "dagster"
    assert dg.__version__


def test_the_composition_is_whole() -> None:
    compose = yaml.safe_load((FILES / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"state", "code", "daemon", "web"}
    assert services["daemon"]["command"][0] == "dagster-daemon"
    assert services["web"]["command"][0] == "dagster-webserver"
    for service in services.values():
        named = {one.split(":")[0] for one in service["volumes"] if one[0].isalpha()}
        assert named <= set(compose["volumes"])
        assert service["healthcheck"]["test"]
    (ours,) = {one["image"] for name, one in services.items() if name != "state"}
    assert f"-t {ours} ." in (FILES / "Dockerfile").read_text(encoding="utf-8")
    build = services["code"]["build"]
    context = (FILES / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]) == FILES / "Dockerfile"
    given = services["daemon"]["environment"]
    wanted = [
        name
        for file in ("dagster.yaml", "workspace.yaml")
        for name in re.findall(r"env: (\w+)", (FILES / file).read_text())
    ]
    assert set(wanted) <= set(given)


def test_the_image_is_made_of_files_that_are_there() -> None:
    text = (FILES / "Dockerfile").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ")]
    names = [name for line in copied for name in line]
    assert not [name for name in names if not (ROOT / name).exists()]
    ignored, *sent = [
        line
        for line in (FILES / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert ignored == "*"
    assert all(any(name.startswith(one[1:]) for one in sent if one[0] == "!") for name in names)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """For children that end by SIGINT: they would inherit that this process ignores it, as one in
    the background of a shell does, and Dagster's handler of SIGTERM is that of SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.nightly
@pytest.mark.usefixtures("interrupts")
def test_a_code_server_that_is_stopped_ends_when_its_runs_have_ended(tmp_path: Path) -> None:
    """What the unit, the container and their times to stop rest on."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(_INSTANCE)
    (tmp_path / "definitions.py").write_text(_WAITING_RUN)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "DAGSTER_CODE_HOST": "127.0.0.1"}
    unit = (FILES / "cdc-pipeline-code.service").read_text(encoding="utf-8")
    command = re.search(r"^ExecStart=\S+/(dagster api grpc .*)$", unit, re.MULTILINE)
    assert command is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    programs = Path(sys.executable).parent
    arguments = command[1].replace("4000", port).replace("jobs/", "").split()
    workspace = (FILES / "workspace.yaml").read_text(encoding="utf-8").replace("4000", port)
    (tmp_path / "workspace.yaml").write_text(workspace)
    running: dict[str, Any] = {"cwd": tmp_path, "env": environment}
    with ExitStack() as stack:
        server = subprocess.Popen([programs / arguments[0], *arguments[1:]], **running)
        stack.enter_context(server)
        stack.callback(server.kill)  # of a test that fails: `Popen` waits for its process
        health = [programs / "dagster", "api", "grpc-health-check", "-p", port]
        wait_until(lambda: subprocess.run(health, check=False, **running).returncode == 0)
        launch = [programs / "dagster", "job", "launch", "-w", "workspace.yaml", "-j", "waiting"]
        subprocess.run(launch, check=True, **running)
        wait_until((tmp_path / "started").exists)
        server.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(timeout=2)
        (tmp_path / "go").touch()
        wait_until(lambda: server.poll() is not None, "the code server outlives its ended run")
    assert (tmp_path / "ended").exists()


def test_the_manifests_belong_together() -> None:
    config, account, job = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    assert [one["kind"] for one in (config, account, job)] == [
        "ConfigMap",
        "ServiceAccount",
        "CronJob",
    ]
    assert job["spec"]["timeZone"]
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0
    assert job["apiVersion"] == "batch/v1"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }
    assert pod["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    source = container["command"][-1]
    assert f"{source}.yaml" in config["data"]


def test_the_manifests_pipeline_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cdc_pipeline.config.pipeline_config import load_config

    monkeypatch.setenv("SALES_PASSWORD", "x")
    config, *_ = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    for name, text in config["data"].items():
        (tmp_path / name).write_text(text)
        load_config(tmp_path / name)


class _Task:
    """As much of Airflow's `task` and `dag` as the example needs (`make nightly` has a real
    one)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def override(self, **_: Any) -> Callable[..., None]:
        return lambda *_: None

    def __call__(self) -> None:
        self.function()


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The example DAG, whose command prints what the file `said` contains."""
    command = tmp_path / "cdc-pipeline"
    command.write_text('#!/bin/sh\necho "$@" > arguments; cat said; exit $(cat code)\n')
    command.chmod(0o755)
    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    sdk.__dict__.update(dag=lambda **_: _Task, task=lambda **_: _Task)
    exceptions.__dict__.update(AirflowException=OSError, AirflowFailException=ValueError)
    for module in (ModuleType("airflow"), sdk, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("CDC_PROJECT", str(tmp_path))
    monkeypatch.setenv("CDC_COMMAND", str(command))
    spec = importlib.util.spec_from_file_location("airflow_dag", FILES / "airflow_dag.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "said", "raised"),
    [
        (0, {"outcome": "applied", "reason": "all", "batches": 1, "tables": {}, "x": 1}, None),
        (1, ServerUnreachableError("no answer").as_dict(), OSError),
        (2, ConfigError("a mistake").as_dict(), ValueError),
        (1, {"error": "KeyError", "what": "unexpected"}, OSError),
    ],
    ids=["done", "repeatable", "final", "unexpected"],
)
def test_the_dag_repeats_only_what_can_pass(
    dag: ModuleType,
    tmp_path: Path,
    code: int,
    said: dict[str, Any],
    raised: type[Exception] | None,
) -> None:
    (tmp_path / "said").write_text(json.dumps(said))
    (tmp_path / "code").write_text(str(code))
    if raised is None:
        found = dag.capture.function("sales")
        assert found == {"outcome": "applied", "batches": 1, "tables": {}}
    else:
        with pytest.raises(raised):
            dag.capture.function("sales")
    typed = (tmp_path / "arguments").read_text().split()
    assert not list(mistakes(" ".join(typed)))
