"""``cdc-pipeline reset``: a table counts as wrong until a new snapshot has replaced it."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.cli.common import output
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from tests.support.fake_capture import cut, write_config, write_cut
from tests.support.project import Project


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(project.root)
    write_config(project.jobs, "shop", include=("shop.*",))
    write_cut(project.lake, cut(batch=1, tables={"shop.orders": 1, "shop.items": 2}))
    return project


def _run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False, **options)


def _last(project: Project) -> Cut:
    found = state.last_cut(LakePaths(project.lake, "shop"))
    assert found is not None
    return found


@pytest.mark.parametrize("where", ["dagster", "lake"])
def test_k19_the_table_is_partial_and_the_other_is_untouched(
    shop: Project, instance: dg.DagsterInstance, where: str
) -> None:
    before = _last(shop)
    done = _run(
        "--cursor", where, "reset", "shop", "shop.orders", "--yes", "--reason", "by hand", "--json"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "source": "shop",
        "tables": ["shop.orders"],
        "targets": ["shop.orders"],
        "cut": 2,
    }
    after = _last(shop)
    assert after.batch_number == 2
    assert after.cursor.targets["shop.orders"].partial
    assert not after.cursor.targets["shop.orders"].exact
    assert after.cursor.targets["shop.items"] == before.cursor.targets["shop.items"]
    assert after.cursor.position == before.cursor.position
    assert after.tables["shop.orders"].table_version == before.tables["shop.orders"].table_version
    (note,) = after.notes
    assert (note.kind, note.table) == ("reset", "shop.orders")
    assert ": by hand; it needs a new snapshot" in note.text
    shown = json.loads(_run("status", "shop", "--json").stdout)["tables"]
    assert "it was reset" in shown["shop.orders"]["needs_snapshot"]
    assert shown["shop.orders"]["next_step"] == "cdc-pipeline snapshot shop --table shop.orders"
    assert shown["shop.items"]["needs_snapshot"] == ""


def test_a_second_reset_does_nothing(shop: Project) -> None:
    for expected in ("cut 2 records", "nothing to do"):
        done = _run("--cursor", "lake", "reset", "shop", "shop.orders", "--yes")
        assert done.exit_code == 0, done.output
        assert expected in done.stdout
        assert "cdc-pipeline snapshot shop --table shop.orders" in done.stdout
    assert _last(shop).batch_number == 2


def test_nothing_is_reset_where_nobody_confirms(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ((), ("--json",)):
        done = _run("--cursor", "lake", "reset", "shop", "shop.orders", *options)
        assert done.exit_code == 2
        assert "give --yes" in done.stderr
    monkeypatch.setattr(output, "is_interactive", lambda: True)
    assert _run("--cursor", "lake", "reset", "shop", "shop.orders", input="n\n").exit_code == 1
    assert _last(shop).batch_number == 1
    assert _run("--cursor", "lake", "reset", "shop", "shop.orders", input="y\n").exit_code == 0
    assert _last(shop).batch_number == 2


def test_a_table_that_is_not_there_is_named_with_those_that_are(shop: Project) -> None:
    done = _run("--cursor", "lake", "reset", "shop", "shop.order", "--yes")
    assert done.exit_code == 2
    assert "one of: shop.items, shop.orders" in done.stderr
    assert "`cdc-pipeline status shop`" in done.stderr
    assert "nothing to reset" in " ".join(done.stderr.split())
    assert "shop.orders" in _run("status", "shop").stdout
    assert _last(shop).batch_number == 1
