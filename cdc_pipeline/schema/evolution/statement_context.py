"""Plain values: the context of a statement that `changes` receives, and the decision it returns.

Rules:
- A shadow's rows are never captured: they are copies of its table's rows. Only the statements that
  made it differ from its table are kept.
- At the swap these statements are decided as if they had run on the table itself. Whatever the copy
  could have lost (a renamed column, rows that a new unique key refuses) counts as uncertain.
- These are plain values that outlive a run: the cursor stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.schema_policy import SchemaChangePolicy, ShadowNames
from cdc_pipeline.errors import ContentUnknownError, SchemaError, UnsupportedDdlError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.schema.ddl.published import needed_later, published
from cdc_pipeline.schema.ddl.statement import Statement, TableName
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.steps import ALL_FEATURES, DdlDecision, Step
from cdc_pipeline.schema.programs import StoredPrograms
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.schema.target_spec import RecordedShape, RecordedSource
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.text.table_names import table_name

_STATEMENTS_MAX = 100


class ShadowStatement(FrozenModel):
    """A statement that changed a shadow, with the context its meaning depends on."""

    sql: str
    database: str
    modes: SqlModes
    place: str = ""


class Shadow(FrozenModel):
    """A shadow of the table `of`, ``schema.table``; `doubt` says why its columns are uncertain."""

    of: str
    statements: tuple[ShadowStatement, ...] = ()
    doubt: str = ""

    def then(self, statement: ShadowStatement) -> Shadow:
        if any(statement.place == known.place for known in self.statements if known.place):
            return self  # read again
        if len(self.statements) >= _STATEMENTS_MAX:
            return self.model_copy(
                update={"doubt": f"it was altered more than {_STATEMENTS_MAX} times"}
            )
        return self.model_copy(update={"statements": (*self.statements, statement)})


RELOAD: Final = (
    "exclude the table (tables.exclude) or take a new snapshot of it: remove its target, and "
    "start a capture "
    "after this statement"
)


_DEFAULT_POLICY: Final = SchemaChangePolicy()
_SHADOW_NAMES: Final = ShadowNames()


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A target as it is recorded before or after a statement.

    Attributes:
        target: the target's columns; () if they are the source's. Includes dropped columns that
            are kept; types may be wider than the source's.
        shape: how its rule makes its columns of the source's.
        others: source tables that have rows in the target, too.
        name: of the target, if the source table has several.
        setting: the path of its rule; "" without one.
        policy: of its rule, or the pipeline's.
        by_key: the target finds its rows by the source's key.
        follows: an earlier RENAME separated the target's name from its table's, and the target
            still follows that table (K28: a name shows its table).
        rescued: the target's columns of which values were rescued.
    """

    source: RecordedSource
    target: tuple[TargetColumn, ...] = ()
    shape: RecordedShape | None = None
    others: tuple[RecordedSource, ...] = ()
    name: str = ""
    setting: str = ""
    policy: SchemaChangePolicy = _DEFAULT_POLICY
    by_key: bool = True
    follows: bool = False
    rescued: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.target == self.source.columns:
            object.__setattr__(self, "target", ())

    @property
    def target_columns(self) -> tuple[TargetColumn, ...]:
        return self.target or self.source.columns

    @property
    def shared(self) -> bool:
        return bool(self.others)

    def target_name(self, column: str) -> str:
        """The target's column that holds a source column's values."""
        return dict(self.source.names).get(column, column)

    def as_gone(self) -> KnownTable:
        return replace(self, source=self.source.model_copy(update={"gone": True}))


