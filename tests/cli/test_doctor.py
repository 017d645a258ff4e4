"""``cdc-pipeline doctor`` and its examination with Dagster."""

from __future__ import annotations

import json
import shutil
import time
from typing import get_args

import pytest
from click.testing import CliRunner, Result
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    TickData,
    TickStatus,
)
from dagster._daemon.types import DaemonHeartbeat

from cdc_pipeline.cli import doctor
from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import ScheduleConfig
from cdc_pipeline.operations.doctor.diagnosis import AREAS, Area
from cdc_pipeline.orchestration.runs.execute import open_instance
from tests.operations.doctor.test_state_and_machine import SHOP
from tests.support.project import Project

YAML = """\
source: {kind: archive, directory: ../journals}
sink: {lake_path: ../lake, spark: {driver_memory: 1m}}
store: {disk_bytes_max: 67108864}
batch: {merge_staged_bytes: 1048576}
"""


def _run(project: Project, *arguments: str) -> Result:
    return CliRunner().invoke(
        cli, ["--jobs", str(project.jobs), "doctor", *arguments], catch_exceptions=False
    )


def test_the_areas_of_the_command_are_those_of_the_diagnosis() -> None:
    assert doctor._AREAS == AREAS == get_args(Area)


def test_exit_codes_follow_the_worst_finding(project: Project) -> None:
    """0 notes, 1 warnings, 2 errors, and 2 for a wrong configuration as everywhere."""
    shutil.copytree(SHOP, project.root / "journals")
    file = project.jobs / "shop.yaml"
    file.write_text(YAML)
    fine = _run(project, "shop", "--json")
    document = json.loads(fine.stdout)
    assert (fine.exit_code, document["worst"], document["exit_code"]) == (0, "note", 0), document
    assert {"area", "check", "severity", "what", "expected", "got", "next_step"} == set(
        document["findings"][0]
    )

    file.write_text(YAML + 'schedule: {cron: "*/15 * * * *", enabled: true}\n')
    warned = _run(project, "shop", "--area", "local")
    assert warned.exit_code == 1
    assert "Dagster's daemon is not running" in warned.stdout
    assert "dagster-daemon run" in warned.stdout
    assert "shop: 1 warning" in warned.stdout

    shutil.rmtree(project.root / "journals")
    wrong = _run(project, "shop")
    assert wrong.exit_code == 2
    assert "✗" in wrong.stdout
    assert "fix:" in wrong.stdout
    file.write_text("source: {kind: archive}\n")
    assert _run(project, "shop").exit_code == 2
    for text in ("soon", "6", "0"):  # of 6 nobody knows whether hours or seconds are meant
        assert _run(project, "shop", "--every", text).exit_code == 2


def test_everything_can_be_shown(project: Project) -> None:
    shutil.copytree(SHOP, project.root / "journals")
    (project.jobs / "shop.yaml").write_text(YAML)
    short, long = (
        _run(project, "shop", "--area", "local", *extra).stdout for extra in ((), ("--all",))
    )
    assert "fine: " in short
    assert "Python 3." not in short
    assert "Python 3." in long


def test_without_dagsters_home_the_rest_is_examined(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SHOP, project.root / "journals")
    (project.jobs / "shop.yaml").write_text(YAML)
    monkeypatch.setenv("DAGSTER_HOME", str(project.root / "absent"))
    result = _run(project, "shop", "--json")
    assert result.exit_code == 2
    findings = json.loads(result.stdout)["findings"]
    assert [one["check"] for one in findings if one["severity"] == "error"] == ["Dagster"]
    assert {"plan", "usable"} <= {one["check"] for one in findings if one["severity"] == "ok"}


@pytest.mark.parametrize(
    ("cron", "zone", "hours"),
    [
        ("*/15 * * * *", "UTC", 0.25),
        ("0 9-17 * * 1-5", "UTC", 64),
        ("@daily", "UTC", 24),
        ("0 3 1 1 *", "UTC", 8760),
    ],
)
def test_the_longest_gap_between_two_runs_is_that_of_the_schedule(
    cron: str, zone: str, hours: float
) -> None:
    from cdc_pipeline.orchestration.runs.doctor import longest_gap_s

    found = longest_gap_s(ScheduleConfig(cron=cron, timezone=zone))
    assert found is not None
    assert found / 3600 == pytest.approx(hours, abs=24 if hours > 1000 else 0)  # a leap year


def test_a_schedule_that_waits_for_a_time_to_come_is_told(project: Project) -> None:
    """Dagster starts no run before the last tick, which a clock that was ahead has put far away."""
    shutil.copytree(SHOP, project.root / "journals")
    schedule = 'schedule: {cron: "*/15 * * * *", enabled: true}\n'
    (project.jobs / "shop.yaml").write_text(YAML + schedule)
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("jobs"), "__repository__")
    origin = RemoteInstigatorOrigin(repository, "shop_capture_schedule")
    data = ScheduleInstigatorData("*/15 * * * *", start_timestamp=time.time())
    state = InstigatorState(
        origin, InstigatorType.SCHEDULE, InstigatorStatus.DECLARED_IN_CODE, data
    )
    with open_instance() as instance:
        instance.add_instigator_state(state)
        assert "clock was ahead" not in _run(project, "shop", "--area", "local").stdout
        instance.create_tick(
            TickData(
                instigator_origin_id=state.instigator_origin_id,
                instigator_name=state.instigator_name,
                instigator_type=InstigatorType.SCHEDULE,
                status=TickStatus.SUCCESS,
                run_ids=["a run"],
                timestamp=time.time() + 400 * 86_400,
                selector_id=state.selector_id,
            )
        )
        told = _run(project, "shop", "--area", "local").stdout
        assert "clock was ahead" in told
        instance.wipe_all_schedules()
        assert "clock was ahead" not in _run(project, "shop", "--area", "local").stdout


def test_k35_f254_a_schedule_that_is_on_and_has_no_ticks_is_told(project: Project) -> None:
    """Its code location does not load, or has got another name, where it is off: `doctor` called it
    fine, since the daemon runs."""
    shutil.copytree(SHOP, project.root / "journals")
    schedule = 'schedule: {cron: "*/15 * * * *"}\n'
    (project.jobs / "shop.yaml").write_text(YAML + schedule)
    data = ScheduleInstigatorData("*/15 * * * *", last_iteration_timestamp=time.time() - 7_200)

    def switched_on(location: str, data: ScheduleInstigatorData) -> InstigatorState:
        repository = RemoteRepositoryOrigin(
            RegisteredCodeLocationOrigin(location), "__repository__"
        )
        origin = RemoteInstigatorOrigin(repository, "shop_capture_schedule")
        return InstigatorState(origin, InstigatorType.SCHEDULE, InstigatorStatus.RUNNING, data)

    with open_instance() as instance:
        instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), "SCHEDULER", "id", []))
        instance.add_instigator_state(switched_on("jobs", data))
        assert "has no ticks" in _run(project, "shop", "--area", "local").stdout
        now = ScheduleInstigatorData("*/15 * * * *", last_iteration_timestamp=time.time())
        instance.add_instigator_state(switched_on("another", now))
        assert "has no ticks" not in _run(project, "shop", "--area", "local").stdout
