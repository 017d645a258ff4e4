"""`cdc-pipeline init`: what it writes, and what it refuses to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.cli.common.settings import Settings
from cdc_pipeline.cli.demo import _choose_project
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.orchestration.runs.execute import load_source
from tests.servers import Server
from tests.support.project import ROOT


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def _files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_a_project_for_a_server_is_valid_and_loads_in_dagster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _invoke("init", "new", "--source", "billing", "--json")
    assert done.exit_code == 0, done.output
    project = tmp_path / "new"
    assert set(json.loads(done.stdout)["files"]) == _files(project)
    texts = {name: (project / name).read_text() for name in _files(project)}
    schema = json.loads(texts.pop("jobs/.schema.json"))
    assert schema["properties"]["tables"]
    assert texts["jobs/billing.yaml"].startswith("# yaml-language-server: $schema=.schema.json\n")
    assert "sales" not in "".join(texts.values())

    monkeypatch.chdir(project)
    assert "BILLING_PASSWORD is not set" in _invoke("validate").output
    script = 'set -a; . ./.env.example; printf %s "$BILLING_PASSWORD"'
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    monkeypatch.setenv("BILLING_PASSWORD", said.stdout)
    assert _invoke("validate").exit_code == 0
    config = load_config(project / "jobs" / "billing.yaml")
    assert list(config.tables.include) == ["billing.*"]
    loaded = load_source(project / "jobs", "billing")
    assert loaded.job.name == "billing_capture"


def test_the_journals_of_an_archive_are_one_comment_away(tmp_path: Path) -> None:
    """The commented section of `jobs/sales.yaml`, in the place of the first one, is valid."""
    assert _invoke("init", "new").exit_code == 0
    file = tmp_path / "new" / "jobs" / "sales.yaml"
    lines = file.read_text().splitlines()
    start, archive = lines.index("source:"), lines.index("# source:")
    end = archive + 3
    section = [line.removeprefix("# ") for line in lines[archive:end]]
    kept = lines[: start - 1] + section + lines[end:]
    file.write_text("\n".join(line for line in kept if line != "start: latest"))
    assert load_config(file).source.kind == "archive"


def test_dagsters_settings_are_those_of_the_checkout(tmp_path: Path) -> None:
    assert _invoke("init", "new").exit_code == 0
    home = tmp_path / "new" / "dagster_home"
    assert (home / "dagster.yaml").read_text() == (
        ROOT / "dagster_home" / "dagster.yaml"
    ).read_text()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
    workspace = yaml.safe_load((tmp_path / "new" / "workspace.yaml").read_text())
    (location,) = workspace["load_from"]
    assert (tmp_path / "new" / location["python_file"]["relative_path"]).is_file()


def test_without_dagster_cursors_are_in_the_lake_until_it_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("cdc_pipeline.cli.init.has_dagster", lambda: False)
        assert _invoke("init", "new").exit_code == 0
    project = tmp_path / "new"
    assert _files(project) == {
        "jobs/sales.yaml",
        "jobs/.schema.json",
        "README.md",
        "grants.sql",
        ".env.example",
        ".gitignore",
    }
    assert "CDC_PIPELINE_CURSOR=lake" in (project / ".env.example").read_text()
    assert "binlog_row_metadata = 'FULL'" in (project / "grants.sql").read_text()
    monkeypatch.chdir(project)
    added = _invoke("init", ".", "--add-dagster", "--json")
    assert set(json.loads(added.stdout)["files"]) == {
        "jobs/definitions.py",
        "workspace.yaml",
        "dagster_home/dagster.yaml",
    }
    assert _invoke("init", ".", "--add-dagster").exit_code == 2


def test_with_the_grants_that_are_written_the_doctor_finds_no_mistake(
    tmp_path: Path, server: Server, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked on a terminal and what is given make one pipeline; Enter is a default."""
    user = f"it's_{fresh_database}"[:30]
    server.execute(f"CREATE TABLE {fresh_database}.orders (id INT PRIMARY KEY)")
    with monkeypatch.context() as patch:
        patch.setattr("cdc_pipeline.cli.init.is_interactive", lambda: True)
        arguments = ("--host", "127.0.0.1", "--user", user, "--reader", "duckdb")
        told = f"{server.port}\n{server.flavor}\n{fresh_database}.*, other.t\n\n"
        done = CliRunner().invoke(cli, ["init", "new", *arguments], input=told)
    assert done.exit_code == 0, done.output
    project = tmp_path / "new"
    monkeypatch.chdir(project)
    monkeypatch.setenv("SALES_PASSWORD", "choose-one")
    config = load_config(project / "jobs" / "sales.yaml")
    assert config.sink.lake_path == project / "lake"
    assert config.sink.reader_features == ("duckdb",)
    assert config.tables.include == (f"{fresh_database}.*", "other.t")
    statements = (project / "grants.sql").read_text().replace("`other`", f"`{fresh_database}`")
    try:
        server.execute_all(*(one for one in statements.splitlines() if not one.startswith("--")))
        text = (project / "jobs" / "sales.yaml").read_text().replace(', "other.t"', "")
        (project / "jobs" / "sales.yaml").write_text(text)
        areas = [part for area in ("server", "grants", "tables") for part in ("--area", area)]
        found = json.loads(_invoke("--cursor", "lake", "doctor", "sales", *areas, "--json").stdout)
    finally:
        server.execute(f"""DROP USER "{user}"@'%'""")
    assert found["worst"] in ("ok", "note", "warning"), found
    assert not [
        one
        for one in found["findings"]
        if one["area"] == "grants" and one["severity"] not in ("ok", "note")
    ], found


