"""Backfills of changelogs as an asset whose partitions are tables and days.

Rules:
- A day is one of UTC, from midnight to midnight by the commit times of its transactions. The days
  of a table that follow each other are one range of `fill_gap`, which appends it once, in one
  recorded batch, to a changelog that has none of it (K18).
- A mirror or history has no such partitions: old rows never enter one. A rebuild or a snapshot
  replaces them as a whole.
- A partition is materialized once its range is appended, or has no change of the table. What is
  refused fails the run; tables and ranges before it stay done. A day that is materialized is asked
  for by itself: the range that it was filled in is remembered, whatever is selected with it now.
  So is each day of a range that is refused, if the table has such ranges.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig, TimeBoundConfig, TimeConfig
from cdc_pipeline.errors import SnapshotError
from cdc_pipeline.lake.long_operations import remembered
from cdc_pipeline.orchestration.assets.snapshot_asset import OperationStep, operation_asset
from cdc_pipeline.orchestration.names import dagster_name, plain_name
from cdc_pipeline.orchestration.translator import CdcTranslator, origin_text
from cdc_pipeline.targets.known_tables import Known
from cdc_pipeline.targets.routes import Routes

_DAY = timedelta(days=1)


class BackfillRunConfig(dg.Config):
    """What a person may set for one backfill."""

    archive: str | None = Field(
        default=None, description="A directory of journals, read before the source's own."
    )
    restart: bool = Field(
        default=False, description="true: give up what an earlier backfill left unfinished."
    )


def build_backfill(
    pipeline: PipelineConfig, known: Known, *, translator: CdcTranslator
) -> dg.AssetsDefinition | None:
    """None if `dagster.backfill_from` is not set, or no table is known that has a changelog."""
    first_day = pipeline.dagster.backfill_from
    tables = [] if first_day is None else _changelog_tables(pipeline, known)
    if first_day is None or not tables:
        return None
    return operation_asset(
        pipeline,
        "backfill",
        key=translator.backfill_key(pipeline.name),
        cut=known.cut,
        tables=tables,
        translator=translator,
        description=(
            f"Changes of {pipeline.name}, from {origin_text(pipeline)}, that its changelogs lack, "
            "by table and day of UTC. Materialize partitions to replay their journals into "
            "changelogs that hold no change of these days."
        ),
        partitions_def=dg.MultiPartitionsDefinition(
            {
                "table": dg.StaticPartitionsDefinition([dagster_name(table) for table in tables]),
                "utc_day": dg.DailyPartitionsDefinition(start_date=first_day.isoformat()),
            }
        ),
        config_class=BackfillRunConfig,
        work=_run,
    )


def _changelog_tables(pipeline: PipelineConfig, known: Known) -> list[str]:
    """Known source tables with a target of that mode, sorted."""
    routes = Routes(pipeline)
    return [
        source
        for source in known.sources
        if any(MODES[route.rule.mode].rows_are_changes for route in routes.of_table(source))
    ]


def _run(step: OperationStep, asked: dict[str, Any]) -> None:
    materialized = step.context.instance.get_materialized_partitions(step.key)
    for table, days in _ranges(step.context.partition_keys, materialized):
        step.context.log.info(f"appends the changes of {table} from {days[0]} to {days[-1]}")
        try:
            _fill(step, asked, table, days)
        except SnapshotError as error:
            # A run that was killed may have filled some of its days, and told of none.
            filled = {each.sources for each in remembered(step.pipeline, "gap")}
            if len(days) == 1 or (table,) not in filled:
                raise
            step.context.log.warning(f"now each day by itself: {error}")
            for day in days:
                _fill(step, asked, table, [day])


def _fill(step: OperationStep, asked: dict[str, Any], table: str, days: list[date]) -> None:
    # Imported late: definitions are loaded often and need none of this.
    from cdc_pipeline.operations.backfill.gap import fill_gap

    start, end = (datetime.combine(day, time(), UTC) for day in (days[0], days[-1] + _DAY))
    archive = asked.get("archive")
    report = fill_gap(
        step.pipeline,
        table=table,
        start=TimeConfig(time=start),
        # An end is the last moment that is in it.
        end=TimeBoundConfig(time=end - timedelta(microseconds=1)),
        archive=None if archive is None else Path(archive),
        restart=asked["restart"],
        **step.run,
    )
    step.context.log.info(f"{table}: {report.reason}")
    for day in days:
        key = {"table": dagster_name(table), "utc_day": str(day)}
        step.context.log_event(
            dg.AssetMaterialization(
                step.key,
                partition=dg.MultiPartitionKey(key),
                description=report.reason,
                metadata={
                    "range": f"{report.start} - {report.end}",
                    "rows_of_range": sum(report.rows.values()),
                    "cut": str(report.cut),
                },
            )
        )


def _ranges(keys: list[str], materialized: Collection[str]) -> list[tuple[str, list[date]]]:
    """Tables, each with days that follow each other."""
    days = sorted(
        (
            plain_name(key.keys_by_dimension["table"]),
            date.fromisoformat(key.keys_by_dimension["utc_day"]),
            key in materialized,
        )
        for key in keys
        if isinstance(key, dg.MultiPartitionKey)
    )
    ranges: list[tuple[str, list[date]]] = []
    was_filled = False
    for table, day, is_filled in days:
        follows = bool(ranges) and (ranges[-1][0], ranges[-1][1][-1] + _DAY) == (table, day)
        if follows and not was_filled and not is_filled:
            ranges[-1][1].append(day)
        else:
            ranges.append((table, [day]))
        was_filled = is_filled
    return ranges
