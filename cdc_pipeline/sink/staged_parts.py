"""What a batch under way holds of each target: its plan, staged files and counts (see `staging`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_pipeline.schema.steps import Step
from cdc_pipeline.sink.expand import ARRIVE, DELETE, INSERT, LEAVE, UPDATE, StagedRows
from cdc_pipeline.sink.manifest import (
    RecordedContent,
    RecordedShape,
    RecordedSource,
    RecordedTarget,
    StagedFile,
    TargetColumn,
)
from cdc_pipeline.sink.raw_files import RawParts
from cdc_pipeline.sink.rescue import undone_counts
from cdc_pipeline.sink.staged_file import StagedFileWriter
from cdc_pipeline.target_config import Mode


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What a batch must know of a target.

    Attributes:
        table: the target's name, ``schema.table`` in the lake.
        app_id: the target's transaction application id in Delta; a created table gets it for good.
        columns: the target's source columns after this batch.
        key: names among them.
        partial: as recorded for a table that this batch creates (K19).
        mode: how the target follows the source.
        track, key_reason, sources, shape, exact: as in `manifest.RecordedTarget`.
        rescued: columns of which values were rescued, those of this batch included; None: there is no rescue column.
        replaces: the app_id of the table in whose place this batch makes it anew; "" else.
    """

    table: str
    app_id: str
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    partial: bool = False
    mode: Mode = "mirror"
    track: tuple[str, ...] = ()
    key_reason: str = ""
    sources: Mapping[str, RecordedSource] = field(default_factory=dict)
    shape: RecordedShape | None = None
    rescued: tuple[str, ...] | None = None
    replaces: str = ""
    exact: bool = False


@dataclass
class Part:
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

    @property
    def staged_bytes(self) -> int:
        written = self.raw.staged_bytes + (self.writer.staged_bytes if self.writer else 0)
        return sum(file.size_bytes for file in self.closed) + written

    @property
    def staged_rows(self) -> int:
        return sum(file.rows for file in self.closed) + (self.writer.rows if self.writer else 0) + self.raw.rows

    def count(self, staged: StagedRows) -> None:
        self.inserted += staged.rows_inserted
        self.updated += staged.rows_updated
        self.deleted += staged.rows_deleted
        self.partial |= staged.partial
        self.partial_key_updates += staged.partial_key_updates
        self.gone += int(np.isin(staged.table.column("_op").to_numpy(), (DELETE, LEAVE)).sum())

    def join(self, other: Part) -> None:
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
class TargetPart:
    plan: TargetPlan
    create: bool = False
    changed: bool = False
    before: tuple[TargetColumn, ...] = ()
    steps: tuple[Step, ...] = ()
    content: RecordedContent | None = None
    restores: int = -1
    part: Part = field(default_factory=Part)
    open: Part | None = None


def uncount(part: Part, gone: pa.Table, *, rescued: str) -> None:
    """Take the rescued values of rows that never count out of the counts."""
    if rescued in gone.column_names:
        arriving = pa.array(np.isin(gone.column("_op").to_numpy(), (INSERT, UPDATE, ARRIVE)))
        rows, values = undone_counts(gone.filter(arriving).column(rescued))
        part.rescued_rows -= rows
        part.rescued -= values


def recorded(target: TargetPart) -> RecordedTarget:
    plan, part = target.plan, target.part
    return RecordedTarget(
        table=plan.table,
        app_id=plan.app_id,
        mode=plan.mode,
        track=plan.track,
        key_reason=plan.key_reason,
        columns=plan.columns,
        key=plan.key,
        sources=dict(plan.sources),
        exact=plan.exact,
        shape=plan.shape,
        create=target.create,
        partial=plan.partial,
        columns_before=target.before,
        schema_steps=target.steps,
        replaces=plan.replaces,
        files=tuple(part.closed),
        raw_files=tuple(part.raw.closed),
        rows_inserted=part.inserted if target.content is None else max(target.content.rows, 0),
        rows_updated=part.updated,
        rows_deleted=part.deleted,
        all_present=not part.partial,
        partial_key_updates=part.partial_key_updates,
        rows_gone=part.gone,
        rescues=plan.rescued is not None,
        rescued={name: part.rescued[name] for name in sorted({*part.rescued, *(plan.rescued or ())})},
        rescued_rows=part.rescued_rows,
        content=target.content,
        restores=target.restores,
    )
