"""The base class of a mode in the sink; each mode's own file implements it.

A method makes SQL text or staged rows and commits nothing; the caller commits each statement
once, under the batch's id (K2). `sink/modes/registry.py` has one object per mode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.evolution.steps import FillColumns
from cdc_pipeline.sink.modes.expand import StagedRows, expand
from cdc_pipeline.sink.modes.mode_columns import live_rows_sql
from cdc_pipeline.sink.modes.reduce import Layout, StagedFiles
from cdc_pipeline.sink.modes.shape import shaped_view
from cdc_pipeline.sink.spark.sql import quoted, table_at

if TYPE_CHECKING:
    from cdc_pipeline.schema.target_spec import TargetSpec
    from cdc_pipeline.sink.modes.replaced import ReplacedRows


class SinkMode(ABC):
    """One mode in the sink. What is not abstract suits a mode whose rows are found by a key.

    Attributes:
        staged_images: first letters of the staged columns that hold images, one for each image.
        stages_deleted_values: of a deleted row all values are staged, not its key alone.
    """

    staged_images: str = "c"
    stages_deleted_values: bool = False

    def stage(
        self, rows: DecodedRows, spec: TargetSpec, transactions: pa.Array | None
    ) -> StagedRows:
        """`transactions`: strings (n,), None if the mode names none. Raises StagingError."""
        names = tuple(column.name for column in spec.columns)
        return expand(rows, columns=names, key=spec.key, before_values=self.stages_deleted_values)

    def staged_schema(self, target: RecordedTarget) -> str:
        return Layout(target).read_schema()

    def apply_sql(self, staged: StagedFiles) -> str:
        frame = staged.session.read.schema(self.staged_schema(staged.target)).parquet(
            *[str(file) for file in staged.files]
        )
        shaped_view(staged.session, staged.target, frame, "staged")
        return self.batch_sql(staged)

    @abstractmethod
    def batch_sql(self, staged: StagedFiles) -> str:
        """The statement that applies the view ``staged``; makes views."""

    def fill_sql(self, path: Path, target: RecordedTarget, step: FillColumns) -> str:
        """A default applies to rows that the source has now; rows of the past keep their values.
        Values computed from other columns apply to all rows.
        """
        live = live_rows_sql(MODES[target.spec.mode])
        settings = filled_columns(step, live=live)
        where = (
            f" WHERE {live}"
            if live and {name for name, _, _ in step.values} <= set(step.defaults)
            else ""
        )
        return f"UPDATE {table_at(path)} SET {', '.join(settings)}{where}"

    @abstractmethod
    def truncate_sql(
        self, path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str
    ) -> str:
        """Of a TRUNCATE, or a DROP whose target stays; GTID or ``journal:offset``."""

    @abstractmethod
    def replaced_sql(self, rows: ReplacedRows) -> str:
        """All rows of the target after a snapshot, if rows or values of the old table stay."""


def filled_columns(step: FillColumns, *, live: str) -> Sequence[str]:
    """Defaults go to the rows that `live` picks, if it is given."""
    settings = []
    for name, kind, value in step.values:
        new_value = f"CAST({value} AS {kind})"
        if live and name in step.defaults:
            new_value = f"CASE WHEN {live} THEN {new_value} ELSE {quoted(name)} END"
        settings.append(f"{quoted(name)} = {new_value}")
    return settings
