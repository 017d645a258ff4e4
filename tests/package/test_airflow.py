"""The example DAG of docs/deploy/airflow.md in a real Airflow, which has an environment of its own
(`make nightly`; a full environment of Airflow takes minutes to install)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.package.environments import Environment, build_wheel, locked_versions

DAG = DOCS / "deploy" / "files" / "airflow_dag.py"
VERSIONS = Path(__file__).with_name("airflow_requirements.txt")

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel, without Dagster, and the demo's project."""
    made = tmp_path_factory.mktemp("user")
    environment = Environment.make(made / "environment", made / "work")
    environment.install(
        "--constraint",
        str(locked_versions(made / "constraints.txt")),
        str(build_wheel(made / "dist")),
    )
    environment.run("cdc-pipeline", "init", "project", "--demo")
    return environment


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = tmp_path_factory.mktemp("airflow")
    environment = Environment.make(made / "environment", made / "work")
    environment.install("--requirement", str(VERSIONS))
    return environment


class Dags:
    def __init__(self, airflow: Environment, user: Environment) -> None:
        self._airflow = airflow
        home = airflow.working / "home"
        dags = home / "dags"
        dags.mkdir(parents=True, exist_ok=True)
        (dags / DAG.name).write_bytes(DAG.read_bytes())
        self._variables = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "CDC_PROJECT": str(user.working / "project"),
            "CDC_COMMAND": str(user.folder / "bin" / "cdc-pipeline"),
            "CDC_SOURCES": "shop",
        }
        self.run("db", "migrate")

    def run(self, *arguments: str, exit_code: int | None = 0, **variables: str) -> str:
        done = self._airflow.run(
            "airflow", *arguments, exit_code=exit_code, variables=self._variables | variables
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def dags(airflow: Environment, user: Environment) -> Dags:
    return Dags(airflow, user)


def test_a_run_of_the_dag_captures_the_source(dags: Dags, user: Environment) -> None:
    """Every table of the lake equals the server's SELECT, and a second run finds nothing."""
    said = dags.run("dags", "test", "cdc_pipeline")
    assert "shop: 65,495 row changes in" in said
    compared = user.run(
        "cdc-pipeline", "--cursor", "lake", "demo", "--json", cwd=user.working / "project"
    )
    report = json.loads(compared.stdout)
    assert [run["outcome"] for run in report["runs"]] == ["nothing_new"]
    assert [check["differences"] for check in report["checks"]] == [[]] * 5
    assert "shop: 65,495 row changes" not in dags.run("dags", "test", "cdc_pipeline")


def test_what_would_fail_again_is_not_repeated(dags: Dags) -> None:
    said = dags.run("dags", "test", "cdc_pipeline", exit_code=None, CDC_SOURCES="absent")
    assert "there is no source 'absent'" in said
    assert "AirflowFailException" in said
