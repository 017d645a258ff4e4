"""What each run observes of a source's assets, also if it found nothing: how far the source was
checked, how old the tables' state is at most, and how soon the source may purge what is needed.

Rules:
- The cursor has an observation of every run. Tables and source tables have one if their source has
  at most `dagster.observed_tables_max` tables: an event costs 12 ms of CPU and is stored twice, so
  that a thousand tables would cost more than everything else in an idle run.
- Dagster's freshness policies count materializations alone. An asset with a policy has one of each
  run that it follows, in place of the observation, and whatever the number of tables.
- So has each selected asset of a run that fails since others are suspended.
- A suspended table is observed where it stands, and never materialized: its policy finds it late.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.orchestration.metadata import Metadata, cursor_entry, data_version
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.position.cursor import CursorState, Suspension, TargetState
from cdc_pipeline.run.report import CapturePlan
from cdc_pipeline.targets.known_tables import newest_cut

Event = dg.AssetObservation | dg.AssetMaterialization


@dataclass(frozen=True)
class RunObservation:
    """What a run knows of its source at its end.

    Attributes:
        lag_s: age of the tables' state at most; None if the log's end was not reached and no time
            of the source is known.
        headroom_s: until the source may purge what is still needed; None if unknown.
    """

    cursor: CursorState
    lag_s: float | None
    headroom_s: float | None
    decoded_by: str = ""

    def metadata(self) -> Metadata:
        entries: Metadata = {"checked_up_to": dg.MetadataValue.text(str(self.cursor.position))}
        if self.cursor.timestamp_s > 0:
            at = datetime.fromtimestamp(self.cursor.timestamp_s, tz=UTC)
            entries["source_time"] = dg.MetadataValue.timestamp(at)
        if self.decoded_by:
            entries["decoded_by"] = dg.MetadataValue.text(self.decoded_by)
        if self.lag_s is not None:
            entries["lag_seconds"] = dg.MetadataValue.float(round(self.lag_s, 3))
        return entries | self._headroom()

    def suspended_metadata(self, held: Suspension) -> Metadata:
        return {"checked_up_to": dg.MetadataValue.text(str(held.position)), **self._headroom()}

    def _headroom(self) -> Metadata:
        if self.headroom_s is None:
            return {}
        return {"retention_headroom_seconds": dg.MetadataValue.float(self.headroom_s)}


def observation_of(
    config: PipelineConfig,
    cursor: CursorState,
    *,
    plan: CapturePlan | None,
    planned_at_s: float,
    decoded_by: str = "",
) -> RunObservation:
    """Asks a live server how long it keeps its log.

    `planned_at_s`: when the run's plan was made, in seconds since 1970: what was committed later
    is not in.
    """
    lag_s = None
    if plan is not None and _reached_log_end(plan, cursor):
        lag_s = max(0.0, time.time() - planned_at_s)
    elif cursor.timestamp_s > 0:
        lag_s = max(0.0, time.time() - cursor.timestamp_s)
    return RunObservation(cursor, lag_s, _headroom_s(config, cursor), decoded_by)


def _reached_log_end(plan: CapturePlan, cursor: CursorState) -> bool:
    # Imported late: definitions are loaded often and need none of this.
    from cdc_pipeline.run.plan.resolved_run import LOG_END

    is_at_end = cursor.position.order == plan.end.order
    return is_at_end and plan.end_reason == LOG_END


def _headroom_s(config: PipelineConfig, cursor: CursorState) -> float | None:
    if not isinstance(config.source, LiveSourceConfig):
        return None
    from cdc_pipeline.operations.verify.checks import check_retention

    try:
        headroom_s = check_retention(config, cursor).values.get("headroom_s")
    except CdcError:
        return None  # the run has done its work: what a server does not tell is left out
    return None if headroom_s is None else float(headroom_s)


def events_of(
    config: PipelineConfig,
    translator: CdcTranslator,
    observation: RunObservation,
    *,
    materialized: Container[dg.AssetKey],
    wanted: Container[dg.AssetKey] = frozenset(),
) -> Iterator[Event]:
    """The events that a run leaves at its end.

    Args:
        materialized: assets that have a materialization of this run already.
        wanted: assets that shall have one if they follow, as those with a policy.
    """
    cursor, metadata = observation.cursor, observation.metadata()
    observes_tables = len(cursor.targets) <= config.dagster.observed_tables_max
    described = f"checked up to {cursor.position}"
    sources: set[str] = set()
    for table, target in sorted(cursor.targets.items()):
        sources.update(target.source_names)
        key, held = translator.table_key(config.name, table), target.suspended
        counts = key in wanted or translator.freshness_policy(config, table) is not None
        if held is None and counts and key not in materialized:
            yield dg.AssetMaterialization(
                key,
                description=f"unchanged, {described}",
                metadata=metadata | _state_of(target),
                tags=data_version(target.table_version),
            )
        elif observes_tables and held is None:
            yield dg.AssetObservation(key, description=described, metadata=metadata)
        elif observes_tables and held is not None:
            yield dg.AssetObservation(
                key,
                description=f"suspended at {held.position}",
                metadata=observation.suspended_metadata(held),
            )
    for source in sorted(sources) if observes_tables else ():
        key = translator.source_table_key(config.name, source)
        yield dg.AssetObservation(key, description=described, metadata=metadata)
    key = translator.cursor_key(config.name)
    counts = key in wanted or translator.freshness_policy(config, None) is not None
    if not counts or key in materialized:
        yield dg.AssetObservation(key, description=described, metadata=metadata)
        return
    # The newest materialization is what the next run reads: it holds the cursor, as it stands.
    yield dg.AssetMaterialization(
        key,
        description=f"batch {cursor.batch_number}, unchanged, {described}",
        metadata=translator.cursor_event_metadata(cursor, None, {})
        | metadata
        | {"batch_number": dg.MetadataValue.text(str(cursor.batch_number))}
        | cursor_entry(cursor, at_cut=newest_cut(config)),
    )


def _state_of(target: TargetState) -> Metadata:
    return {
        "delta_version": dg.MetadataValue.text(str(target.table_version)),
        "batch_number": dg.MetadataValue.text(str(target.applied_batch)),
    }
