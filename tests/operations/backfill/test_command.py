"""``cdc-pipeline backfill``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.operations.backfill.conftest import History

pytestmark = pytest.mark.mysql


def test_the_command_says_what_it_did(history: History, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "bank.yaml").write_text(
        f"source: {{kind: archive, directory: {history.archive}}}\nsink: {{lake_path: "
        f"{tmp_path / 'lake'}}}\n"
    )
    base = ["--jobs", str(jobs), "backfill", "bank", "--table", "shop.nothing"]
    into = [*base, "--into", str(tmp_path / "side"), "--from", history.journals[1]]
    run = CliRunner().invoke(cli, [*into, "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["outcome"] == "nothing_new"
    assert report["start"]["journal"] == history.journals[1]
    assert report["capture"]["spark_started"] is False
    again = CliRunner().invoke(cli, into)
    assert again.exit_code == 0
    assert "was done before" in again.stdout
    for wrong, why in (
        (base, "one of --into PATH, --rebuild and --gap"),
        ([*base, "--rebuild", "--until", "binlog.000003"], "--until cannot be used with --rebuild"),
        ([*into, "--rebuild"], "one of --into PATH, --rebuild and --gap"),
        ([*into, "--restart"], "--restart excludes --into"),
        ([*into, "--until", "some day"], "--until cannot be understood"),
        ([*into, "--until", "binlog.000003"], "started with another range"),
    ):
        refused = CliRunner().invoke(cli, wrong)
        assert refused.exit_code == 2, wrong
        assert why in " ".join((refused.stdout + refused.stderr).replace("│", " ").split()), wrong
