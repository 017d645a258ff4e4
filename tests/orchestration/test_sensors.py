"""What acts by itself: a sensor on the log's growth, a schedule of checks, alerts; and the plan as
a job."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from cdc_pipeline.config.pipeline_config import ConfigMistakes, load_config, read_document
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.errors import MergeError
from cdc_pipeline.orchestration.cursor_store import cursors_of
from cdc_pipeline.orchestration.definitions import accepts, build_definitions
from cdc_pipeline.orchestration.jobs.alerts import Alert, build_alerts
from cdc_pipeline.orchestration.jobs.plan_job import plan_text
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.report import PlannedTarget
from tests.orchestration.test_suspended import HELD
from tests.servers.server import Server
from tests.support.dagster_runs import killed_run
from tests.support.fake_capture import FakeCapture, cut, plan_of, write_config
from tests.support.kills import killed_at
from tests.support.project import Project, follow_server

CURSOR = dg.AssetKey(["shop", "cursor"])


def _ticked(project: Project, instance: dg.DagsterInstance) -> dg.SensorResult | object:
    definitions = build_definitions(project.jobs)
    sensor = definitions.resolve_sensor_def("shop_log_growth")
    context = dg.build_sensor_context(
        instance=instance, repository_def=definitions.get_repository_def()
    )
    return sensor.evaluate_tick(context)


@pytest.mark.parametrize(
    ("sensor", "said"),
    [
        ({"unread_bytes": 100}, ""),
        ({"headroom": "1000 days"}, ""),
        ({"unread_bytes": "1 GiB", "headroom": "1 h"}, "bytes are unread; cursor needs"),
    ],
)
def test_the_sensor_starts_a_capture_of_what_has_grown_or_is_about_to_be_purged(
    project: Project,
    instance: dg.DagsterInstance,
    mysql_server: Server,
    mysql_database: str,
    sensor: dict[str, object],
    said: str,
) -> None:
    follow_server(project, mysql_server, f"{mysql_database}.orders", dagster={"sensor": sensor})
    definitions = build_definitions(project.jobs)
    job = definitions.resolve_job_def("shop_capture")
    assert job.execute_in_process(instance=instance).success
    mysql_server.execute(f"CREATE TABLE `{mysql_database}`.orders (id INT PRIMARY KEY)")
    killed_run(instance, job)  # F196
    tick = _ticked(project, instance)
    if said:
        assert not tick.run_requests
        assert said in str(tick.skip_message)
        return
    (request,) = tick.run_requests
    assert request.asset_selection == [CURSOR]
    assert job.execute_in_process(instance=instance).success
    # Its own run writes nothing into the log, but other tests of this server may.
    instance.add_run(
        instance.get_runs(limit=1)[0]._replace(
            run_id=dg.DagsterRun(job_name="shop_capture").run_id, status=dg.DagsterRunStatus.QUEUED
        )
    )
    assert _ticked(project, instance).skip_message == "shop_capture is queued or running"


def test_k35_f173_the_sensor_starts_a_run_that_tells_what_it_cannot_cure_and_one_that_a_kill_left(
    project: Project, instance: dg.DagsterInstance, mysql_server: Server, mysql_database: str
) -> None:
    """Else nothing that acts by itself would: no run fails, and a source at rest is not read."""
    follow_server(project, mysql_server, f"{mysql_database}.orders", dagster={"sensor": {}})
    job = build_definitions(project.jobs).resolve_job_def("shop_capture")
    assert job.execute_in_process(instance=instance).success
    mysql_server.execute(f"CREATE TABLE `{mysql_database}`.orders (id INT PRIMARY KEY)")
    mysql_server.execute(f"INSERT INTO `{mysql_database}`.orders VALUES (1)")
    config = load_config(project.jobs / "shop.yaml")
    cursors = cursors_of(instance, config, CdcTranslator()).read()
    assert isinstance(cursors, CursorState)
    with killed_at("before_cut"):
        capture(config, cursors=MemoryCursorStore(cursors))
    assert len(_ticked(project, instance).run_requests) == 1, "a batch is recorded"
    assert job.execute_in_process(instance=instance).success
    assert not _ticked(project, instance).run_requests

    shutil.rmtree(project.lake)
    assert len(_ticked(project, instance).run_requests) == 1
    assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    tick = _ticked(project, instance)
    assert not tick.run_requests, "the run has told it"
    assert "ahead of the lake" in str(tick.skip_message)


def test_k35_f248_the_sensor_waits_for_no_run_that_died_before_it_had_a_slot(
    project: Project, disk_instance: dg.DagsterInstance, mysql_server: Server, mysql_database: str
) -> None:
    """It has named no process: it stays, as if it ran, where nobody ends it."""
    follow_server(project, mysql_server, f"{mysql_database}.*", dagster={"sensor": {}})
    job = build_definitions(project.jobs).resolve_job_def("shop_capture")
    storage, started = disk_instance.event_log_storage, dg.DagsterRunStatus.STARTED
    died, at_work = (disk_instance.create_run_for_job(job, status=started) for _ in range(2))
    storage.initialize_concurrency_limit_to_default("cdc_shop")
    assert storage.claim_concurrency_slot("cdc_shop", at_work.run_id, "capture_shop").is_claimed
    assert not storage.claim_concurrency_slot("cdc_shop", died.run_id, "capture_shop").is_claimed
    waits = "shop_capture is queued or running"
    assert _ticked(project, disk_instance).skip_message == waits
    storage.free_concurrency_slots_for_run(at_work.run_id)
    assert _ticked(project, disk_instance).skip_message != waits


def test_the_sensor_is_stopped_unless_it_is_enabled_and_archives_have_none(
    project: Project, mysql_server: Server
) -> None:
    write_config(project.jobs, "files")
    follow_server(project, mysql_server, "shop.orders", dagster={"sensor": {}})
    definitions = build_definitions(project.jobs)
    (sensor,) = definitions.sensors or ()
    assert sensor.name == "shop_log_growth"
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    follow_server(project, mysql_server, "shop.orders", dagster={"sensor": {"enabled": True}})
    (sensor,) = build_definitions(project.jobs).sensors or ()
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_checks_are_a_job_with_a_schedule_of_their_own(
    project: Project, instance: dg.DagsterInstance
) -> None:
    extra = "dagster: {checks: {names: [intervals_join, follows], cron: '@daily', enabled: true}}\n"
    write_config(project.jobs, "shop", extra=extra)
    capture = FakeCapture([cut(batch=1, tables={"shop.orders": 1})])
    definitions = build_definitions(project.jobs, capture=capture)
    schedule = definitions.resolve_schedule_def("shop_checks_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == ("@daily", "shop_checks")
    assert definitions.resolve_job_def("shop_capture").execute_in_process(instance=instance).success
    done = definitions.resolve_job_def("shop_checks").execute_in_process(instance=instance)
    assert {one.check_name: one.passed for one in done.get_asset_check_evaluations()} == {
        "follows": True,
        "intervals_join": False,
    }
    assert len(capture.bounds) == 1, "checks capture nothing"


def test_a_wrong_cron_of_the_checks_is_a_mistake_with_its_path(project: Project) -> None:
    file = write_config(project.jobs, "shop", extra="dagster: {checks: {cron: now and then}}\n")
    with pytest.raises(ConfigMistakes) as caught:
        read_document(file).resolve(accepts=accepts)
    assert [mistake.path for mistake in caught.value.mistakes] == ["dagster.checks.cron"]


def test_the_plan_is_a_job_whose_result_is_markdown(
    project: Project, instance: dg.DagsterInstance
) -> None:
    file = write_config(project.jobs, "shop", include=("shop.*",))
    text = file.read_text().replace("directory: journals", f"directory: {_journals()}")
    file.write_text(text)
    config = load_config(file)
    job = build_definitions(project.jobs).resolve_job_def("shop_plan")
    result = job.execute_in_process(instance=instance)
    assert result.success
    (output,) = (event for event in result.all_events if event.is_successful_output)
    metadata = output.step_output_data.metadata
    assert isinstance(metadata["plan"], dg.MarkdownMetadataValue)
    assert "| to read | " in str(metadata["plan"].value)
    assert metadata["unread_bytes"].value > 0
    assert not config.sink.lake_path.exists(), "a plan writes nothing"


def _journals() -> Path:
    return SHOP_DIRECTORY / "journals"


def test_k20_a_plan_shows_what_names_hold() -> None:
    plan = plan_of("shop").model_copy(
        update={
            "warnings": ("<b>|*x*\nnext",),
            "suspended": {"shop.or|ders": HELD},
            "targets": tuple(
                PlannedTarget(
                    target=name, sources=(name,), mode="mirror", key=(), reason="",
                    schema_changes=policy,
                )
                for name, policy in (("shop.a", "evolve: x"), ("shop.b", "evolve: x"),
                                     ("shop.or|ders", "careful: y"))
            ),
        }
    )  # fmt: skip
    text = plan_text(plan)
    assert r"\<b\>\|\*x\*" in text
    assert r"| schema changes | shop.a, shop.b\: evolve\: x |" in text
    assert r"| schema changes | shop.or\|ders\: careful\: y |" in text
    assert r"| suspended | shop.or\|ders " in text
    assert "cdc-pipeline snapshot shop --table" in text


def test_alerts_are_sent_for_failed_runs_and_failed_checks(
    project: Project, instance: dg.DagsterInstance
) -> None:
    sent: list[Alert] = []
    runs, checks = build_alerts(sent.append).sensors or ()
    assert isinstance(runs, dg.SensorDefinition)
    assert isinstance(checks, dg.SensorDefinition)
    made = cut(batch=1, tables={"shop.orders": 1, "shop.items": 1})
    behind = made.cursor.targets["shop.orders"].model_copy(update={"suspended": HELD})
    targets = {**made.cursor.targets, "shop.orders": behind}
    made = made.model_copy(update={"cursor": made.cursor.model_copy(update={"targets": targets})})

    def fails_at_second(call: int) -> None:
        if call > 1:
            error = MergeError("the disk is full", next_step="make room")
            error.retryable = False
            raise error

    write_config(
        project.jobs,
        "shop",
        include=("shop.orders", "shop.items"),
        extra="dagster: {fail_on_suspended: false}\n",
    )
    capture = FakeCapture([made], before=fails_at_second)
    job = build_definitions(project.jobs, capture=capture).resolve_job_def("shop_capture")
    done = job.execute_in_process(instance=instance)
    failed = job.execute_in_process(instance=instance, raise_on_error=False)
    for sensor, result, kind in (
        (checks, done, dg.DagsterEventType.RUN_SUCCESS),
        (runs, failed, dg.DagsterEventType.RUN_FAILURE),
    ):
        (event,) = (event for event in result.all_events if event.event_type is kind)
        context = dg.build_run_status_sensor_context(
            sensor_name="any",
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=event,
        )
        if kind is dg.DagsterEventType.RUN_FAILURE:
            context = context.for_run_failure()
        sensor(context)
    assert [alert.headline for alert in sent] == [
        "shop: follows of shop.orders failed",
        "shop_capture: the run failed",
    ]
    assert "cdc-pipeline backfill shop --table shop.orders --rebuild" in sent[0].text
    assert "the disk is full" in sent[1].text
