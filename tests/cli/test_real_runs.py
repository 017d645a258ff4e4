"""The pipeline's own capture by commands: the shop, twice, and an idle run's cost. A run is a
process of its own, since its JVM is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from cdc_pipeline.cli.app import cli
from tests.support.dagster_runs import last_event
from tests.support.project import ROOT, Project

SCRIPT = str(Path(sys.executable).with_name("cdc-pipeline"))
SHOP = ROOT / "cdc_pipeline" / "demo" / "shop"

# Enough for a batch of several tables and a DDL of one; `cdc-pipeline demo` verifies all five.
TABLES = ("orders", "products")
OTHER_TABLES = ("shop.customers", "shop.order_items", "shop.stock_movements")


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The shipped pipeline with two of its tables, in the test's own project; what was recorded of
    its journals."""
    shutil.copy(ROOT / "jobs" / "definitions.py", project.jobs)
    text = (ROOT / "jobs" / "shop.yaml").read_text()
    directory = "directory: ../cdc_pipeline/demo/shop/journals"
    assert directory in text
    text = text.replace(directory, f"directory: {SHOP / 'journals'}")
    for table in OTHER_TABLES:
        assert f"    - {table}\n" in text
        text = text.replace(f"    - {table}\n", "")
    (project.jobs / "shop.yaml").write_text(text)
    monkeypatch.chdir(project.root)
    recording: dict[str, Any] = json.loads((SHOP / "recording.json").read_text())
    return recording


def _run(*arguments: str) -> Any:
    done = subprocess.run(
        [SCRIPT, "run", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments), prog_name="cdc-pipeline")
    assert done.exit_code == 0, done.output
    return done.stdout


def _of_event(instance: dg.DagsterInstance, table: str, entry: str) -> object:
    """An entry of the newest event of a Delta table."""
    event = last_event(instance, dg.AssetKey(["shop", "shop", table]))
    return event.metadata[entry].value


@pytest.mark.spark
def test_two_runs_of_the_shop_meet_in_the_middle_and_a_third_is_idle(
    shop: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    """Also: the third run proves its zero, without a JVM (what it costs: `make bench
    NAME=idle`)."""
    middle = shop["middle"]
    bound = ["--until", f"{middle['journal']}:{middle['offset']}"]
    assert (
        json.loads(_printed("plan", "shop", *bound, "--json"))["end"]["offset"] == middle["offset"]
    )
    first = _run("shop", *bound)
    assert first["cursor"]["gtid_set"] == middle["gtid_set"]
    assert (first["cursor"]["journal"], first["cursor"]["offset"]) == (
        middle["journal"],
        middle["offset"],
    )
    for table in TABLES:  # the server's own counts of rows, by the Delta logs alone
        assert _of_event(instance, table, "dagster/row_count") == middle["rows"][table]
    second = _run("shop")
    assert second["plan"]["start"]["offset"] == middle["offset"]
    third = _run("shop")
    assert third["outcome"] == "nothing_new"
    assert third["spark_started"] is False
    assert third["cursor"] == second["cursor"]
    for table in TABLES:
        target = second["cursor"]["targets"][f"shop.{table}"]
        assert _of_event(instance, table, "delta_version") == str(target["table_version"])
        assert _of_event(instance, table, "dagster/row_count") == shop["end"]["rows"][table]
    assert json.loads(_printed("status", "shop", "--json"))["state"] == "ready"


def test_binlog_counts_what_the_recording_says(shop: dict[str, Any]) -> None:
    summary = json.loads(_printed("binlog", str(SHOP / "journals"), "--json"))
    assert summary["error"] is None
    assert [info["journal"] for info in summary["journals"]] == [
        info["name"] for info in shop["journals"]
    ]
    changes = shop["end"]["changes"]
    for table in shop["tables"]:
        found = summary["tables"][f"shop.{table}"]
        expected = changes[table]
        assert [found["inserts"], found["updates"], found["deletes"]] == [
            expected["insert"],
            expected["update"],
            expected["delete"],
        ]


def test_binlog_jsonl_gives_every_change_of_the_tables_asked_for(shop: dict[str, Any]) -> None:
    options = ("--format", "jsonl", "--table", "shop.products", "--no-statements")
    printed = _printed("binlog", str(SHOP / "journals"), *options)
    lines = [json.loads(line) for line in printed.splitlines()]
    assert {(line["schema"], line["table"]) for line in lines} == {("shop", "products")}
    assert len(lines) == sum(shop["end"]["changes"]["products"].values())
    assert set(lines[0]) == {
        "schema",
        "table",
        "op",
        "before",
        "after",
        "journal",
        "offset",
        "gtid",
        "ts",
    }


@pytest.mark.parametrize(
    ("option", "value", "ends"),
    [
        ("--until", "5d0c0ffe-0000-4000-8000-00000000cafe:5", "after the transaction 5d0c0ffe-"),
        ("--until-bytes", "2000", "at the first transaction end after 2,000 bytes of the log"),
    ],
)
def test_a_plan_names_what_ends_the_run_and_the_logs_end(
    shop: dict[str, Any], instance: dg.DagsterInstance, option: str, value: str, ends: str
) -> None:
    printed = _printed("plan", "shop", option, value)
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert any(row.startswith(f"end {ends}") for row in rows), printed
    assert any(row.startswith(f"at the latest {shop['end']['journal']}:") for row in rows)
    assert any(row.startswith("to read at most ") for row in rows)
