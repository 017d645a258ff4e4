"""The past runs of a source as Dagster keeps them."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
from pydantic import BaseModel, ConfigDict

from cdc_pipeline.orchestration.translator import SOURCE_TAG


class PastRun(BaseModel):
    """One Dagster run of a source: a capture, a snapshot, a change by hand, maintenance.

    Attributes:
        status: as Dagster names it, in lower case: ``success``, ``failure``, ``started`` ...
        started_at, seconds: None for a run that has not begun; `seconds` to the end, or to now.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str
    job: str
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None


def past_runs(instance: dg.DagsterInstance, *, source: str, limit: int) -> list[PastRun]:
    """Newest first."""
    records = instance.get_run_records(dg.RunsFilter(tags={SOURCE_TAG: source}), limit=limit)
    return [_past(record) for record in records]


def _past(record: dg.RunRecord) -> PastRun:
    started, ended = _moment(record.start_time), _moment(record.end_time)
    until = ended or datetime.now(UTC)
    return PastRun(
        run_id=record.dagster_run.run_id,
        job=record.dagster_run.job_name,
        status=record.dagster_run.status.value.lower(),
        created_at=record.create_timestamp,
        started_at=started,
        ended_at=ended,
        seconds=None if started is None else (until - started).total_seconds(),
    )


def _moment(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
