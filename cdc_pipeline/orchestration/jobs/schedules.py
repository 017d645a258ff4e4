"""A job's schedule as a section of the configuration has it, and the job of a source's checks.

Rules:
- The job executes the checks that `dagster.checks.names` lists: by default those of the cursor,
  which start no Spark. `count` and `checksum` read tables in full, so they must be asked for.
- It captures nothing, except for what a comparison with the server needs (`check_assets.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schedules import Scheduled
from cdc_pipeline.orchestration.translator import run_tags


def schedule_of(
    settings: Scheduled, *, job_name: str, tags: dict[str, str], description: str, **more: Any
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
        tags=tags,
        **more,
    )


def build_check_job(
    pipeline: PipelineConfig, checks: Sequence[dg.AssetChecksDefinition]
) -> tuple[UnresolvedAssetJobDefinition | None, dg.ScheduleDefinition | None]:
    """None for what is not asked for."""
    settings = pipeline.dagster.checks
    keys = sorted(
        key for definition in checks for key in definition.check_keys if key.name in settings.names
    )
    if not keys:
        return None, None
    name, tags = f"{pipeline.name}_checks", run_tags(pipeline.name, "verify")
    names = ", ".join(dict.fromkeys(key.name for key in keys))
    job = dg.define_asset_job(
        name,
        selection=dg.AssetSelection.checks(*keys),
        description=f"Executes checks of {pipeline.name}: {names}.",
        executor_def=dg.in_process_executor,
        tags=tags,
    )
    described = f"Checks {pipeline.name}: {names}."
    return job, schedule_of(settings, job_name=name, tags=tags, description=described)
