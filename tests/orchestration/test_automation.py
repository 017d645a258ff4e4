"""Automation conditions of the YAML start captures, by the evaluation that Dagster's daemon
makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent

from cdc_pipeline import build_definitions
from cdc_pipeline.orchestration.translator import SOURCE_TAG
from tests.support.dagster_runs import stored_run
from tests.support.fake_capture import FakeCapture, cut, write_config
from tests.support.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # of Dagster's own
NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
TABLES = ("shop.orders", "shop.items")
KEYS = {table: dg.AssetKey(["shop", *table.split(".")]) for table in TABLES}
CURSOR = dg.AssetKey(["shop", "cursor"])
UPSTREAM = dg.AssetKey(["shop", "source", "shop", "orders"])


class Daemon:
    """Evaluates the conditions again and again, and runs what they request."""

    def __init__(self, project: Project, instance: dg.DagsterInstance, section: str) -> None:
        write_config(project.jobs, "shop", include=TABLES, extra=f"dagster: {section}\n")
        self.capture = FakeCapture([])
        self.definitions = build_definitions(
            project.jobs, capture=self.capture, row_counter=lambda *_: 7
        )
        self._instance = instance
        self._cursor: dg.AssetDaemonCursor | None = None

    def tick(self, at: datetime) -> set[dg.AssetKey]:
        result = dg.evaluate_automation_conditions(
            self.definitions, self._instance, evaluation_time=at, cursor=self._cursor
        )
        self._cursor = result.cursor
        requested = {
            one.key
            for one in result.results
            if isinstance(one.key, dg.AssetKey) and result.get_num_requested(one.key)
        }
        if requested:
            self.publish(requested)
        return requested

    def publish(self, selected: set[dg.AssetKey]) -> None:
        batch = len(self.capture.cuts) + 1
        self.capture.cuts.append(cut(batch=batch, tables=dict.fromkeys(TABLES, batch)))
        job = self.definitions.resolve_implicit_global_asset_job_def()
        run = job.execute_in_process(instance=self._instance, asset_selection=list(selected))
        assert run.success
        kept = stored_run(self._instance, run.run_id)
        assert kept.tags[SOURCE_TAG] == "shop", "maintenance finds the source's runs by it"

    def events_of(self, key: dg.AssetKey) -> int:
        return len(self._instance.fetch_materializations(key, limit=100).records)


def test_a_cron_on_one_table_captures_the_whole_source(
    project: Project, instance: dg.DagsterInstance
) -> None:
    rule = "{rules: [{tables: [shop.orders], automation: {on_cron: '0 * * * *'}}]}"
    daemon = Daemon(project, instance, rule)
    assert daemon.tick(NOON + timedelta(minutes=30)) == set()
    assert daemon.tick(NOON + timedelta(minutes=59)) == set()
    assert daemon.tick(NOON + timedelta(minutes=61)) == {KEYS["shop.orders"]}
    assert daemon.tick(NOON + timedelta(minutes=62)) == set(), "once for each tick"
    assert daemon.tick(NOON + timedelta(minutes=121)) == {KEYS["shop.orders"]}
    assert [daemon.events_of(key) for key in (*KEYS.values(), CURSOR)] == [2, 2, 2]


def test_k25_f245_ticks_during_a_run_ask_for_one_run_after_it(
    project: Project, instance: dg.DagsterInstance
) -> None:
    daemon = Daemon(project, instance, "{cursor: {automation: {on_cron: '0 * * * *'}}}")
    assert daemon.tick(NOON + timedelta(minutes=30)) == set()
    job = daemon.definitions.resolve_implicit_global_asset_job_def()
    started = dg.DagsterRunStatus.STARTED
    run = instance.create_run_for_job(job, asset_selection={CURSOR}, status=started)
    planned = AssetMaterializationPlannedData(CURSOR)
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value
    event = DagsterEvent(kind, job_name=run.job_name, event_specific_data=planned)
    instance.report_dagster_event(event, run.run_id)
    assert daemon.tick(NOON + timedelta(minutes=61)) == set()
    assert daemon.tick(NOON + timedelta(minutes=121)) == set()
    instance.report_run_failed(run)
    assert daemon.tick(NOON + timedelta(minutes=122)) == {CURSOR}
    assert daemon.tick(NOON + timedelta(minutes=123)) == set()


def test_a_cron_on_the_cursor_waits_for_no_table(
    project: Project, instance: dg.DagsterInstance
) -> None:
    daemon = Daemon(project, instance, "{cursor: {automation: {on_cron: '0 * * * *'}}}")
    assert daemon.tick(NOON + timedelta(minutes=30)) == set()
    assert daemon.tick(NOON + timedelta(minutes=61)) == {CURSOR}
    assert [daemon.events_of(key) for key in (*KEYS.values(), CURSOR)] == [1, 1, 1]


def test_a_cron_of_the_section_asks_for_all_at_once(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """One run is one capture, however many assets ask for it."""
    daemon = Daemon(project, instance, "{automation: {on_cron: '0 * * * *'}}")
    assert daemon.tick(NOON + timedelta(minutes=30)) == set()
    assert daemon.tick(NOON + timedelta(minutes=61)) == {*KEYS.values(), CURSOR}
    assert daemon.tick(NOON + timedelta(minutes=62)) == set()
    assert len(daemon.capture.bounds) == 1


def test_eager_captures_when_the_source_is_seen_to_change(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """An external process reports that a table of the database has changed."""
    daemon = Daemon(project, instance, "{rules: [{tables: [shop.orders], automation: eager}]}")
    daemon.publish({CURSOR})
    assert daemon.tick(NOON) == set()
    instance.report_runless_asset_event(dg.AssetMaterialization(UPSTREAM))
    assert daemon.tick(NOON + timedelta(minutes=1)) == {KEYS["shop.orders"]}
    assert daemon.tick(NOON + timedelta(minutes=2)) == set()
    assert daemon.events_of(KEYS["shop.items"]) == 2


def test_eager_assets_do_not_start_each_other_again(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """The cursor depends on the tables, and a capture writes events of both."""
    daemon = Daemon(project, instance, "{automation: eager}")
    daemon.publish({CURSOR})
    assert daemon.tick(NOON) == set()
    for minute, selected in enumerate((CURSOR, KEYS["shop.orders"]), start=1):
        daemon.publish({selected})
        assert daemon.tick(NOON + timedelta(minutes=minute)) == set()
