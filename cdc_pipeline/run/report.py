"""Plan and result of a capture, as plain values for people, Dagster and ``--json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cdc_pipeline.config.modes import MODES, Mode, key_label
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import OperationStatus
from cdc_pipeline.lake.proofs import ProofReport
from cdc_pipeline.lake.records import Cut, Interval, Note
from cdc_pipeline.position.cursor import CursorState, OpenXa, Place, ResumePlace, Suspension
from cdc_pipeline.position.failback import Consumer, consumers_of, oldest
from cdc_pipeline.schema.evolution.steps import DdlDecision
from cdc_pipeline.text.wording import count_of


def needed_position(cursor: CursorState | None) -> Consumer | None:
    """What the source must not purge yet (SPEC P2)."""
    return None if cursor is None else oldest(consumers_of(cursor))


def quarantined(cut: Cut | None) -> dict[str, int]:
    return {} if cut is None else {table: count.rows for table, count in cut.quarantine.items()}


class PlannedTarget(FrozenModel):
    """One target as it is recorded, or will be made, and the reason.

    `key`: () if it finds rows by all of their values or not at all; None if the log determines
    it.
    """

    target: str
    sources: tuple[str, ...]
    mode: Mode
    key: tuple[str, ...] | None
    reason: str
    is_recorded: bool = True
    schema_changes: str = ""  # what its policy does

    @property
    def key_text(self) -> str:
        if self.key is None:
            return "found in the log"
        return key_label(self.mode, self.key)

    @property
    def kind_text(self) -> str:
        """With the source tables if the target's name does not reveal them."""
        mode = MODES[self.mode].label
        return mode if self.sources == (self.target,) else f"{mode} of {', '.join(self.sources)}"


class CapturePlan(FrozenModel):
    source: str
    identity: str
    start: ResumePlace
    start_reasons: tuple[str, ...]  # the chain that led to the start, first reason first
    end: Place
    end_reason: str
    limit: str = ""  # what ends the run before that end, if it is met; "" for a fixed end
    bytes_between: int
    journals: tuple[str, ...]  # journals to be read
    tables: tuple[str, ...]  # captured tables known so far: from the source, or from the last cut
    targets: tuple[PlannedTarget, ...] = ()  # of those tables
    partial_tables: tuple[str, ...]  # K19: tables whose earlier rows are missing
    unfinished_batch: int | None = None  # a recorded batch that is finished first
    oldest_needed: Consumer | None = None  # None: there is no cursor yet
    open_xa: tuple[OpenXa, ...] = ()  # prepared XA transactions whose rows are parked (K8)
    # suspended targets, by table (K4)
    suspended: dict[str, Suspension] = Field(default_factory=dict)
    # Delta features that readers must know, of the tables that are known: present and future ones.
    features: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    # what will apply their batches, by target: `plain`, or `spark` and why
    engines: dict[str, str] = Field(default_factory=dict)
    # rows that wait there, by source table
    quarantine: dict[str, int] = Field(default_factory=dict)
    unseen: tuple[str, ...] = ()  # patterns that match no table of the server or the lake
    # why, by target: `cdc-pipeline snapshot` reads them
    needs_snapshot: dict[str, str] = Field(default_factory=dict)
    operations: tuple[OperationStatus, ...] = ()  # under way, or waiting to be resumed
    # changes of captured tables that the source does not log: cascades
    warnings: tuple[str, ...] = ()

    @property
    def schema_changes(self) -> dict[str, list[str]]:
        """The targets of each policy."""
        policies: dict[str, list[str]] = {}
        for target in self.targets:
            policies.setdefault(target.schema_changes, []).append(target.target)
        return policies


class TableReport(FrozenModel):
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    # values that their Delta type cannot hold, by column
    rescued: dict[str, int] = Field(default_factory=dict)
    rescued_rows: int = 0
    delta_version: int = -1
    partial: bool = False
    engine: str = ""  # `plain`, `spark`, or both, by which its batches were applied


class ParallelReport(FrozenModel):
    """What was read on executors; `one_after_the_other`: why the rest was not, with its end."""

    bytes_parallel: int = 0
    bytes_sequential: int = 0
    tasks: int = 0
    batches: int = 0
    one_after_the_other: tuple[str, ...] = ()

    def __str__(self) -> str:
        why = f": {'; '.join(self.one_after_the_other)}" if self.one_after_the_other else ""
        if not self.tasks:
            return f"the driver{why}"
        rest = f"{self.bytes_sequential:,} bytes by the driver"
        return f"executors, in {count_of(self.tasks, 'task')}; {rest}{why}"


class CaptureReport(FrozenModel):
    source: str
    outcome: Literal["applied", "nothing_new"]
    reason: str  # the proof of a zero, or what was applied; and why the run ended where it did
    plan: CapturePlan
    interval: Interval
    recovered_batch: int | None = None
    batches: int = 0
    tables: dict[str, TableReport] = Field(default_factory=dict)
    # cut off at the proved end of a journal: never committed, dropped (K5)
    unfinished_transactions: int = 0
    ddl: tuple[DdlDecision, ...] = ()
    # rows that wait there after the run, by source table
    quarantine: dict[str, int] = Field(default_factory=dict)
    # recorded decisions that are no DDL: acceptances, suspensions, gaps
    notes: tuple[Note, ...] = ()
    # of `ddl` and `notes`, which hold the first thousand each; the cuts hold all (K25)
    entries_omitted: int = 0
    # targets suspended after the run (K4)
    suspended: dict[str, Suspension] = Field(default_factory=dict)
    cursor: CursorState | None = None
    # how the cursor was found at the start, and how a disagreement was resolved (K3)
    cursor_reason: str = ""
    # the last transaction that the store took (SPEC T3); None: nothing was read
    read_up_to: ResumePlace | None = None
    applied_up_to: ResumePlace | None = None  # what is committed: where the next run resumes
    oldest_needed: Consumer | None = None
    proof: ProofReport | None = None  # of the rows compared behind the run; None: it is not set
    parallel: ParallelReport | None = None  # who decoded; None: there was nothing to
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    spark_started: bool = False
