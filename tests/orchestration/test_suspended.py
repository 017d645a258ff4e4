"""K4 in Dagster: a subset of a source's assets, and how suspended tables show: each fails its own
check `follows`, and no other asset's."""

from __future__ import annotations

import dagster as dg
import pytest

from cdc_pipeline.errors import ConfigError, MergeError, TargetSuspendedError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import is_retryable, note_of, suspension, way_out
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.runs.execute import LoadedSource, execute_capture
from cdc_pipeline.position.cursor import Suspension
from cdc_pipeline.run.capture.suspension import suspended_error
from tests.support.dagster_runs import last_event, loaded_job
from tests.support.fake_capture import FakeCapture, cut, write_config
from tests.support.project import Project

CURSOR = dg.AssetKey(["shop", "cursor"])
ORDERS = dg.AssetKey(["shop", "shop", "orders"])
ITEMS = dg.AssetKey(["shop", "shop", "items"])
_GOES_ON = "dagster: {fail_on_suspended: false}\n"
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


def _resumed_cut() -> Cut:
    return cut(batch=3, tables={"shop.orders": 3, "shop.items": 2})


def _loaded(project: Project, capture: FakeCapture, *, extra: str = "") -> LoadedSource:
    write_config(project.jobs, "shop", include=("shop.orders", "shop.items"), extra=extra)
    return loaded_job(project, capture)


def _follows(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.AssetCheckEvaluation | None:
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(key, "follows")]
    ).get(dg.AssetCheckKey(key, "follows"))
    event = None if record is None or record.event is None else record.event.dagster_event
    if event is None:
        return None
    assert isinstance(event.event_specific_data, dg.AssetCheckEvaluation)
    return event.event_specific_data


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


