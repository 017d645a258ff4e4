"""The files of docs/deploy/files are what the programs that read them expect, as far as can be seen
without a cluster."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
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

FILES = DOCS / "deploy" / "files"
UNITS = sorted(FILES.glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_accepts(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    text = unit.read_text(encoding="utf-8")
    program = re.search(r"^ExecStart=(\S+)/.venv/bin/(\S+)", text, re.MULTILINE)
    assert program is not None
    assert (Path(sys.executable).with_name(program[2])).is_file()
    here = tmp_path / unit.name
    # The account and the programs are those of the machine that it is made for.
    text = text.replace(program[0], "ExecStart=/bin/true")
    here.write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))
    (tmp_path / "cdc-pipeline-daemon.service").write_text(here.read_text())
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
    monkeypatch.setenv("DAGSTER_POSTGRES_HOST", "state")
    monkeypatch.setenv("DAGSTER_POSTGRES_PASSWORD", "secret")
    read, _ = dagster_instance_config(str(FILES))
    assert read["storage"]["postgres"]["postgres_db"]["db_name"] == "dagster"
    assert dg.__version__


def test_the_composition_is_whole() -> None:
    compose = yaml.safe_load((FILES / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"state", "daemon", "web"}
    assert services["daemon"]["command"][0] == "dagster-daemon"
    assert services["web"]["command"][0] == "dagster-webserver"
    for service in services.values():
        named = {one.split(":")[0] for one in service["volumes"] if one[0].isalpha()}
        assert named <= set(compose["volumes"])
    build = services["daemon"]["build"]
    context = (FILES / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]) == FILES / "Dockerfile"
    given = services["daemon"]["environment"]
    wanted = re.findall(r"env: (\w+)", (FILES / "dagster.yaml").read_text())
    assert set(wanted) <= set(given)


def test_the_image_is_made_of_files_that_are_there() -> None:
    text = (FILES / "Dockerfile").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ")]
    assert not [name for names in copied for name in names if not (ROOT / name).exists()]


def test_the_manifests_belong_together() -> None:
    config, job = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    assert (config["kind"], job["kind"]) == ("ConfigMap", "CronJob")
    assert job["apiVersion"] == "batch/v1"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }
    assert pod["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    source = container["command"][-1]
    assert f"{source}.yaml" in config["data"]


def test_the_manifests_pipeline_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cdc_pipeline.config.pipeline_config import load_config

    monkeypatch.setenv("SALES_PASSWORD", "x")
    config, _ = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
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
