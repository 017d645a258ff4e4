"""The wheel, as a new user meets it: installed into an empty environment, used from an empty
folder, first without Dagster and then with it (`make nightly`)."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

import cdc_pipeline
from tests.conftest import temporary_database
from tests.package.environments import (
    Environment,
    build_wheel,
    follow_a_server,
    locked_versions,
)
from tests.servers import Server
from tests.support.project import ROOT

TYPED = """
import cdc_pipeline

report = cdc_pipeline.capture("jobs/shop.yaml")
batches: int = report.batches
wrong: str = report.batches
"""

CAPTURED = """
import sys, cdc_pipeline
report = cdc_pipeline.capture("jobs/shop.yaml")
newest = cdc_pipeline.cuts("lake", "shop", limit=1)[-1]
print(report.outcome, newest.number, "dagster" in sys.modules)
"""

FOREIGN = """
import dagster as dg
from cdc_pipeline import build_definitions

@dg.asset
def mine() -> None: ...

defs = dg.Definitions.merge(dg.Definitions(assets=[mine]), build_definitions("jobs"))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return locked_versions(tmp_path_factory.mktemp("locked") / "constraints.txt")


@pytest.fixture(scope="module")
def plain(wheel: Path, constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and no extra; `full` adds Dagster to it."""
    made = tmp_path_factory.mktemp("user")
    environment = Environment.make(made / "environment", made / "work")
    environment.install("--constraint", str(constraints), str(wheel))
    return environment


@pytest.fixture(scope="module")
def full(plain: Environment, wheel: Path, constraints: Path) -> Environment:
    plain.install("--constraint", str(constraints), f"{wheel}[dagster]", "mypy")
    return plain


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "cdc_pipeline"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout of git")
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        metadata = opened.read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert wanted == {name for name in names if ".dist-info/" not in name}
    for line in (
        "License-Expression: Apache-2.0",
        "Author: The cdc_pipeline authors",
        "Keywords: ",
        "Classifier: Typing :: Typed",
        "Provides-Extra: dagster",
        "Description-Content-Type: text/markdown",
    ):
        assert line in metadata


@pytest.mark.nightly
@pytest.mark.spark
def test_without_an_extra_everything_but_dagster_works(plain: Environment) -> None:
    assert not [name for name in plain.packages() if name.startswith("dagster")]
    demo = plain.run("cdc-pipeline", "demo", "--json")
    assert json.loads(demo.stdout)["verified"]
    for step in (
        "Dagster is not installed: the demo keeps its cursor in the lake",
        "made the demo's project in cdc_demo",
        "compiling the decoder for this machine",
        "starting Spark",
        "comparing the tables with the server's SELECT",
    ):
        assert step in demo.stderr

    project = plain.working / "cdc_demo"

    def cdc(*arguments: str) -> Any:
        return json.loads(plain.run("cdc-pipeline", *arguments, "--json", cwd=project).stdout)

    ran = cdc("run", "shop", "--cursor", "lake")
    assert ran["outcome"] == "nothing_new"
    assert cdc("status", "shop")["state"] == "ready"
    assert len(cdc("--cursor", "lake", "status", "shop", "--cursor")["tables"]) == 5
    assert cdc("cuts", "list", "shop")
    last = ran["cursor"]["batch_number"]
    assert plain.python(CAPTURED, cwd=project) == f"nothing_new {last} False"


@pytest.mark.nightly
@pytest.mark.spark
def test_without_an_extra_a_server_is_followed(plain: Environment, mysql_server: Server) -> None:
    plain.run("cdc-pipeline", "init", "of_a_server")
    project = plain.working / "of_a_server"
    assert not (project / "workspace.yaml").exists()
    environment = project / ".env.example"
    assert "CDC_PIPELINE_CURSOR=lake" in environment.read_text()
    with temporary_database(mysql_server) as database:
        follow_a_server(plain, project, mysql_server, database, cursor="lake")


@pytest.mark.nightly
@pytest.mark.spark
def test_with_dagster_the_demo_is_runs_that_dagster_shows(full: Environment) -> None:
    assert (
        full.run("python", "-m", "pip", "check").stdout.strip() == "No broken requirements found."
    )
    folder = full.working / "with_dagster"
    folder.mkdir()
    demo = json.loads(full.run("cdc-pipeline", "demo", "--json", cwd=folder).stdout)
    assert demo["verified"]
    project = folder / "cdc_demo"
    full.run("dagster", "definitions", "validate", "-w", "workspace.yaml", cwd=project)
    again = json.loads(full.run("cdc-pipeline", "run", "shop", "--json", cwd=project).stdout)
    assert again["outcome"] == "nothing_new"
    assert again["run_id"]


@pytest.mark.nightly
@pytest.mark.spark
def test_with_dagster_a_new_project_follows_a_server(
    full: Environment, mysql_server: Server
) -> None:
    full.run("cdc-pipeline", "init", "my_project")
    project = full.working / "my_project"
    secret = {"SALES_PASSWORD": "secret"}
    full.run("cdc-pipeline", "validate", cwd=project, variables=secret)
    full.run("dagster", "definitions", "validate", "-w", "workspace.yaml", cwd=project)
    with temporary_database(mysql_server) as database:
        follow_a_server(full, project, mysql_server, database)
    (project / "others.py").write_text(FOREIGN)
    full.run("dagster", "definitions", "validate", "-f", "others.py", cwd=project)


@pytest.mark.nightly
def test_every_public_name_is_there_and_typed(full: Environment) -> None:
    names = ", ".join(cdc_pipeline.__all__)
    assert full.python(f"from cdc_pipeline import {names}; print('ok')") == "ok"
    (full.working / "typed.py").write_text(TYPED)
    checked = full.run("mypy", "--strict", "typed.py", exit_code=1).stdout
    found = [line for line in checked.splitlines() if " error: " in line]
    assert len(found) == 1, checked
    assert found[0].startswith("typed.py:6: error: Incompatible types in assignment")
