"""What only Dagster can check in a pipeline's file: crons, time zones, and deadlines.

Rules:
- Dagster decides, by being asked for what the definitions will contain.
- A mistake shows a value as the file writes it, so that nothing from the environment appears (K26).
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from cdc_pipeline.config.dagster_config import AssetSettings
from cdc_pipeline.config.pipeline_config import Mistake, PipelineConfig, PipelineDocument


def refused_settings(document: PipelineDocument, config: PipelineConfig | None) -> list[Mistake]:
    """`config`: None if the document has other mistakes."""
    found = list(_schedules(document))
    if config is not None and not found:
        found += _deadlines(config)
    return found


def _schedules(document: PipelineDocument) -> Iterator[Mistake]:
    for path, value in document.schedules().items():
        is_cron = path.endswith("cron")
        try:
            dg.ScheduleDefinition(
                job_name="check",
                cron_schedule=value if is_cron else "@daily",
                execution_timezone=None if is_cron else value,
            )
        except Exception:
            message = f"{document.written(path)!r} is not a " + (
                "cron expression such as 0 * * * * (minute hour day month weekday)"
                if is_cron
                else "time zone such as UTC or Europe/Berlin"
            )
            yield Mistake(path=path, message=message)


def _deadlines(config: PipelineConfig) -> Iterator[Mistake]:
    section = config.dagster
    settings: dict[str, AssetSettings] = {
        "dagster": section,
        "dagster.cursor": section.cursor,
        **{f"dagster.rules.{number}": rule for number, rule in enumerate(section.rules)},
    }
    for path, one in settings.items():
        given = one.freshness
        if given is None or given.deadline_cron is None or given.lower_bound_delta is None:
            continue
        try:
            dg.FreshnessPolicy.cron(given.deadline_cron, given.lower_bound_delta, given.timezone)
        except Exception:
            yield Mistake(
                path=f"{path}.freshness.lower_bound_delta",
                message="is longer than the shortest time between two ticks of deadline_cron: "
                "expected at most that",
            )
