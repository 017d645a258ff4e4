"""Examination of a pipeline as this project defines it: Dagster's instance, cursor and schedules.

Rules:
- A problem with Dagster is a finding too; the rest is still examined.
- The longest time between two runs is the largest gap between the schedule's ticks of the next
  days.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig, ScheduleConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.operations.doctor import Diagnosis, Finding, examine
from cdc_pipeline.operations.doctor.diagnosis import AREAS, Area, Verdict, note, ok, warning
from cdc_pipeline.orchestration.runs.execute import LoadedSource, load_source, open_instance
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.text.wording import duration

_KEY_FORMAT: Final = "%Y-%m-%dT%H:%M:%S%z"
# The first window contains the longest gap of any weekly schedule; the second, of any yearly one.
_LOOK_AHEAD: Final = (timedelta(days=15), timedelta(days=800))
_EVERY_DAY: Final = timedelta(days=2)  # enough where all days are alike: ticks are not cheap
_DAEMON_SILENT_S: Final = 300.0


def diagnose(
    jobs_directory: Path,
    config: PipelineConfig,
    *,
    every_s: float | None = None,
    with_spark: bool = False,
    areas: Collection[Area] = AREAS,
) -> Diagnosis:
    """Examine the pipeline; `every_s` (longest time between two runs) overrides the schedule."""
    reason = "--every" if every_s is not None else ""
    if every_s is None and config.schedule is not None:
        every_s, reason = longest_gap_s(config.schedule), f"schedule {config.schedule.cron}"
    findings: list[Finding] = []

    def tell(check: str, *verdicts: Verdict) -> None:
        if "local" not in areas:
            verdicts = tuple(one for one in verdicts if one.severity == "error")
        findings.extend(Finding(area="local", check=check, **one.model_dump()) for one in verdicts)

    def examined(cursors: CursorStore | None) -> Diagnosis:
        return examine(
            config,
            cursors=cursors,
            every_s=every_s,
            every_reason=reason,
            with_spark=with_spark,
            areas=areas,
            found_before=findings,
        )

    try:
        with open_instance() as instance:
            tell(
                "Dagster",
                ok(f"Dagster's instance in {instance.root_directory} can be opened"),
                *_settings(instance),
            )
            try:
                loaded = load_source(jobs_directory, config.name)
            except CdcError as error:
                tell("definitions", Verdict.from_error(error))
                loaded = None
            tell("schedule", *_schedule(config, instance, loaded))
            cursors = None if loaded is None else loaded.cursors(instance)
            return examined(cursors)
    except CdcError as error:
        tell("Dagster", Verdict.from_error(error))
    return examined(None)


def _settings(instance: dg.DagsterInstance) -> Iterator[Verdict]:
    if not (Path(instance.root_directory) / "dagster.yaml").is_file():
        yield note(
            "Dagster's instance has no settings: runs of one source do not wait for each "
            "other's slot (the second one waits for the lake's lock), and runs whose process "
            "was killed are not detected",
            expected=f"{instance.root_directory}/dagster.yaml",
            got="none",
            next_step=f"cp dagster_home/dagster.yaml {instance.root_directory}/ from the "
            "project's folder",
        )


def longest_gap_s(schedule: ScheduleConfig) -> float | None:
    """Largest gap between upcoming ticks; None if there are fewer than two in two years."""
    now = datetime.now(UTC)
    # Dagster offers no list of ticks, but builds partitions from the windows between them.
    windows = dg.TimeWindowPartitionsDefinition(
        start=now, fmt=_KEY_FORMAT, cron_schedule=schedule.cron, timezone=schedule.timezone
    )
    is_daily = schedule.cron.split()[2:] == ["*"] * 3
    for ahead in (*([_EVERY_DAY] if is_daily else []), *_LOOK_AHEAD):
        keys = windows.get_partition_keys(current_time=now + ahead)
        if len(keys) > 1:
            ticks = [datetime.fromisoformat(key) for key in keys]
            return max((after - before).total_seconds() for before, after in pairwise(ticks))
    return None


def _schedule(
    config: PipelineConfig, instance: dg.DagsterInstance, loaded: LoadedSource | None
) -> Iterator[Verdict]:
    schedule = config.schedule
    if schedule is None:
        yield note(
            "no schedule: runs are started by hand or by another program",
            expected="schedule: {cron: ..., enabled: true}",
            got="none",
            next_step='schedule: {cron: "*/15 * * * *", enabled: true}',
        )
        return
    if loaded is None:
        return
    name = f"{loaded.job.name}_schedule"
    # A code location that has got another name leaves its schedules' states behind.
    last_s, state = max(
        (
            (_last_tick_s(instance, state), state)
            for state in instance.all_instigator_state()
            if state.instigator_name == name
        ),
        key=itemgetter(0),
        default=(0.0, None),
    )
    # A schedule that nobody has switched in Dagster's UI has the state that the file sets.
    switched = state.status.value if state is not None else ""
    by_hand = switched in ("RUNNING", "STOPPED")
    runs = switched == "RUNNING" if by_hand else schedule.enabled
    if not runs:
        yield note(
            f"the schedule {schedule.cron} is off",
            expected="on",
            got="stopped in Dagster's UI" if by_hand else "enabled: false",
            next_step="schedule: {enabled: true}, or switch it on in Dagster's UI",
        )
        return
    ahead_s = last_s - time.time()
    if ahead_s > _DAEMON_SILENT_S:
        yield warning(
            f"the schedule {schedule.cron} last started a run at a time that is still to come: "
            "this machine's clock was ahead, and Dagster starts no run before that time",
            expected="a last tick in the past",
            got=f"{duration(ahead_s)} ahead",
            next_step="stop dagster-daemon, run `dagster schedule wipe`, start it again, and "
            "switch on the schedules that were switched on in Dagster's UI",
        )
        return
    beats = [
        beat.timestamp
        for kind, beat in instance.get_daemon_heartbeats().items()
        if kind == "SCHEDULER"
    ]
    silent_s = time.time() - max(beats) if beats else None
    if silent_s is None or silent_s > _DAEMON_SILENT_S:
        yield warning(
            f"the schedule {schedule.cron} is on, but Dagster's daemon is not running, so "
            "it starts no runs",
            expected=f"a heartbeat in the last {duration(_DAEMON_SILENT_S)}",
            got="no heartbeat ever" if silent_s is None else f"{duration(silent_s)} ago",
            next_step="dagster dev -w workspace.yaml; as a service: dagster-daemon run -w "
            "workspace.yaml",
        )
    elif last_s and -ahead_s > (longest_gap_s(schedule) or 0.0) + _DAEMON_SILENT_S:
        yield warning(
            f"the schedule {schedule.cron} is on and Dagster's daemon is running, but it has no "
            "ticks: its code location does not load, or has got another name",
            expected="a tick at each of its times",
            got=f"the last one {duration(-ahead_s)} ago",
            next_step="look at the code location in Dagster's UI, and switch the schedule on there",
        )
    else:
        yield ok(f"the schedule {schedule.cron} is on, and Dagster's daemon is running")


def _last_tick_s(instance: dg.DagsterInstance, state: Any) -> float:
    """In seconds since 1970; 0 if the scheduler has started no runs. It goes on after it."""
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    looked_s = getattr(state.instigator_data, "last_iteration_timestamp", None)
    return max(looked_s or 0.0, ticks[0].timestamp if ticks else 0.0)