def test_k35_f192_a_run_makes_what_follows_a_table_too_unless_that_is_suspended(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """*Materialize all*, whether anything is new or not. No event of a table is there twice."""
    made: list[str] = []

    def after(table: dg.AssetKey) -> dg.AssetsDefinition:
        @dg.asset(name=f"of_{table.path[-1]}", deps=[table])
        def made_of_it() -> None:
            made.append(table.path[-1])

        return made_of_it

    _loaded(project, capture := FakeCapture([_suspended_cut()]), extra=_GOES_ON)
    definitions = dg.Definitions.merge(
        build_definitions(project.jobs, capture=capture),
        dg.Definitions(assets=[after(ORDERS), after(ITEMS)]),
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    for run in (1, 2):
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[ORDERS, ITEMS, CURSOR, *map(dg.AssetKey, ("of_orders", "of_items"))],
        )
        assert result.success
        assert made == ["items"] * run
        assert len(instance.fetch_materializations(ITEMS, limit=9).records) == 1


def test_k35_f249_outputs_keep_their_names_when_a_table_comes(project: Project) -> None:
    """The process of a step may load another table than that of its run has planned with: outputs
    by number were others' there, and Dagster skipped what waits for one, in a green run."""

    def name_of(*tables: str) -> str:
        write_config(project.jobs, "shop", include=tables)
        layer = build_definitions(project.jobs).resolve_job_def("shop_capture").asset_layer
        handle = layer.get_op_output_handle(ORDERS)
        assert handle is not None
        return handle.output_name

    assert name_of("shop.orders") == name_of("shop.aaa", "shop.orders")


def test_k4_a_suspended_table_shows_with_cause_place_and_way_out(
    project: Project, instance: dg.DagsterInstance
) -> None:
    execute_capture(_loaded(project, FakeCapture([_suspended_cut()])), instance=instance)
    event = last_event(instance, CURSOR)
    shown = event.metadata["suspended_tables"].value
    assert shown["shop.orders"]["cause"] == "a column too many"
    assert shown["shop.orders"]["stands_at"] == "binlog.000003:500"
    assert "look; each run tries to catch it up" in shown["shop.orders"]["way_out"]
    assert instance.get_latest_materialization_event(ORDERS) is None, (
        "nothing of it was materialized"
    )


def test_k4_each_table_tells_its_own_truth_in_the_run_that_found_it(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture([_suspended_cut()])
    run = execute_capture(_loaded(project, capture), instance=instance)
    assert not run.succeeded
    assert isinstance(run.error, TargetSuspendedError), "the command line is told"
    orders, items = _follows(instance, ORDERS), _follows(instance, ITEMS)
    assert items is not None
    assert items.passed
    assert orders is not None
    assert not orders.passed
    assert orders.severity is dg.AssetCheckSeverity.ERROR
    shown = {name: value.value for name, value in orders.metadata.items()}
    assert shown["stands_at"] == "binlog.000003:500"
    assert shown["cause"] == "a column too many"
    assert shown["command"] == "cdc-pipeline backfill shop --table shop.orders --rebuild"

    again = execute_capture(_loaded(project, capture), instance=instance)
    assert not again.succeeded
    told = instance.all_logs(again.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert len(told) == 1, "a run that finds nothing says again what is suspended, and only that"


def test_k4_a_table_that_follows_again_passes(
    project: Project, instance: dg.DagsterInstance
) -> None:
    execute_capture(_loaded(project, FakeCapture([_suspended_cut()])), instance=instance)
    capture = FakeCapture([_suspended_cut(), _resumed_cut()])
    run = execute_capture(_loaded(project, capture), instance=instance)
    assert (run.succeeded, run.error) == (True, None)
    orders = _follows(instance, ORDERS)
    assert orders is not None
    assert orders.passed


def _materialized(instance: dg.DagsterInstance, run_id: str) -> set[dg.AssetKey]:
    records = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return {
        entry.dagster_event.asset_key
        for entry in records
        if entry.dagster_event is not None and entry.dagster_event.asset_key is not None
    }


def test_k35_f88_a_run_that_leaves_a_table_suspended_fails_and_what_follows_is_green(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """Also in a run that changes nothing: Dagster calls a selected asset without a materialization
    of a failed run failed."""
    job = _loaded(project, FakeCapture([_suspended_cut()])).job
    for _ in ("suspends", "finds nothing"):
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not result.success
        assert _materialized(instance, result.run_id) == {ITEMS, CURSOR}
        told = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        assert len(told) == 2, "Dagster shows results of the newest materialization"
        (failed,) = [event for event in result.all_events if event.is_step_failure]
        assert "shop.orders is suspended at binlog.000003:500" in str(
            failed.step_failure_data.user_failure_data
        )


def test_k35_f88_a_run_that_leaves_a_table_suspended_succeeds_if_that_is_set(
    project: Project, instance: dg.DagsterInstance
) -> None:
    loaded = _loaded(project, FakeCapture([_suspended_cut()]), extra=_GOES_ON)
    run = execute_capture(loaded, instance=instance)
    assert run.succeeded
    assert isinstance(run.error, TargetSuspendedError), "the command line is told"
    orders = _follows(instance, ORDERS)
    assert orders is not None
    assert not orders.passed
    assert execute_capture(loaded, instance=instance).succeeded


@pytest.mark.parametrize("retryable", [False, True])
def test_k35_f88_what_may_pass_by_itself_is_tried_again_before_the_run_fails(
    project: Project, instance: dg.DagsterInstance, *, retryable: bool
) -> None:
    made = _suspended_cut()
    if retryable:
        gone = HELD.model_copy(update={"error": "MergeError"})
        orders = made.cursor.targets["shop.orders"].model_copy(update={"suspended": gone})
        targets = {**made.cursor.targets, "shop.orders": orders}
        made = made.model_copy(
            update={"cursor": made.cursor.model_copy(update={"targets": targets})}
        )
    capture = FakeCapture([made])
    loaded = _loaded(project, capture)
    run = execute_capture(loaded, instance=instance)
    assert not run.succeeded
    assert len(capture.bounds) == (3 if retryable else 1), "what may pass by itself is tried again"
    orders_check = _follows(instance, ORDERS)
    assert orders_check is not None
    assert not orders_check.passed


def test_k4_a_run_that_was_to_catch_a_table_up_fails_if_it_does_not(
    project: Project, instance: dg.DagsterInstance
) -> None:
    capture = FakeCapture([_suspended_cut()])
    loaded = _loaded(project, capture)
    assert not execute_capture(loaded, instance=instance, tables=["shop.orders"]).succeeded
    assert execute_capture(loaded, instance=instance, tables=["shop.items"]).succeeded


@pytest.mark.parametrize("materializes", [False, True])
def test_the_check_by_itself_reads_the_lake_and_captures_nothing(
    project: Project, instance: dg.DagsterInstance, *, materializes: bool
) -> None:
    capture = FakeCapture([_suspended_cut()])
    execute_capture(_loaded(project, capture), instance=instance)
    definitions = build_definitions(project.jobs, capture=capture, retry_wait_s=0)
    keys = [dg.AssetCheckKey(key, "follows") for key in (ORDERS, ITEMS)]
    selection = dg.AssetSelection.checks(*keys)
    if materializes:
        selection = selection | dg.AssetSelection.assets(ITEMS)
    job = dg.define_asset_job("checks", selection=selection)
    result = (
        dg.Definitions(
            assets=definitions.assets,
            asset_checks=definitions.asset_checks,
            jobs=[job],
            executor=dg.in_process_executor,
        )
        .resolve_job_def("checks")
        .execute_in_process(instance=instance, raise_on_error=False)
    )
    assert result.success is not materializes
    assert len(capture.bounds) == (2 if materializes else 1)
    told = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = {
        entry.dagster_event.asset_check_evaluation_data.asset_key: (
            entry.dagster_event.asset_check_evaluation_data.passed
        )
        for entry in told
        if entry.dagster_event is not None
    }
    assert found == {ORDERS: False, ITEMS: True}


def test_k4_the_error_of_a_run_is_retryable_where_its_causes_are() -> None:
    cursor = _suspended_cut().cursor
    gone = suspension(MergeError("Spark went away"), batch_number=1, at=cursor.position, epoch=1)
    assert is_retryable(gone)
    assert suspended_error({"shop.orders": gone}, cursor=cursor).retryable
    both = suspended_error({"shop.orders": gone, "shop.items": HELD}, cursor=cursor)
    assert not both.retryable
    assert "shop.items is suspended at binlog.000003:500: " in str(both)
    many = suspended_error({f"shop.t{number:03}": HELD for number in range(120)}, cursor=cursor)
    assert many.what.startswith("120 tables are suspended: shop.t000, shop.t001")
    for text in (many.got, many.next_step):
        *_, last = str(text).splitlines()
        assert last.strip() == "and 115 more: `cdc-pipeline status shop` tells of each"
        assert len(str(text).splitlines()) == 6
    reload = HELD.model_copy(update={"needs_snapshot": True})
    assert "catching up cannot repair it" in way_out("shop.items", reload, source="shop")
