"""A job's schedule as a section of the configuration has it."""

from __future__ import annotations

from typing import Any, Protocol

import dagster as dg

from cdc_pipeline.orchestration.translator import SOURCE_TAG


class CronSettings(Protocol):
    """A section that starts something by a cron expression."""

    @property
    def cron(self) -> str | None:
        pass

    @property
    def timezone(self) -> str:
        pass

    @property
    def enabled(self) -> bool:
        pass


def schedule_of(
    settings: CronSettings, *, job_name: str, source: str, description: str, **more: Any
) -> dg.ScheduleDefinition | None:
    """``<job_name>_schedule``; None without a cron expression; `more`: arguments of Dagster's."""
    if settings.cron is None:
        return None
    return dg.ScheduleDefinition(
        name=f"{job_name}_schedule",
        job_name=job_name,
        cron_schedule=settings.cron,
        execution_timezone=settings.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING
        if settings.enabled
        else dg.DefaultScheduleStatus.STOPPED,
        description=description,
        tags={SOURCE_TAG: source},
        **more,
    )
