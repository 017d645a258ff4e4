"""What a run leaves on each asset, also if it found nothing: observations, and for assets with a
freshness policy materializations, which are all that Dagster's policies count."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import dagster as dg
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.errors import CursorError
from cdc_pipeline.operations.verify.checks import check_intervals_join
from cdc_pipeline.orchestration.cursor_store import cursors_of
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.events.observations import RunObservation, events_of
from cdc_pipeline.orchestration.metadata import shown
from cdc_pipeline.orchestration.runs.execute import CaptureRun, execute_capture
from cdc_pipeline.orchestration.translator import CdcTranslator
from tests.orchestration.test_suspended import HELD
from tests.support.dagster_runs import loaded_job
from tests.support.fake_capture import FakeCapture, cursor, cut, write_config
from tests.support.project import Project

CURSOR = dg.AssetKey(["shop", "cursor"])
ORDERS = dg.AssetKey(["shop", "shop", "orders"])
ITEMS = dg.AssetKey(["shop", "shop", "items"])
SOURCE_ORDERS = dg.AssetKey(["shop", "source", "shop", "orders"])
CUTS = [cut(batch=1, tables={"shop.orders": 1, "shop.items": 1})]


def _run(project: Project, instance: dg.DagsterInstance, *, extra: str = "") -> CaptureRun:
    write_config(project.jobs, "shop", include=("shop.orders", "shop.items"), extra=extra)
    run = execute_capture(loaded_job(project, FakeCapture(CUTS)), instance=instance)
    assert run.succeeded
    return run


def _keys(
    instance: dg.DagsterInstance, run: CaptureRun, kind: dg.DagsterEventType
) -> list[dg.AssetKey | None]:
    return [
        entry.get_dagster_event().asset_key for entry in instance.all_logs(run.run_id, of_type=kind)
    ]


def test_a_run_that_finds_nothing_leaves_an_observation_on_every_asset(
    project: Project, instance: dg.DagsterInstance
) -> None:
    _run(project, instance)
    idle = _run(project, instance)
    assert idle.report is not None
    assert idle.report.outcome == "nothing_new"
    observed = _keys(instance, idle, dg.DagsterEventType.ASSET_OBSERVATION)
    sources = {dg.AssetKey(["shop", "source", "shop", table]) for table in ("orders", "items")}
    assert sorted(observed) == sorted({CURSOR, ORDERS, ITEMS, *sources})
    assert not _keys(instance, idle, dg.DagsterEventType.ASSET_MATERIALIZATION)
    for key in (CURSOR, ORDERS, SOURCE_ORDERS):
        record = instance.fetch_observations(key, limit=1).records[0]
        assert record.run_id == idle.run_id
        assert record.asset_observation is not None
        assert record.asset_observation.metadata["checked_up_to"].value == "binlog.000003:1000"


def test_more_tables_than_the_setting_leave_the_cursor_alone(
    project: Project, instance: dg.DagsterInstance
) -> None:
    extra = "dagster: {observed_tables_max: 1}\n"
    _run(project, instance, extra=extra)
    idle = _run(project, instance, extra=extra)
    assert _keys(instance, idle, dg.DagsterEventType.ASSET_OBSERVATION) == [CURSOR]


def test_the_age_of_a_table_is_that_of_the_plan_if_the_log_was_read_to_its_end() -> None:
    found = RunObservation(cursor(), 3.25, 7200.0, "the driver").metadata()
    assert found["decoded_by"].value == "the driver"
    assert found["lag_seconds"].value == 3.25
    assert found["retention_headroom_seconds"].value == 7200.0
    unknown = RunObservation(cursor(), None, None).metadata()
    assert set(unknown) == {"checked_up_to"}


FRESH = "dagster: {freshness: {fail_window: 1h}, observed_tables_max: 0}\n"


def _freshness(instance: dg.DagsterInstance, project: Project, key: dg.AssetKey) -> FreshnessState:
    """What Dagster's daemon finds for an asset, by the evaluator that it uses."""
    node = build_definitions(project.jobs).resolve_asset_graph().get(key)
    evaluator = TimeWindowFreshnessPolicyEvaluator()
    return asyncio.run(evaluator.evaluate_freshness(LoadingContextForTest(instance), node))


def test_a_freshness_policy_counts_runs_that_find_nothing(
    project: Project, instance: dg.DagsterInstance
) -> None:
    _run(project, instance, extra=FRESH)
    idle = _run(project, instance, extra=FRESH)
    materialized = _keys(instance, idle, dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert materialized == [ITEMS, ORDERS, CURSOR]
    assert _freshness(instance, project, ORDERS) is FreshnessState.PASS
    versions = [
        event.tags["dagster/data_version"]
        for record in instance.fetch_materializations(ORDERS, limit=2).records
        if (event := record.asset_materialization) is not None and event.tags is not None
    ]
    assert versions == ["11", "11"], "what waits for new data sees that there is none"
    # The cursor's newest event holds the cursor: the next run continues as ever.
    third = _run(project, instance, extra=FRESH)
    assert third.report is not None
    assert third.report.outcome == "nothing_new"
    assert third.report.cursor == CUTS[0].cursor


def test_intervals_still_join_over_events_that_only_tell_freshness(
    project: Project, instance: dg.DagsterInstance
) -> None:
    _run(project, instance, extra=FRESH)
    _run(project, instance, extra=FRESH)
    config = load_config(project.jobs / "shop.yaml")
    cursors = cursors_of(instance, config, CdcTranslator())
    assert check_intervals_join(cursors).passed is None, "one batch has covered something"


def test_a_cursor_of_another_version_is_the_result_of_the_check_that_reads_old_ones() -> None:
    def history(_limit: int) -> list[Any]:
        raise CursorError("the cursor cannot be parsed", got="version 4")

    cursors: Any = SimpleNamespace(history=history)
    found = check_intervals_join(cursors)
    assert found.passed is None
    assert "version 4" in found.text


def test_values_of_metadata_are_plain_whatever_they_hold() -> None:
    given = MappingProxyType({("a", 1): {None: (1, Path("x"))}, True: {"b", "a"}, "n": None})
    expected = {"('a', 1)": {"None": [1, "x"]}, "True": ["a", "b"], "n": None}
    assert shown("entry", given).value == expected


def test_a_suspended_table_is_late(project: Project) -> None:

    class Hourly(CdcTranslator):
        def freshness_policy(self, config: object, table: str | None) -> dg.FreshnessPolicy:
            return dg.FreshnessPolicy.time_window(timedelta(hours=1))

    at = cursor(tables={"shop.orders": 1, "shop.items": 1})
    behind = at.targets["shop.orders"].model_copy(update={"suspended": HELD})
    at = at.model_copy(update={"targets": {**at.targets, "shop.orders": behind}})
    config = load_config(write_config(project.jobs, "shop"))
    events = list(events_of(config, Hourly(), RunObservation(at, 1.0, None), materialized={CURSOR}))
    kinds = {event.asset_key: type(event) for event in events}
    assert kinds[ITEMS] is dg.AssetMaterialization
    assert kinds[ORDERS] is dg.AssetObservation
    (of_orders,) = (event for event in events if event.asset_key == ORDERS)
    assert of_orders.metadata["checked_up_to"].value == "binlog.000003:500"
