"""K4 in Dagster: a subset of a source's assets, and how suspended tables show."""

from __future__ import annotations

import dagster as dg
import pytest

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.errors import ConfigError, MergeError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import is_retryable, note_of, suspension, way_out
from cdc_pipeline.orchestration import build_definitions, execute_capture
from cdc_pipeline.orchestration.execute import LoadedSource
from cdc_pipeline.pipeline.capture.suspension import suspended_error
from cdc_pipeline.position.cursor import Suspension
from tests.support.fake_capture import FakeCapture, cut, write_config
from tests.support.project import Project

CURSOR = dg.AssetKey(["shop", "cursor"])
ORDERS = dg.AssetKey(["shop", "shop", "orders"])
ITEMS = dg.AssetKey(["shop", "shop", "items"])
HELD = Suspension(
    batch_number=1,
    error="SchemaError",
    what="a column too many",
    journal="binlog.000003",
    offset=500,
    next_step="look",
)


def _suspended_cut() -> Cut:
    made = cut(batch=2, tables={"shop.orders": 1, "shop.items": 2})
    targets = dict(made.cursor.targets)
    targets["shop.orders"] = targets["shop.orders"].model_copy(update={"suspended": HELD})
    return made.model_copy(
        update={
            "cursor": made.cursor.model_copy(update={"targets": targets}),
            "notes": (note_of("shop.orders", HELD),),
        }
    )


def _loaded(project: Project, capture: FakeCapture) -> LoadedSource:
    write_config(project.jobs, "shop", include=("shop.orders", "shop.items"))
    job = build_definitions(project.jobs, capture=capture, retry_wait_s=0).resolve_job_def(
        "shop_capture"
    )
    return LoadedSource(
        source="shop",
        job=job,
        cursor_key=CURSOR,
        config=load_config(project.jobs / "shop.yaml"),
    )


@pytest.mark.parametrize(
    "selection",
    [None, [ORDERS, ITEMS, CURSOR], [CURSOR], [ORDERS], [ORDERS, CURSOR], [ITEMS, ORDERS]],
)
def test_a_capture_is_the_whole_source_whatever_is_selected(
    project: Project, instance: dg.DagsterInstance, selection: list[dg.AssetKey] | None
) -> None:
    capture = FakeCapture([cut(batch=1, tables={"shop.orders": 1, "shop.items": 1})])
    result = _loaded(project, capture).job.execute_in_process(
        instance=instance, asset_selection=selection
    )
    assert result.success
    assert capture.tables == [None]
    # All events are there, whatever was selected.
    for key in (CURSOR, ORDERS, ITEMS):
        assert instance.get_latest_materialization_event(key) is not None


def test_k4_the_launchpad_names_the_tables_to_catch_up(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture([cut(batch=1, tables={"shop.orders": 1, "shop.items": 1})])
    result = _loaded(project, capture).job.execute_in_process(
        instance=instance,
        run_config={"ops": {"capture_shop": {"config": {"only_tables": ["shop.orders"]}}}},
    )
    assert result.success
    assert capture.tables == [["shop.orders"]]


def test_k4_tables_of_a_run_are_known_by_name(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture([cut(batch=1, tables={"shop.orders": 1, "shop.items": 1})])
    loaded = _loaded(project, capture)
    assert execute_capture(loaded, instance=instance, tables=["shop.items"]).succeeded
    assert capture.tables == [["shop.items"]]
    with pytest.raises(ConfigError, match=r"nowhere\.t"):
        execute_capture(loaded, instance=instance, tables=["nowhere.t"])


def test_k4_a_suspended_table_shows_with_cause_place_and_way_out(
    project: Project, instance: dg.DagsterInstance
) -> None:
    execute_capture(_loaded(project, FakeCapture([_suspended_cut()])), instance=instance)
    event = instance.get_latest_materialization_event(CURSOR)
    assert event is not None
    assert event.asset_materialization is not None
    shown = event.asset_materialization.metadata["suspended_tables"].value
    assert shown["shop.orders"]["cause"] == "SchemaError: a column too many"
    assert shown["shop.orders"]["stands_at"] == "binlog.000003:500"
    assert "look; each run tries to catch it up" in shown["shop.orders"]["way_out"]
    assert instance.get_latest_materialization_event(ORDERS) is None, (
        "nothing of it was materialized"
    )
    (observed,) = instance.fetch_observations(ORDERS, limit=5).records
    assert observed.asset_observation is not None
    assert observed.asset_observation.metadata["cause"].value == "SchemaError: a column too many"


def test_k4_the_error_of_a_run_is_retryable_where_its_causes_are() -> None:
    cursor = _suspended_cut().cursor
    gone = suspension(MergeError("Spark went away"), batch_number=1, at=cursor.position, epoch=1)
    assert is_retryable(gone)
    assert suspended_error({"shop.orders": gone}, cursor=cursor).retryable
    both = suspended_error({"shop.orders": gone, "shop.items": HELD}, cursor=cursor)
    assert not both.retryable
    assert "shop.items is suspended at binlog.000003:500: " in str(both)
    reload = HELD.model_copy(update={"needs_reload": True})
    assert "catching up cannot repair it" in way_out("shop.items", reload)
