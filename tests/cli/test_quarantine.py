"""``cdc-pipeline quarantine``: what needs no JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.lake.quarantine import read_entries
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.fake_capture import write_config
from tests.support.project import Project
from tests.targets.test_quarantine import _bad, _put


@pytest.fixture
def shop(project: Project) -> Project:
    """A lake with two rows in quarantine, and no cursor: it is rebuilt from the cut."""
    write_config(project.jobs, "shop", include=("shop.*",))
    _put(_sink(project.lake), 1, _bad())
    return project


def _sink(lake: Path) -> DeltaSink:
    return DeltaSink(source="shop", config=SinkConfig(lake_path=lake))


def _run(project: Project, *arguments: object) -> Result:
    return CliRunner().invoke(
        cli, ["--jobs", str(project.jobs), "quarantine", *map(str, arguments)]
    )


def _json(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_list_and_show_tell_place_and_cause(shop: Project) -> None:
    found = _json(_run(shop, "list", "shop", "--json"))
    assert [(entry["id"], entry["table"], entry["offset"]) for entry in found] == [
        ("1.1", "shop.t", 204), ("1.2", "shop.t", 204),
    ]  # fmt: skip
    assert "zero date" in _run(shop, "list", "shop").stdout
    assert _json(_run(shop, "list", "shop", "--table", "shop.other", "--json")) == []
    (one,) = _json(_run(shop, "show", "shop", "1.1", "--json"))
    assert one["change"]["after"]["n"] == "secret"
    assert bytes.fromhex(one["raw_hex"]) == bytes(range(14, 21))
    assert "secret" in _run(shop, "show", "shop", "1.1").stdout
    unknown = _run(shop, "show", "shop", "7.7")
    assert unknown.exit_code == 2
    assert "no such row" in unknown.stderr


def test_discard_is_confirmed_and_recorded_with_who_and_why(shop: Project) -> None:
    assert _run(shop, "discard", "shop", "--yes").exit_code == 2, "nothing by accident"
    assert _run(shop, "discard", "shop", "1.1").exit_code == 2, (
        "a discard without a terminal needs --yes"
    )
    assert len(_json(_run(shop, "list", "shop", "--json"))) == 2
    done = _json(_run(shop, "discard", "shop", "1.1", "--reason", "a test row", "--yes", "--json"))
    assert (done["discarded"], done["left"], done["batch_number"]) == (["1.1"], {}, 2)
    assert [entry["id"] for entry in _json(_run(shop, "list", "shop", "--json"))] == ["1.2"]
    sink = _sink(shop.lake)
    cut = sink.last_cut()
    assert cut is not None
    assert (cut.kind, cut.quarantine["shop.t"].rows) == ("replay", 1)
    assert "a test row" in cut.notes[0].text
    marked = next(read_entries(sink.paths, before=3))
    assert marked.mark is not None
    assert (marked.mark.what, marked.mark.why) == ("discarded", "a test row")
    assert "discarded" in _run(shop, "list", "shop", "--all").stdout
    shown = CliRunner().invoke(cli, ["--jobs", str(shop.jobs), "status", "shop"])
    assert "shop.t: 1 row in quarantine" in shown.stdout


def test_k18_a_replay_says_of_each_row_why_it_stays(shop: Project) -> None:
    left = _json(_run(shop, "replay", "shop", "--yes", "--json"), code=1)
    assert left["replayed"] == []
    assert left["left"].keys() == {"1.1", "1.2"}
    assert all("no target" in why for why in left["left"].values())
    assert left["batch_number"] is None
    assert _sink(shop.lake).cuts() == [1], "nothing done is no batch"
