"""Report of a snapshot, as plain values for people, Dagster and ``--json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.records import Note
from cdc_pipeline.position.cursor import ResumePlace


class SnapshotTarget(FrozenModel):
    """`rows`: of the new content, -1 unknown; `rows_read`, `chunks`, `rows_quarantined`: of its
    source tables; `low`, `high`: the place whose seq the rows carry, and the end of the log when
    the last row was read; `cut`, `delta_version`: the first with the new content.
    """

    operation_id: str
    sources: tuple[str, ...]
    rows: int
    rows_read: int
    chunks: int
    rows_quarantined: int = 0
    delta_version: int
    low: ResumePlace
    high: ResumePlace
    cut: int


class SnapshotReport(FrozenModel):
    """`reason`: why these tables; `restarted`: why they were read again within this snapshot."""

    source: str
    outcome: Literal["taken", "nothing_to_do"]
    reason: str
    targets: dict[str, SnapshotTarget] = Field(default_factory=dict)
    resumed: tuple[str, ...] = ()
    restarted: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    rows: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
