"""K22: a pattern that has never matched a table fails the run, and a target is of one source (F7,
F8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, TablesConfig
from cdc_pipeline.errors import ConfigError, NothingMatchedError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore, TargetState
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from cdc_pipeline.run.plan.unmatched import nothing_matched, unmatched
from cdc_pipeline.sink.delta.table_log import SOURCE_PROPERTY
from tests.servers import Server
from tests.support.captures import live
from tests.support.fake_capture import cursor
from tests.targets.test_exact import config
from tests.targets.test_table_filter import filter_of

JOURNALS = Path(__file__).resolve().parents[3] / "cdc_pipeline" / "demo" / "shop" / "journals"


def archive(lake: Path, *include: str, **tables: Any) -> PipelineConfig:
    source = {"kind": "archive", "directory": JOURNALS}
    sections = {"tables": {"include": include, **tables}, "sink": {"lake_path": lake}}
    return PipelineConfig.model_validate({"name": "shop", "source": source, **sections})


def followed(*tables: str, **update: Any) -> CursorState:
    states = {
        name: TargetState(table=name, app_id=name, table_version=1, applied_batch=1)
        for name in tables
    }
    return cursor().model_copy(
        update={"targets": {n: s.model_copy(update=update) for n, s in states.items()}}
    )


def test_k22_a_table_of_catalog_log_or_lake_matches() -> None:
    """K22: what the catalog shows, what the cursor follows, and the name that a renamed table began
    with."""
    tables = filter_of(include=["shop.*", "crm.people", "*.x"], exclude=["shop.*"])
    assert unmatched(tables, [], None) == ("shop.*", "crm.people", "*.x")
    assert unmatched(tables, ["shop.orders"], None) == ("crm.people", "*.x"), (
        "also if it is excluded"
    )
    assert unmatched(tables, ["shop.orders"], followed("crm.people")) == ("*.x",)
    moved = followed("crm.folks", origin=("crm.people", "crm.people"))
    assert unmatched(tables, ["shop.orders", "a.x"], moved) == ()


@pytest.mark.parametrize(
    ("pattern", "near"), [("shop.oders", "shop.orders"), ("shpo.*", "shop.orders"), ("x.y", None)]
)
def test_k22_the_error_names_pattern_near_names_and_the_way_out(
    pattern: str, near: str | None
) -> None:
    """K22: what a person needs to correct a typo."""
    settings = config(tables={"include": [pattern]})
    error = nothing_matched(settings, ["shop.orders", "crm.people"], None)
    assert error is not None
    assert pattern in error.what
    assert (near in str(error.got)) if near else (str(error.got) == "2 other tables")
    assert "allow_empty" in str(error.next_step)
    assert (
        nothing_matched(config(tables={"include": [pattern], "allow_empty": True}), [], None)
        is None
    )


def test_k22_a_run_that_has_read_an_archive_to_its_end_fails_on_a_typo(tmp_path: Path) -> None:
    """K22, F8: before, it exited 0 with nothing new, for ever."""
    cursors = MemoryCursorStore()
    assert plan(archive(tmp_path, "shpo.orders"), cursors=cursors).unseen == (), "nobody knows yet"
    bounded = archive(tmp_path, "shpo.orders").model_copy(
        update={"bound": config(bound={"transactions": 1}).bound}
    )
    assert capture(bounded, cursors=cursors).outcome == "nothing_new", (
        "the rest of the log may have it"
    )
    for _ in range(2):
        with pytest.raises(NothingMatchedError, match=r"shpo\.orders"):
            capture(archive(tmp_path, "shpo.orders"), cursors=cursors)
    assert plan(archive(tmp_path, "shpo.orders"), cursors=cursors).unseen == ("shpo.orders",)
    assert (
        capture(archive(tmp_path, "shpo.orders", allow_empty=True), cursors=cursors).outcome
        == "nothing_new"
    )


def test_k22_a_run_of_a_server_fails_on_a_table_that_the_account_does_not_see(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """K22, F8: also from `latest` on, where the log may never tell."""
    server.execute(f"CREATE TABLE `{fresh_database}`.orders (id INT PRIMARY KEY)")
    sections = {"source": live(server), "start": "latest", "sink": {"lake_path": tmp_path}}
    made = config(**sections, tables={"include": [f"{fresh_database}.ordesr"]})
    with pytest.raises(NothingMatchedError) as caught:
        capture(made, cursors=MemoryCursorStore())
    assert f"{fresh_database}.orders" in str(caught.value.got)
    assert "GRANT SELECT" in str(caught.value.next_step)
    right = made.model_copy(update={"tables": TablesConfig(include=(f"{fresh_database}.orders",))})
    assert capture(right, cursors=MemoryCursorStore()).outcome == "nothing_new"


def test_k31_f86_a_snapshot_that_finds_no_table_fails_as_a_run_does(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """F86: it said that no table needs a snapshot, and exited with 0."""
    server.execute(f"CREATE TABLE `{fresh_database}`.orders (id INT PRIMARY KEY)")
    made = config(
        source=live(server),
        start="latest",
        tables={"include": [f"{fresh_database}.oders"]},
        sink={"lake_path": tmp_path},
    )
    with pytest.raises(NothingMatchedError) as caught:
        take_snapshot(made, cursors=MemoryCursorStore())
    assert f"{fresh_database}.orders" in str(caught.value.got)
    server.create_replication_user("blind", grants=("REPLICATION SLAVE", "REPLICATION CLIENT"))
    section = {**live(server), "user": "blind"}
    unseen = config(
        source=section,
        start="latest",
        tables={"include": [f"{fresh_database}.orders"]},
        sink={"lake_path": tmp_path / "unseen"},
    )
    with pytest.raises(NothingMatchedError, match=f"no table matches {fresh_database}.orders"):
        take_snapshot(unseen, cursors=MemoryCursorStore())
    assert "GRANT SELECT" in str(caught.value.next_step)


def owned(lake: Path, table: str, source: str) -> None:
    """A Delta table of another source."""
    import pyarrow as pa
    from deltalake import write_deltalake

    path = LakePaths(lake, source).table(table)
    write_deltalake(str(path), pa.table({"id": [1]}))
    (file,) = (path / "_delta_log").glob("*.json")
    file.write_text(
        file.read_text().replace(
            '"configuration":{}', json.dumps({"configuration": {SOURCE_PROPERTY: source}})[1:-1]
        )
    )


def test_k16_a_target_of_another_source_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """K16, F7: by `plan` and by `run`; the lake's own source goes on, and so does one with another
    target."""
    owned(tmp_path, "shop.orders", "other")
    for act in (plan, capture):
        with pytest.raises(ConfigError, match=r"shop\.orders belongs to source other"):
            act(archive(tmp_path, "shop.orders"), cursors=MemoryCursorStore())
    assert not list((tmp_path / "_cdc" / "shop").rglob("*.json"))
    assert plan(archive(tmp_path, "shop.customers"), cursors=MemoryCursorStore()).tables


def test_k16_a_snapshot_of_a_target_of_another_source_is_refused_before_rows_are_read(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """K16, F7: before, it read every row and ended with a KeyError."""
    server.execute(f"CREATE TABLE `{fresh_database}`.t (id INT PRIMARY KEY)")
    owned(tmp_path, f"{fresh_database}.t", "other")
    source = {"source": live(server), "start": "latest", "sink": {"lake_path": tmp_path}}
    with pytest.raises(ConfigError, match="belongs to source other"):
        take_snapshot(
            config(**source, tables={"include": [f"{fresh_database}.t"]}),
            cursors=MemoryCursorStore(),
        )
    assert not (tmp_path / "_cdc" / "bank" / "operations").exists()