@dataclass(frozen=True, slots=True)
class CreateTarget:
    """A target that a CREATE TABLE creates. `may_exist`: IF NOT EXISTS, the table may be older
    than the statement, so that the target may be partial (K19); its first table map confirms the
    columns or stops the table.
    """

    table: TableName
    source: RecordedSource
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a statement does to the target of one source table.

    Attributes:
        table: the source table's name before the statement.
        known: what is recorded of the target afterwards.
        name: the source table's name afterwards; `table` unless it was renamed.
        inexact: the target may hold rows that the source does not have (K12).
        before: the recorded target before the statement (`StatementContext.decided`).
        replaces: another table has taken the name: the target is recreated empty.
        empties: the same, but only its first table map will define the columns; until then the
            target is just emptied.
        is_carried: the target's rows move to the target of the new name; `steps` apply to that one
            (K28).
    """

    table: TableName
    known: KnownTable
    steps: tuple[Step, ...] = ()
    name: TableName = ("", "")
    inexact: bool = False
    replaces: bool = False
    empties: bool = False
    is_carried: bool = False
    before: KnownTable | None = None

    @property
    def new_name(self) -> TableName:
        return self.name if self.name[1] else self.table


@dataclass(frozen=True, slots=True)
class ShadowChange:
    """What a statement does to a shadow table; `shadow` is None if it is gone."""

    name: TableName
    shadow: Shadow | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A table, captured or not before, that takes a captured name by RENAME."""

    name: TableName
    before: TableName


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one statement.

    Attributes:
        ddl: the decision for the run's metadata: `decision`, `reason`, `tables` (those captured, or
            all if none is).
        creates, changes: what to do, in order; a recorded statement may have `changes` too, without
            steps.
        arrivals: tables that take captured names; rows of those without a carried change are
            unknown.
        row_logged: row events record every row that it adds, removes or gives another key (K12).
    """

    statement: Statement
    ddl: DdlDecision
    creates: tuple[CreateTarget, ...] = ()
    changes: tuple[TableChange, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    shadows: tuple[ShadowChange, ...] = ()
    row_logged: bool = False

    @property
    def ignored(self) -> bool:
        return self.ddl.decision == "ignored"


@dataclass(frozen=True, slots=True)
class RowPosition:
    """The statement's place (`binlog.seq`), commit time, and GTID or position."""

    seq: int = 0
    ts_us: int = -1
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class StatementContext:
    """A statement at its place in the log, and what is captured and known there.

    Attributes:
        known: the recorded target of (database, table), or None.
        targets_in: names of a database's tables that have a target; without it DROP DATABASE always
            stops.
        before: (database, table) in the schema history before the statement.
        catalog_after: (database, table) in the server's catalog right after the statement, or None.
        shadow: what is recorded of a shadow table.
        shadowed: the table that a shadow's name belongs to; "" for other names.
        masked: columns of (database, table) whose values are masked in the lake.
        is_name_captured: whether (database, table) is captured, even if its targets are suspended.
        features: Delta features that the lake's tables may have.
        place: of rows that the statement itself removes.
        databases: of all tables that the statement opened, as its event lists them; None for any.
        reachable: returns the tables whose rows the lake holds or will hold from their first row
            on.
        programs: the server's triggers, views, routines and cascades; None if they are not known.
        accepted: whether (database, table) has no triggers and is no view, as people declare.
    """

    statement: Statement
    captured: Callable[[str, str], bool]
    known: Callable[[str, str], KnownTable | None]
    targets_in: Callable[[str], Collection[str]] | None = None
    journal: str = ""
    offset: int = -1
    before: Callable[[str, str], SourceTable | None] = lambda _database, _table: None
    catalog_after: Callable[[str, str], TableSchema | None] = lambda _database, _table: None
    shadow: Callable[[str, str], Shadow | None] = lambda _database, _table: None
    shadowed: Callable[[str], str] = _SHADOW_NAMES.table_of
    masked: Callable[[str, str], Collection[str]] = lambda _database, _table: ()
    is_name_captured: Callable[[str, str], bool] | None = None
    features: Collection[str] = ALL_FEATURES
    place: RowPosition = RowPosition()
    databases: frozenset[str] | None = None
    reachable: Callable[[], Collection[TableName]] = lambda: ()
    programs: Callable[[], StoredPrograms | None] = lambda: None
    accepted: Callable[[str, str], bool] = lambda _database, _table: False

    @property
    def touched(self) -> tuple[TableName, ...]:
        """The captured tables that the statement names."""
        return tuple(filter(self.is_captured, self.statement.tables))

    def is_captured(self, table: TableName) -> bool:
        return self.captured(*table)

    def recorded(self, table: TableName) -> KnownTable | None:
        return self.known(*table)

    def target_of(self, table: TableName) -> KnownTable | None:
        """Of a table that is captured now."""
        return self.recorded(table) if self.is_captured(table) else None

    def takes_name(self, table: TableName) -> bool:
        """Whether a table of this name is captured, even if its targets are suspended."""
        return (self.is_name_captured or self.captured)(*table)

    def shadow_statement(self, table: TableName) -> ShadowStatement:
        """For the record, to be read again when the shadow replaces `table`."""
        statement = self.statement
        return ShadowStatement(
            sql=needed_later(statement, self.masked(*table)),
            database=statement.default_database,
            modes=statement.modes,
            place=f"{self.journal}:{self.offset}",
        )

    def ignored(self, reason: str) -> Decision:
        decision = self.decided(reason)
        return replace(decision, ddl=decision.ddl.model_copy(update={"decision": "ignored"}))

    def decided(
        self,
        reason: str,
        changes: Iterable[TableChange] = (),
        *,
        creates: tuple[CreateTarget, ...] = (),
        arrivals: tuple[Arrival, ...] = (),
        policy: Iterable[str] = (),
    ) -> Decision:
        """Recorded, unless a table of the lake changes: then applied."""
        statement = self.statement
        changes = tuple(replace(change, before=self.recorded(change.table)) for change in changes)
        is_applied = creates or any(
            change.steps or change.name[1] or change.replaces for change in changes
        )
        ddl = DdlDecision(
            journal=self.journal,
            offset=self.offset,
            sql=published(statement),
            kind=statement.kind.value,
            tables=tuple(table_name(*table) for table in self.touched or statement.tables),
            decision="applied" if is_applied else "recorded",
            reason=reason,
            policy=", ".join(policy),
        )
        return Decision(statement, ddl, creates, changes, arrivals)

    def rows_unknown(self, table: TableName) -> ContentUnknownError:
        """For a table whose rows the statement may have changed (K29)."""
        statement = self.statement
        if table in statement.tables:
            what = f"the journal holds {statement.verb} as a statement instead of rows"
            proof = ""
        else:
            what = (
                f"the journal holds {statement.verb or 'a change'} as a statement, and nothing "
                "proves that no trigger, view, function or foreign key led it to this table"
            )
            proof = (
                "; for proofs, GRANT SELECT, TRIGGER, SHOW VIEW ON *.* to the account, or name "
                "tables that have no triggers in accept.statements"
            )
        return ContentUnknownError(
            what,
            table=table_name(*table),
            setting="binlog_format",
            expected="binlog_format=ROW in every session",
            got=published(statement),
            next_step=f"SET GLOBAL binlog_format = 'ROW', and end all older sessions{proof}",
        )

    def contradiction(
        self, known: KnownTable, table: TableName, what: str, setting: str
    ) -> SchemaError:
        """Of the statement and the rule of a target."""
        at = f"{known.setting}.{setting}" if known.setting else "targets"
        return SchemaError(
            f"a statement and the rule of target {known.name} contradict each other: {what} ({at})",
            table=table_name(*table),
            setting=at,
            next_step="take a new snapshot under a rule for the new columns: give the rule "
            "another `name`, and start a capture after this statement",
        )

    def unsupported(
        self, what: str, table: TableName | None, next_step: str = RELOAD
    ) -> UnsupportedDdlError:
        return UnsupportedDdlError(
            what,
            table=None if table is None else table_name(*table),
            got=published(self.statement),
            next_step=next_step,
        )
