"""Asset checks of a source as a job, and its schedule.

Rules:
- The job executes the checks that `dagster.checks.names` lists: by default those of the cursor,
  which start no Spark. `count` and `checksum` read tables in full, so they must be asked for.
- It captures nothing, except for what a comparison with the server needs (`check_assets.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.orchestration.jobs.schedules import schedule_of
from cdc_pipeline.orchestration.translator import SOURCE_TAG


def build_check_job(
    pipeline: PipelineConfig, checks: Sequence[dg.AssetChecksDefinition]
) -> tuple[UnresolvedAssetJobDefinition | None, dg.ScheduleDefinition | None]:
    """None for what is not asked for."""
    settings = pipeline.dagster.checks
    keys = sorted(key for made in checks for key in made.check_keys if key.name in settings.names)
    if not keys:
        return None, None
    name = f"{pipeline.name}_checks"
    found = ", ".join(dict.fromkeys(key.name for key in keys))
    job = dg.define_asset_job(
        name,
        selection=dg.AssetSelection.checks(*keys),
        description=f"Executes checks of {pipeline.name}: {found}.",
        executor_def=dg.in_process_executor,
        tags={SOURCE_TAG: pipeline.name},
    )
    described = f"Checks {pipeline.name}: {found}."
    return job, schedule_of(settings, job_name=name, source=pipeline.name, description=described)
