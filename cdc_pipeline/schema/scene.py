"""What `cdc_pipeline.schema.changes` is told of a statement's surroundings, and what it answers: plain values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from cdc_pipeline.errors import UnsupportedDdlError
from cdc_pipeline.schema.ddl_tokens import SqlModes
from cdc_pipeline.schema.decisions import AddedColumn, DdlDecision
from cdc_pipeline.schema.statement import Statement, TableName
from cdc_pipeline.schema.types import TargetColumn

SQL_SHOWN_MAX_CHARS: Final = 500
RELOAD: Final = (
    "keep the table out (tables.exclude) or load it anew: remove its target, and start a capture after this statement"
)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A target as it is recorded before a statement."""

    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateTarget:
    """A target that a CREATE TABLE makes.

    Attributes:
        may_exist: IF NOT EXISTS: the source's table may be older than the statement, so that the target may be partial
            (K19); its first table map confirms the columns or stops the table.
    """

    table: TableName
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Columns that an ALTER TABLE adds to a target, in order."""

    table: TableName
    columns: tuple[AddedColumn, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about one statement.

    Attributes:
        statement: kind and tables.
        ddl: the decision for the run's metadata: `decision`, `reason`, `tables` (those captured, or all if none is).
        creates, add_columns: what to do where it is "applied".
        told_by_rows: no row of a captured table comes, goes or changes its key by it without a row event (K12).
    """

    statement: Statement
    ddl: DdlDecision
    creates: tuple[CreateTarget, ...] = ()
    add_columns: tuple[AddColumns, ...] = ()
    told_by_rows: bool = False

    @property
    def ignored(self) -> bool:
        """True where no captured table is concerned: the statement is counted and not shown."""
        return self.ddl.decision == "ignored"


@dataclass(frozen=True, slots=True)
class Scene:
    """What `decide` is told: where the statement stands, and what is captured and known."""

    sql: str
    default_database: str
    captured: Callable[[str, str], bool]
    known: Callable[[str, str], KnownTable | None]
    targets_in: Callable[[str], Collection[str]] | None
    is_mariadb: bool
    modes: SqlModes
    journal: str
    offset: int

    @property
    def shown(self) -> str:
        """The statement's text, shortened."""
        text = self.sql.strip()
        return text if len(text) <= SQL_SHOWN_MAX_CHARS else text[:SQL_SHOWN_MAX_CHARS] + " ..."

    def decided(
        self, statement: Statement, decision: Literal["applied", "recorded", "ignored"], reason: str
    ) -> Decision:
        """A decision, with the names of the tables that are concerned."""
        touched = self.touched(statement) or statement.tables
        tables = tuple(".".join(table) for table in touched)
        ddl = DdlDecision(
            journal=self.journal,
            offset=self.offset,
            sql=self.shown,
            kind=statement.kind.value,
            tables=tables,
            decision=decision,
            reason=reason,
        )
        return Decision(statement, ddl)

    def touched(self, statement: Statement) -> tuple[TableName, ...]:
        """The statement's tables that are captured."""
        return tuple(table for table in statement.tables if self.captured(*table))

    def unsupported(self, what: str, table: TableName | None, next_step: str = RELOAD) -> UnsupportedDdlError:
        """The error for a DDL that cannot be applied, with its place."""
        return UnsupportedDdlError(
            what,
            journal=self.journal or None,
            offset=self.offset if self.offset >= 0 else None,
            table=None if table is None else ".".join(table),
            got=self.shown,
            next_step=next_step,
        )
