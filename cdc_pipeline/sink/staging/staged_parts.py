"""What a batch under way holds for each of its targets: what is done to its table, and
the staged files with their counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from cdc_pipeline.lake.records import RecordedContent, StagedFile, TargetColumn
from cdc_pipeline.lake.staged_file import StagedFileWriter
from cdc_pipeline.schema.evolution.steps import Step
from cdc_pipeline.sink.modes.expand import DELETE, LEAVE, StagedRows
from cdc_pipeline.sink.target import Target


@dataclass
class StagedPart:
    """Files and counts of a target, of the batch or of the open transaction."""

    closed: list[StagedFile] = field(default_factory=list)
    writer: StagedFileWriter | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    partial: bool = False
    partial_key_updates: int = 0
    gone: int = 0
    rescued: Counter[str] = field(default_factory=Counter)
    rescued_rows: int = 0

    @property
    def staged_bytes(self) -> int:
        written = self.writer.staged_bytes if self.writer else 0
        return sum(file.size_bytes for file in self.closed) + written

    @property
    def staged_rows(self) -> int:
        return sum(file.rows for file in self.closed) + (self.writer.rows if self.writer else 0)

    def count(self, staged: StagedRows) -> None:
        self.inserted += staged.rows_inserted
        self.updated += staged.rows_updated
        self.deleted += staged.rows_deleted
        self.partial |= staged.partial
        self.partial_key_updates += staged.partial_key_updates
        self.gone += int(np.isin(staged.table.column("_op").to_numpy(), (DELETE, LEAVE)).sum())

    def join(self, other: StagedPart) -> None:
        self.closed += other.closed
        self.inserted += other.inserted
        self.updated += other.updated
        self.deleted += other.deleted
        self.partial |= other.partial
        self.partial_key_updates += other.partial_key_updates
        self.gone += other.gone
        self.rescued += other.rescued
        self.rescued_rows += other.rescued_rows


@dataclass
class StagedTarget:
    """The change of a target's table, its rows, and those of the open transaction."""

    target: Target
    create: bool = False
    changed: bool = False
    before: tuple[TargetColumn, ...] = ()
    steps: tuple[Step, ...] = ()
    content: RecordedContent | None = None
    restores: int = -1
    part: StagedPart = field(default_factory=StagedPart)
    open: StagedPart | None = None
