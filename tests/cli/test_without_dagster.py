"""The command line where Dagster is not installed, with the cursor in the lake; and the way from
Dagster's cursor to the lake's and back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.run.wiring import build_lake_cursors
from tests.support.fake_capture import cursor
from tests.support.project import ROOT, Project

SHOP = ROOT / "cdc_pipeline" / "demo" / "shop"
SHOP_YAML = """
source: {{kind: archive, directory: {journals}}}
tables: {{include: [shop.orders, shop.products]}}
store: {{ring_events: 1024}}
sink: {{lake_path: ../lake}}
"""
# To an import it looks as if Dagster were not there.
WITHOUT_DAGSTER = (
    "import sys; sys.modules['dagster'] = None; from cdc_pipeline.cli.app import run; run()"
)


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two tables of the recorded shop; what was recorded of its journals."""
    (project.jobs / "shop.yaml").write_text(SHOP_YAML.format(journals=SHOP / "journals"))
    monkeypatch.chdir(project.root)
    recording: dict[str, Any] = json.loads((SHOP / "recording.json").read_text())
    return recording


def _without_dagster(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DAGSTER, *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def _told(*arguments: str) -> Any:
    """The same in this process, which has Dagster and a JVM that is warm."""
    done = _invoke(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.whole
@pytest.mark.spark
def test_k3_a_source_moves_from_the_lakes_cursor_to_dagsters_and_back(shop: dict[str, Any]) -> None:
    """K3: each store continues at the last cut, and nothing is read twice or left out."""
    middle = shop["middle"]
    states = _told("--cursor", "lake", "status", "shop", "--cursor")
    assert states["state"] == "never_run"
    first = _without_dagster(
        *("run", "shop", "--cursor", "lake"),
        *("--until", f"{middle['journal']}:{middle['offset']}"),
    )
    assert first["cursor"]["gtid_set"] == middle["gtid_set"]

    moved = _told("run", "shop")
    assert moved["plan"]["start"]["offset"] == middle["offset"]
    assert moved["cursor"]["gtid_set"] == shop["end"]["gtid_set"]

    view = _told("--cursor", "lake", "cursor", "show", "shop")
    assert not view["agrees"]
    assert "moved to cut" in view["next_run"]
    third = _told("run", "shop", "--cursor", "lake")
    assert third["outcome"] == "nothing_new"
    assert third["spark_started"] is False
    assert third["cursor"]["gtid_set"] == shop["end"]["gtid_set"]
    assert _told("--cursor", "lake", "cursor", "show", "shop")["agrees"]
    written = _told("--cursor", "lake", "cursor", "history", "shop")
    assert [entry["cursor"]["gtid_set"] for entry in written[:1]] == [shop["end"]["gtid_set"]]


@pytest.mark.parametrize(
    "command",
    ["run shop", "plan shop", "status", "status --cursor", "cursor show shop", "doctor shop"],
)
def test_without_dagster_both_ways_on_are_named(
    shop: dict[str, Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "dagster", None)
    result = _invoke(*command.split())
    if command == "status":
        assert result.exit_code == 0  # the lake's files tell it
        return
    assert result.exit_code == 1
    assert "pip install 'cdc-pipeline[dagster]'" in result.stderr
    assert "CDC_PIPELINE_CURSOR=lake" in result.stderr
    monkeypatch.setenv("CDC_PIPELINE_CURSOR", "lake")
    if command != "run shop":
        assert _invoke(*command.split()).exit_code in (0, 1)
        assert "not installed" not in _invoke(*command.split()).stderr


def test_a_schedule_that_only_dagster_can_check_says_so(
    project: Project, shop: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagster", None)
    assert _invoke("validate").exit_code == 0
    file = project.jobs / "shop.yaml"
    file.write_text(file.read_text() + "schedule: {cron: '@hourly'}\n")
    result = _invoke("validate")
    assert result.exit_code == 1
    assert "only Dagster can check" in result.stderr


DEFINITIONS = """
from pathlib import Path
from cdc_pipeline import build_definitions
from cdc_pipeline.errors import ConfigError
from tests.support.fake_capture import cursor

def capture(config, *, cursors, **_):
    found = cursors.read()
    Path("seen").write_text("none" if found is None else str(found.offset))
    if found is None:
        cursors.write(cursor(batch=0), {"interval": {}})
    raise ConfigError("stop here")

defs = build_definitions(Path(__file__).parent, capture=capture, retry_wait_s=0)
"""


@pytest.fixture
def before_the_first_cut(project: Project, shop: dict[str, Any]) -> Project:
    """A project whose capture moves the cursor to offset 1000, without a cut, if there is none."""
    (project.jobs / "definitions.py").write_text(DEFINITIONS)
    return project


def test_k3_the_lake_takes_over_dagsters_cursor_before_the_first_cut(
    before_the_first_cut: Project,
) -> None:
    """K3: with `start: latest` a run without it would begin at a later end of the log."""
    _invoke("run", "shop")
    assert (before_the_first_cut.root / "seen").read_text() == "none"
    document = json.loads(_invoke("--cursor", "lake", "cursor", "show", "shop", "--json").stdout)
    assert document["cursor"]["offset"] == 1000
    assert document["agrees"]


def test_k3_dagster_takes_over_the_lakes_cursor_before_the_first_cut(
    before_the_first_cut: Project,
) -> None:
    config = load_config(before_the_first_cut.jobs / "shop.yaml")
    build_lake_cursors(config).write(cursor(batch=0), {})
    _invoke("run", "shop")
    assert (before_the_first_cut.root / "seen").read_text() == "1000"
