"""Old runs are deleted from Dagster, and the cursor survives it."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.jobs import run_retention
from cdc_pipeline.orchestration.jobs.run_retention import delete_old_runs
from cdc_pipeline.orchestration.runs.execute import LoadedSource, execute_capture
from cdc_pipeline.orchestration.translator import SOURCE_TAG, CdcTranslator
from cdc_pipeline.sink.maintain import maintenance
from cdc_pipeline.sink.maintain.maintenance import MaintenanceReport
from tests.support.dagster_runs import loaded_job
from tests.support.fake_capture import FakeCapture, cut, write_config
from tests.support.project import Project

CURSOR = dg.AssetKey(["shop", "cursor"])
AT_ONCE = timedelta(0)
CUTS = [
    cut(batch=1, tables={"shop.orders": 1, "shop.items": 1}),
    cut(batch=2, tables={"shop.orders": 2, "shop.items": 1}),
    cut(batch=3, tables={"shop.orders": 3, "shop.items": 1}),
]


def _load(project: Project, *cuts: Any, name: str = "shop") -> LoadedSource:
    if not (project.jobs / f"{name}.yaml").exists():
        write_config(project.jobs, name, include=("shop.orders", "shop.*"))
    return loaded_job(project, FakeCapture(list(cuts)), name)


def _run_all(project: Project, instance: dg.DagsterInstance) -> list[str]:
    """Runs of the batches 1 (both tables), 2 and 3 (orders alone), and two that find nothing."""
    each = [CUTS[:1], CUTS[:2], CUTS, CUTS, CUTS]
    return [execute_capture(_load(project, *cuts), instance=instance).run_id for cuts in each]


@pytest.fixture
def runs(project: Project, instance: dg.DagsterInstance) -> list[str]:
    return _run_all(project, instance)


def _delete(instance: dg.DagsterInstance, retention: timedelta | None = AT_ONCE) -> int:
    return delete_old_runs(instance, source="shop", retention=retention, translator=CdcTranslator())


def test_the_runs_of_the_cursor_and_of_each_table_s_newest_event_stay(
    project: Project, instance: dg.DagsterInstance, runs: list[str]
) -> None:
    """K3: the next run resumes from the cursor, whatever was deleted."""
    assert _delete(instance) == 3
    assert set(instance.get_run_ids()) == {runs[0], runs[2]}  # items, orders and the cursor
    store = DagsterCursorStore(instance, asset_key=CURSOR, source="shop")
    assert store.read() == CUTS[2].cursor
    assert [entry.run_id for entry in store.history(5)] == [runs[2], runs[0]]
    capture = FakeCapture(CUTS)
    run = execute_capture(loaded_job(project, capture), instance=instance)
    assert (run.succeeded, capture.starts) == (True, [CUTS[2].cursor])
    assert _delete(instance) == 1, "that run found nothing new"


def test_the_run_of_each_partition_s_newest_materialization_stays(
    project: Project, disk_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day that was filled is not shown as missing, however many there are."""
    monkeypatch.setattr(run_retention, "_RECORDS_PER_REQUEST", 2)

    def log(*partitions: str) -> str:
        @dg.op(name="logs")
        def logs(context) -> None:  # type: ignore[no-untyped-def]  # Dagster reads annotations
            for partition in partitions:
                context.log_event(dg.AssetMaterialization(key, partition=partition))

        job = dg.GraphDefinition(name="days", node_defs=[logs]).to_job(tags={SOURCE_TAG: "shop"})
        return job.execute_in_process(instance=disk_instance).run_id

    for key in (CdcTranslator().backfill_key("shop"), CdcTranslator().snapshot_key("shop")):
        first, again, last = log("a", "b"), log("a"), log("c")
        repeated = log("c")
        assert _delete(disk_instance) == 1
        assert {first, again, repeated} <= set(disk_instance.get_run_ids())
        assert last not in disk_instance.get_run_ids()
        assert disk_instance.get_materialized_partitions(key) == {"a", "b", "c"}


def test_nothing_of_a_deleted_run_stays_on_the_disk(
    project: Project, captured_output: None, disk_instance: dg.DagsterInstance
) -> None:
    runs = _run_all(project, disk_instance)

    def files() -> list[Path]:
        return [path for path in project.home.rglob("*") if runs[3] in str(path)]

    assert files()
    _delete(disk_instance)
    assert files() == []


@pytest.mark.usefixtures("runs")
def test_young_runs_runs_of_other_sources_and_runs_under_way_stay(
    project: Project, instance: dg.DagsterInstance
) -> None:
    assert _delete(instance, None) == 0
    assert _delete(instance, timedelta(days=1)) == 0
    other = execute_capture(_load(project, name="crm"), instance=instance)
    idle = _load(project, *CUTS)
    under_way = instance.create_run_for_job(idle.job, tags=dict(idle.job.tags)).run_id
    assert _delete(instance) == 3
    assert {other.run_id, under_way} <= set(instance.get_run_ids())


@pytest.mark.usefixtures("runs")
def test_the_maintenance_job_deletes_what_is_older_than_its_setting(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(
        project.jobs,
        "shop",
        include=("shop.orders", "shop.*"),
        extra="maintenance:\n  run_retention: 90 minutes\n",
    )
    nothing_due = MaintenanceReport(source="shop", tables=[])
    monkeypatch.setattr(maintenance, "maintain", lambda *_args, **_rest: nothing_due)
    job = build_definitions(project.jobs).resolve_job_def("shop_maintenance")

    def deleted(hours: int) -> object:
        monkeypatch.setattr(run_retention, "datetime", _Later(timedelta(hours=hours)))
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        result = job.execute_in_process(instance=instance, run_config=quiet)
        (event,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
        return event.step_output_data.metadata["runs_deleted"].value

    assert deleted(hours=1) == 0
    assert deleted(hours=2) == 4, "three captures, and the maintenance before"


class _Later:
    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + self._ahead