def test_answers_that_make_no_pipeline_write_nothing(tmp_path: Path) -> None:
    done = _invoke("init", "new", "--table", "nonsense")
    assert done.exit_code == 2
    assert "'nonsense' is not a pattern" in done.stderr
    assert not (tmp_path / "new").exists()


def test_what_is_given_stands_in_every_file(tmp_path: Path) -> None:
    given = ("--lake", "data/", "--host", "db.local", "--port", "3307")
    done = _invoke("init", "new", *given)
    read_me, ignored, grants = (
        tmp_path / "new" / name for name in ("README.md", ".gitignore", "grants.sql")
    )
    assert "\n/data/\n" in ignored.read_text()
    assert "| `data/` |" in read_me.read_text()
    for text in (done.output, read_me.read_text(), grants.read_text()):
        assert "mysql -h db.local -P 3307 -u root -p < grants.sql" in text
    for command in ("< grants.sql", "cp .env.example .env"):  # a shell takes the line as it is
        assert f"{command}   # " in done.output
    assert grants.stat().st_mode & 0o777 == 0o600
    assert _invoke("init", "far", "--lake", "s3a://bucket/lake").exit_code == 0
    assert "| `s3a://bucket/lake` |" in (tmp_path / "far" / "README.md").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "new" / "jobs").mkdir(parents=True)
    mine = tmp_path / "new" / "README.md"
    mine.write_text("mine")
    done = _invoke("init", "new")
    assert done.exit_code == 2
    assert "README.md" in done.stderr
    assert _files(tmp_path / "new") == {"README.md"}
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["1st", "a/b", "../up", "", "a b", "x" * 101])
def test_a_name_that_cannot_name_a_source_is_refused(tmp_path: Path, name: str) -> None:
    done = _invoke("init", "new", "--source", name)
    assert done.exit_code == 2
    assert "cannot name a source" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("a file")
    done = _invoke("init", "new/project")
    assert done.exit_code == 1
    assert "new" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.whole  # its tables by a run: test_real_runs
@pytest.mark.spark
def test_the_demo_needs_no_project(tmp_path: Path) -> None:
    """In an empty folder it makes one, says each step, and a second demo finds nothing to do."""
    program = (
        "import sys; sys.modules['dagster'] = None; from cdc_pipeline.cli.app import run; run()"
    )
    environment = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}

    def demo() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, "demo", "--json"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )

    first = demo()
    report = json.loads(first.stdout)
    assert report["verified"]
    assert [check["differences"] for check in report["checks"]] == [[]] * 5
    for step in (
        "Dagster is not installed: the demo keeps its cursor in the lake",
        "made the demo's project in cdc_demo",
        "first run",
        "second run",
        "comparing the tables with the server's SELECT",
    ):
        assert step in first.stderr
    second = json.loads(demo().stdout)
    assert [run["outcome"] for run in second["runs"]] == ["nothing_new"]
    assert second["checks"] == []
    assert _files(tmp_path / "cdc_demo") >= {"README.md", "jobs/shop.yaml"}
    kept = _invoke("--jobs", "cdc_demo/jobs", "--cursor", "lake", "status", "shop", "--json")
    assert json.loads(kept.stdout)["state"] == "ready"


def test_the_demo_says_how_dagster_shows_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DAGSTER_HOME, `dagster dev` would show an instance of its own."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.chdir(tmp_path)
    made = _choose_project(Settings())
    assert made.startswith("cd cdc_demo; there `cdc-pipeline status shop`")
    monkeypatch.chdir(tmp_path / "cdc_demo")
    assert made == f"cd cdc_demo; there {_choose_project(Settings())}"
    assert 'export DAGSTER_HOME="$PWD/dagster_home"' in made
    assert "DAGSTER_HOME" not in _choose_project(Settings(cursor="lake"))


def test_a_name_that_its_server_may_take_as_it_is_says_so(tmp_path: Path) -> None:
    """With partial_revokes a backslash belongs to the name."""
    for flavor, table, is_told in (
        ("mysql", "w_x.*", True), ("mysql", "shop.*", False), ("mariadb", "w_x.*", False)
    ):  # fmt: skip
        project = tmp_path / f"{flavor}-{table[0]}"
        assert _invoke("init", str(project), "--flavor", flavor, "--table", table).exit_code == 0
        assert ("@@partial_revokes" in (project / "grants.sql").read_text()) is is_told
