"""What a capture planned and did, as plain values for people, Dagster and ``--json``."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from cdc_pipeline.position.cursor import CursorState, OpenXa
from cdc_pipeline.sink.manifest import Cut, DdlDecision, Interval, Note


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CapturePlan(_Plain):
    """What a run would do; made without writing anything."""

    source: str
    identity: str
    start_journal: str
    start_offset: int
    start_gtid_set: str
    start_reasons: tuple[str, ...]  # the chain that led to the start, first reason first
    end_journal: str
    end_offset: int
    end_reason: str
    bytes_between: int
    journals: tuple[str, ...]  # journals to be read
    tables: tuple[str, ...]  # captured tables known so far: from the source, or from the last cut
    partial_tables: tuple[str, ...]  # K19
    unfinished_batch: int | None = None  # a recorded batch that is finished first
    open_xa: tuple[OpenXa, ...] = ()  # prepared XA transactions whose rows are parked (K8)


class TableReport(_Plain):
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    delta_version: int = -1
    partial: bool = False


class CaptureReport(_Plain):
    """What a run did."""

    source: str
    outcome: Literal["applied", "nothing_new"]
    reason: str  # the proof of a zero, or what was applied
    plan: CapturePlan
    interval: Interval
    recovered_batch: int | None = None
    batches: int = 0
    tables: dict[str, TableReport] = Field(default_factory=dict)
    unfinished_transactions: int = 0  # cut off at the proved end of a journal: never committed, dropped (K5)
    ddl: tuple[DdlDecision, ...] = ()
    notes: tuple[Note, ...] = ()  # recorded decisions that are no DDL: acceptances, suspensions, gaps
    cursor: CursorState | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    spark_started: bool = False


class CaptureObserver(Protocol):
    """Is told of a capture's progress, in the capture's own thread."""

    def planned(self, plan: CapturePlan) -> None:
        """Before anything is read."""

    def progressed(self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int) -> None:
        """From time to time while reading."""

    def reached(self, joint: str) -> None:
        """A joint of K2, as `DeltaSink` names them, and before_cursor and before_ack."""

    def published(self, cut: Cut) -> None:
        """A batch's cut was written; its cursor comes next."""


class SilentObserver:
    """Observes nothing."""

    def planned(self, plan: CapturePlan) -> None: ...

    def progressed(self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int) -> None: ...

    def reached(self, joint: str) -> None: ...

    def published(self, cut: Cut) -> None: ...
