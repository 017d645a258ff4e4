"""What the lake remembers of a source: records of batches and cuts, as plain JSON (K2, K3).

Rules:
- A record is written once (put if absent) before its batch acts; a cut once, after all of its batch's merges. Both are
  named by the batch number; the cut of batch n is cut n.
- A record holds everything that is needed to finish its batch without the source.
- A cut carries all that the cursor does.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cdc_pipeline.position.cursor import CursorState


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Plain):
    """A contiguous part of the log that a batch or a run covered: from start (included) to end (excluded)."""

    start_journal: str
    start_offset: int
    end_journal: str
    end_offset: int
    transactions_seen: int = 0
    transactions_applied: int = 0  # those with at least one row or DDL of a captured table
    events_seen: int = 0
    bytes_seen: int = 0
    rows_ignored: int = 0  # rows of tables that are not captured
    statements_ignored: int = 0  # DDL and other statements of tables that are not captured, and harmless ones


class DdlDecision(_Plain):
    """What was decided of one statement; shown in the run's metadata."""

    journal: str
    offset: int
    sql: str
    kind: str  # create_table, add_column, index, ...
    tables: tuple[str, ...]
    decision: Literal["applied", "recorded", "ignored"]
    reason: str


class AddedColumn(_Plain):
    """A column that a DDL adds to a target: Delta type as DDL text, and the constant that old rows get."""

    name: str
    delta_type: str
    # Value of existing rows as a Spark SQL literal; "NULL" where they get NULL.
    backfill_sql: str = "NULL"


class TargetColumn(_Plain):
    """One column of a target as it is recorded: Delta type as DDL text, such as ``decimal(10,2)``."""

    name: str
    delta_type: str


class StagedFile(_Plain):
    """One Parquet file below the source's staging folder."""

    path: str  # relative to the lake
    size_bytes: int
    rows: int
    sha256: str


class RecordedTarget(_Plain):
    """What a batch does to one target.

    `step` numbers the DML statements of the batch on this target: transaction version = 16 * batch_number + step.
    """

    table: str  # source table, schema.table
    app_id: str
    columns: tuple[TargetColumn, ...]  # the target's source columns after this batch, without _cdc_ columns
    key: tuple[str, ...]
    create: bool = False  # the table is created by this batch
    partial: bool = False
    add_columns: tuple[AddedColumn, ...] = ()
    files: tuple[StagedFile, ...] = ()
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    all_present: bool = True  # every image holds every column; else the general reduction of K10 is needed


class BatchRecord(_Plain):
    """Everything that batch `batch_number` will do, written before it does anything."""

    version: Literal[1] = 1
    source: str
    batch_number: int
    run_id: str = ""
    interval: Interval
    # The cursor as it will be after the batch, but for the Delta versions of `targets`, which the merges give.
    cursor_after: CursorState
    source_time_us: int = -1  # commit time of the batch's last transaction at the source; -1 unknown
    targets: tuple[RecordedTarget, ...] = ()
    ddl: tuple[DdlDecision, ...] = ()


class CutTable(_Plain):
    """One target in a cut."""

    delta_version: int
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    columns: tuple[TargetColumn, ...] = ()
    key: tuple[str, ...] = ()


class Cut(_Plain):
    """All targets of a source at one transaction end of the source."""

    version: Literal[1] = 1
    source: str
    batch_number: int
    published_at_us: int
    source_time_us: int = -1
    interval: Interval
    cursor: CursorState
    # All targets of the source, changed by this batch or not.
    tables: dict[str, CutTable] = Field(default_factory=dict)
    ddl: tuple[DdlDecision, ...] = ()
