"""``cdc-pipeline status`` and ``history``: what files tell, suspended tables included."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.lake.long_operations import Operation, begin, new_operation_id
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.status import stopped
from tests.sink.read.conftest import suspension
from tests.support.fake_capture import cursor, cut, write_config, write_cut
from tests.support.project import Project
from tests.support.told import COMMANDS, Told

LIVE = "source: {kind: live, host: db.example, user: cdc, password: x}\n"


def _suspended(made: Cut, table: str) -> Cut:
    target = made.cursor.targets[table].model_copy(update={"suspended": suspension()})
    targets = made.cursor.targets | {table: target}
    return made.model_copy(update={"cursor": made.cursor.model_copy(update={"targets": targets})})


@pytest.fixture
def shops(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A source that is fine, one with a suspended table, one that never ran, one with mistakes."""
    for name in ("fine", "held", "new"):
        write_config(project.jobs, name, include=("shop.*",))
    write_config(project.jobs, "wrong", extra="store: {ring_events: 1000}\n")
    write_cut(project.lake, cut("fine", batch=1, tables={"shop.orders": 1}))
    write_cut(project.lake, cut("held", batch=1, tables={"shop.orders": 1, "shop.items": 1}))
    last = _suspended(
        cut("held", batch=2, tables={"shop.orders": 2, "shop.items": 1}), "shop.items"
    )
    write_cut(project.lake, last)
    monkeypatch.chdir(project.root)
    return project


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def _json(*arguments: str) -> Any:
    return json.loads(_run(*arguments, "--json").stdout)


def test_sources_have_a_line_each_and_a_suspended_table_is_code_1(
    told: Told, shops: Project
) -> None:
    told.run("status", exit_code=1)
    told.run("status", "fine", exit_code=0)
    told.run("status", "held", exit_code=1)
    told.run("status", "wrong", exit_code=2)
    (shops.jobs / "held.yaml").unlink()
    told.run("status", exit_code=2)
    (shops.jobs / "wrong.yaml").unlink()
    told.run("status", exit_code=0)
    told.check("status", folder=COMMANDS)


def test_k4_the_state_of_a_source_with_suspended_tables_is_not_ready(shops: Project) -> None:
    found = _json("status")
    assert {name: one.get("state") for name, one in found.items()} == {
        "fine": "ready",
        "held": "suspended",
        "new": "no_cut",
        "wrong": None,
    }
    assert found["held"]["reason"].startswith("1 of 2 tables is suspended")


def test_k35_f250_a_first_snapshot_that_was_stopped_is_told_before_there_is_a_cut(
    shops: Project,
) -> None:
    config = load_config(shops.jobs / "new.yaml")
    tables = ("shop.orders",)
    state = Operation(
        operation_id=new_operation_id(),
        source="new",
        sources=tables,
        targets=tables,
        cursor=cursor("new"),
    )
    with ExitStack() as stack:
        begin(config, state, stack)
        assert f"of shop.orders: from {state.cursor.position}; under way" in _run(
            "status", "new"
        ).stdout.replace("\n", " ")
    said = "run the same `cdc-pipeline snapshot new --table shop.orders` again to continue it"
    assert said in _run("status", "new").stdout
    assert "snapshot stopped" in _run("status").stdout
    assert said in str(stopped(config).got), "as a command that Ctrl-C ends says it "


def test_an_archive_is_never_behind_and_a_server_is(shops: Project) -> None:
    assert _json("status", "fine")["lag_s"] == -1
    assert "ago" not in _run("status", "fine").stdout
    file = shops.jobs / "fine.yaml"
    text = file.read_text()
    file.write_text(LIVE + text[text.index("tables:") :])
    assert _json("status", "fine")["lag_s"] > 86_400
    assert " days ago" in _run("status", "fine").stdout
    assert " days" in _run("status").stdout


# -- history ---------------------------------------------------------------------------------------


def test_batches_are_listed_newest_first_without_dagster(told: Told, shops: Project) -> None:
    told.run("--cursor", "lake", "history", "held", exit_code=0)
    told.run("--cursor", "lake", "history", "held", "--limit", "1", exit_code=0)
    told.run("--cursor", "lake", "history", "new", exit_code=0)
    told.check("history", folder=COMMANDS)
    document = _json("--cursor", "lake", "history", "held")
    assert document["runs"] is None
    assert [batch["number"] for batch in document["batches"]] == [2, 1]
    assert document["batches"][0]["changed"] == {"shop.orders": 7, "shop.items": 7}


def test_runs_of_dagster_are_shown_with_what_they_published(
    fake_project: Project, instance: dg.DagsterInstance
) -> None:
    assert _run("run", "shop").exit_code == 0
    document = _json("history", "shop")
    (run,) = document["runs"]
    assert (run["job"], run["status"]) == ("shop_capture", "success")
    assert run["seconds"] > 0
    shown = _run("history", "shop").stdout
    for part in ("shop_capture", "success", run["run_id"][:8]):
        assert part in shown
