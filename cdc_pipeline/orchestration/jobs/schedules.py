"""A job's schedule as a section of the configuration has it, and the job of a source's checks.

Rules:
- The job executes the checks that `dagster.checks.names` lists: by default those of the cursor,
  which start no Spark. `count` and `checksum` read tables in full, so they must be asked for.
- It captures nothing, except for what a comparison with the server needs (`check_assets.py`).
- A tick starts no run while another one of its job waits, in Dagster's queue or for the source's
  slot: during a long capture they would be more and more.
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schedules import Scheduled
from cdc_pipeline.orchestration.dead_runs import free_dead_runs, waiting_runs
from cdc_pipeline.orchestration.translator import SOURCE_TAG, run_tags


def schedule_of(
    settings: Scheduled,
    *,
    job_name: str,
    tags: dict[str, str],
    description: str,
    asset_selection: Sequence[dg.AssetKey] | None = None,
) -> dg.ScheduleDefinition | None:
    """``<job_name>_schedule``, of the source in `tags`; None without a cron expression."""
    if settings.cron is None:
        return None
    source = tags[SOURCE_TAG]

    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        free_dead_runs(context.instance, source=source)
        waiting = waiting_runs(context.instance, source=source, job_name=job_name)
        if waiting:
            return dg.SkipReason(f"run {waiting[0]} of {job_name} waits, and will do the same")
        return dg.RunRequest(asset_selection=asset_selection, tags=tags)

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
        execution_fn=evaluate,
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
