"""Files and counts of one target in a batch under way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_pipeline.sink.expand import ARRIVE, INSERT, UPDATE
from cdc_pipeline.sink.manifest import StagedFile
from cdc_pipeline.sink.raw_files import RawParts
from cdc_pipeline.sink.ready_files import ReadyParts
from cdc_pipeline.sink.rescue import undone_counts
from cdc_pipeline.sink.staged_file import StagedFileWriter


@dataclass
class StagedPart:
    """Files and counts of a target: those that belong to the batch, or those of the open transaction."""

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
    raw: RawParts = field(default_factory=RawParts)
    ready: ReadyParts = field(default_factory=ReadyParts)

    @property
    def staged_bytes(self) -> int:
        written = self.raw.staged_bytes + self.ready.staged_bytes + (self.writer.staged_bytes if self.writer else 0)
        return sum(file.size_bytes for file in self.closed) + written

    @property
    def staged_rows(self) -> int:
        return (
            sum(file.rows for file in self.closed)
            + (self.writer.rows if self.writer else 0)
            + self.raw.rows
            + self.ready.rows
        )

    @property
    def has_files(self) -> bool:
        """Whether any file is closed."""
        return bool(self.closed or self.raw.closed or self.ready.closed)

    @property
    def has_others(self) -> bool:
        """Whether there are rows that are not staged as the target's own files."""
        return self.staged_rows > self.ready.rows

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

    def uncount(self, gone: pa.Table, *, rescued: str) -> None:
        """Take the rescued values of rows that never count out of the counts."""
        if rescued in gone.column_names:
            arriving = pa.array(np.isin(gone.column("_op").to_numpy(), (INSERT, UPDATE, ARRIVE)))
            rows, values = undone_counts(gone.filter(arriving).column(rescued))
            self.rescued_rows -= rows
            self.rescued -= values
