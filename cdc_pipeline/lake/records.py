"""Records of batches and cuts, as plain JSON (K2, K3).

Rules:
- A record is written once (put if absent) before its batch acts; a cut once, after all of its
  batch's merges. Both are named by the batch number; the cut of batch n is cut n.
- A record holds everything that is needed to finish its batch without the source.
- A cut carries all that the cursor does.
- Parts of a table that only DDL and configuration change (`TableFacts`: columns, key, mode ...) are
  kept once for all cuts, and a cut refers to them (`lake/table_facts.py`, K25).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.position.cursor import CursorState, Place, ResumePlace
from cdc_pipeline.schema.evolution.steps import DdlDecision, Describe, Step
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn


class Interval(FrozenModel):
    """A contiguous part of the log: from start (included) to end (excluded)."""

    start: Place
    end: Place
    transactions_seen: int = 0
    transactions_applied: int = 0  # those with at least one row or DDL of a captured table
    events_seen: int = 0
    bytes_seen: int = 0
    row_events_ignored: int = 0  # rows events of tables that are not captured
    transactions_rolled_back: int = 0  # groups that end with ROLLBACK: their rows never count
    xa_prepared: int = 0  # groups that end with XA PREPARE: their rows wait (K8)
    xa_committed: int = 0
    xa_rolled_back: int = 0
    # XA ROLLBACK, or an accepted XA COMMIT, of a transaction that was prepared before the start
    xa_unknown: int = 0
    # DDL and other statements of tables that are not captured, and harmless ones
    statements_ignored: int = 0
    row_events_suspended: int = 0  # rows events of suspended tables: left to their catch-up (K4)
    statements_suspended: int = 0  # DDL of suspended tables, likewise
    rows_erased: int = 0  # left out, or changed, because their keys were erased on request
    # of unknown types, flagged ignorable
    ignorable_events: dict[str, int] = Field(default_factory=dict)

    def then(self, following: Interval) -> Interval:
        """Both, counted together."""
        counts = {
            name: getattr(self, name) + getattr(following, name)
            for name, field in Interval.model_fields.items()
            if field.annotation is int
        }
        ignorable = Counter(self.ignorable_events) + Counter(following.ignorable_events)
        return Interval(
            start=self.start, end=following.end, ignorable_events=dict(ignorable), **counts
        )


BatchKind = Literal["batch", "catch_up", "cursor_set", "replay", "snapshot", "repair", "erase"]


class Note(FrozenModel):
    """Other than DDL, such as a suspension or a gap. `kind`: one word for programs, `text`: one
    sentence.
    """

    kind: str
    text: str
    journal: str = ""
    offset: int = 0
    table: str = ""


class StagedFile(FrozenModel):
    path: str  # relative to the lake
    size_bytes: int
    rows: int
    sha256: str


class QuarantineFile(StagedFile):
    """Rows of one source table that could not be applied."""

    table: str


class QuarantineMark(FrozenModel):
    entry: str  # its id: <batch number>.<place in the batch's files>
    table: str  # source table
    what: Literal["replayed", "discarded"]
    who: str = ""
    why: str = ""
    at_us: int = -1


class QuarantineCount(FrozenModel):
    """`gone`: rows that its targets have not kept since the first of them came, and statements that
    changed the table: a replay would restore one that is gone (K18).
    """

    rows: int = 0
    gone: int = 0


class ColumnDefault(FrozenModel):
    """That the server gave to existing rows, as Spark SQL: a changelog's rows before `seq` lack
    it.
    """

    column: str
    delta_type: str
    value: str
    seq: str


class EarlierLayout(FrozenModel):
    """What a changelog's rows from before `seq` were written with, where a DDL changed it there.

    Attributes:
        names: by a column's name before, the columns that have its value afterwards; () if none
            has.
        keys: by source table, the key before, under the target's present names.
    """

    seq: str
    names: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class RecordedContent(FrozenModel):
    """A version of a side table whose rows replace those of a target (`sink/replace/replace.py`).

    Attributes:
        path: folder of the side table, relative to the lake.
        version: of that table.
        app_id: its transaction application id.
        rows: living rows; -1 unknown.
        files, size_bytes: of its data files; -1 files: not counted, because the version determines
            them.
        seq: the place of the side table's first rows, as text (K1): rows that a snapshot has read
        have
            this seq, except for ordinals and image; "" if nothing of the old rows is kept.
        ts_us: time of that place at the source; -1 unknown.
        keeps_rows: rows of the target stay, by the rules of its mode (`SinkMode.replaced_sql`).
        kept_version: of the target's table, whose rows or values stay; None: the newest.
        carried: columns that the side table lacks: each row gets its values from the target's row
            of its key.
        restarts: of a changelog: the target does not hold every change up to `seq`, so that the
            side table's rows restart it.
        rescued_ever, column_defaults, layouts: as in `CutTable`, of the side table.
        renamed_from: no side table but another target of the source, whose table has taken the name
            of this one by RENAME (K28); "" otherwise. The batch may do `schema_steps` to the rows
            after that.
    """

    path: str
    version: int
    app_id: str
    rows: int = -1
    files: int = 0
    size_bytes: int = 0
    seq: str = ""
    ts_us: int = -1
    keeps_rows: bool = False
    kept_version: int | None = None
    carried: tuple[str, ...] = ()
    restarts: bool = False
    rescued_ever: dict[str, int] = Field(default_factory=dict)
    column_defaults: tuple[ColumnDefault, ...] = ()
    layouts: tuple[EarlierLayout, ...] = ()
    renamed_from: str = ""

    @property
    def keeps_anything(self) -> bool:
        return bool(self.keeps_rows or self.carried)


class _HasSpec(FrozenModel):
    """A record of one target. In JSON the fields of its `spec` lie among its own."""

    @model_validator(mode="before")
    @classmethod
    def _gather_spec(cls, document: Any) -> Any:
        if not isinstance(document, dict) or "spec" in document:
            return document
        own = {
            name: value for name, value in document.items() if name not in TargetSpec.model_fields
        }
        return own | {"spec": {name: document[name] for name in document.keys() - own.keys()}}

    @model_serializer(mode="wrap")
    def _spread_spec(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, value in serialize(self).items():
            document |= value if name == "spec" else {name: value}
        return document


class RecordedTarget(_HasSpec):
    """Its DML statements are numbered by step: transaction version = 16 * batch_number + step."""

    table: str  # the target's name, schema.table in the lake
    app_id: str
    spec: TargetSpec  # after this batch
    create: bool = False  # the table is created by this batch
    partial: bool = False
    # Steps from `columns_before` to `columns`, and to the rows after a DDL
    # (`sink/apply/schema_steps.py`, K13).
    columns_before: tuple[TargetColumn, ...] = ()
    schema_steps: tuple[Step, ...] = ()
    replaces: str = ""  # app_id of the empty table that this one replaces (a recreated table)
    files: tuple[StagedFile, ...] = ()
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    # The target was exact before this batch (see `TargetState.exact`): inserts alone may be
    # appended (K12).
    exact: bool = False
    # every image holds every column; else the general reduction of K10 is needed
    all_present: bool = True
    # key updates whose new image lacks columns: those come from the old row (K10)
    partial_key_updates: int = 0
    # the table has `_cdc_rescued`, as the last of the staged columns (sink/modes/rescue.py)
    rescues: bool = False
    # values that became NULL in their column, by column
    rescued: dict[str, int] = Field(default_factory=dict)
    rescued_rows: int = 0  # rows with such values
    # Keys that leave the target, or may: deletes, key updates, and what a filter judges.
    rows_gone: int = 0
    # It replaces the whole target; there are no rows, and no steps unless a RENAME brought it.
    content: RecordedContent | None = None
    # The batch restores the rows of this version of the table (`sink/apply/external_writes.py`); it
    # has no rows or steps.
    restores: int = -1
    # The staged file holds keys: their rows are erased (`sink/apply/erase.py`), and nothing else
    # happens to the target.
    erases: bool = False

    @property
    def keys_come_once(self) -> bool:
        """In the batch: only of an exact target's inserts. Rows that are two at the source may have
        one key by a rule, and a row may go without an event and come again.
        """
        return self.exact and not self.rows_updated and not self.rows_deleted

    @property
    def is_of_snapshot(self) -> bool:
        """If that fails, the target stays as it was, and continues."""
        return self.content is not None and not self.content.renamed_from

    @property
    def alters(self) -> bool:
        """Whether its steps change columns or rows, and not comments alone."""
        return any(not isinstance(step, Describe) for step in self.schema_steps)

    def with_spec(self, **changes: object) -> RecordedTarget:
        return self.model_copy(update={"spec": self.spec.model_copy(update=changes)})


class BatchRecord(FrozenModel):
    """All that batch `batch_number` will do, written before it does anything.

    `kind` is ``catch_up`` for a batch of suspended targets alone (K4), ``cursor_set`` if a
    person has moved the cursor (K3), and ``replay`` for rows from the quarantine. A ``snapshot``
    brings rows that were read from the source's tables, or swaps a loaded table into its
    target's place. A ``repair`` brings rows that a comparison with the source found, or restores
    a table's own rows. An ``erase`` removes rows on request.
    Of these only ``cursor_set`` moves the cursor. `start` is the position of
    a target that the batch has to leave behind: the interval's start, or before the begin of an
    XA transaction that was prepared and open there (K8).
    """

    version: Literal[4] = 4
    source: str
    batch_number: int
    kind: BatchKind = "batch"
    run_id: str = ""
    start: ResumePlace
    interval: Interval
    # The cursor as it will be after the batch, without the table versions of `targets`, which the
    # merges determine.
    cursor_after: CursorState
    # commit time of the batch's last transaction at the source; -1 unknown
    source_time_us: int = -1
    targets: tuple[RecordedTarget, ...] = ()
    # tables that are not captured any more: their targets leave the cursor
    dropped: tuple[str, ...] = ()
    # rows that could not be applied (`lake/quarantine.py`)
    quarantine: tuple[QuarantineFile, ...] = ()
    quarantine_marks: tuple[QuarantineMark, ...] = ()
    ddl: tuple[DdlDecision, ...] = ()
    notes: tuple[Note, ...] = ()


class TableFacts(_HasSpec):
    """Facts of a target that only DDL and configuration change."""

    spec: TargetSpec = TargetSpec()
    rescues: bool = False  # as in `RecordedTarget`
    column_defaults: tuple[ColumnDefault, ...] = ()  # of a changelog
    layouts: tuple[EarlierLayout, ...] = ()  # of a changelog


class CutTable(TableFacts):
    """One target in a cut.

    Attributes:
        facts: reference of the cut's file to the fields of `TableFacts`; "" before it is written.
        table_version: of the target's table.
        transaction_version: the table's transaction id of the target's app_id at this version; -1:
            none yet.
        engine: ``plain`` or ``spark``, by which this cut's batch was applied to it; "" if it
            changed nothing here, or if an earlier run applied it.
    """

    table_version: int
    transaction_version: int = -1
    engine: str = ""
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rescued: dict[str, int] = Field(default_factory=dict)  # these two as in `RecordedTarget`
    rescued_rows: int = 0
    rescued_ever: dict[str, int] = Field(default_factory=dict)  # over all batches so far
    facts: str = ""
    applied_batch: int = -1  # in a cut's file, for its `TargetState`; -1 if that is in the cursor

    @property
    def row_changes(self) -> int:
        return self.rows_inserted + self.rows_updated + self.rows_deleted


class Cut(FrozenModel):
    """All targets of a source at one transaction end. Its file refers by numbers into `facts_files`
    to `TableFacts`, with what seldom changes of the cursor's `TargetState`s."""

    version: Literal[6] = 6
    source: str
    batch_number: int
    kind: BatchKind = "batch"
    published_at_us: int
    source_time_us: int = -1
    # its place in the order of all cuts: see `cut_order`
    latest_source_time_us: int = -1
    ordered_from: int = 0
    interval: Interval
    cursor: CursorState
    # All targets of the source, changed by this batch or not.
    tables: dict[str, CutTable] = Field(default_factory=dict)
    # by source table; those with rows in it
    quarantine: dict[str, QuarantineCount] = Field(default_factory=dict)
    ddl: tuple[DdlDecision, ...] = ()
    notes: tuple[Note, ...] = ()
    facts_files: tuple[str, ...] = ()  # in a cut's file alone
