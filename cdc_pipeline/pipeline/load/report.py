"""What a load did, as plain values for people, Dagster and ``--json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cdc_pipeline.lake.records import Note
from cdc_pipeline.pipeline.report import LogPlace


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LoadedTarget(_Plain):
    """A target that was loaded.

    Attributes:
        load_id: of the load that did it.
        sources: its source tables.
        rows: of the new content; -1 unknown.
        rows_read, chunks: of its source tables.
        rows_quarantined: of its source tables, that wait in the quarantine.
        delta_version: with the new content.
        low, high: the place that the rows which were read stand for, and the end of the log when the last of them was.
        cut: in which the target has them.
    """

    load_id: str
    sources: tuple[str, ...]
    rows: int
    rows_read: int
    chunks: int
    rows_quarantined: int = 0
    delta_version: int
    low: LogPlace
    high: LogPlace
    cut: int


class LoadReport(_Plain):
    """What `load` did.

    Attributes:
        reason: why these tables, or why none.
        resumed: ids of loads of earlier processes that were gone on with.
        restarted: why tables were loaded anew within this load, by target.
    """

    source: str
    outcome: Literal["loaded", "nothing_to_load"]
    reason: str
    targets: dict[str, LoadedTarget] = Field(default_factory=dict)
    resumed: tuple[str, ...] = ()
    restarted: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    rows: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
