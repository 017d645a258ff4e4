"""Apply a pipeline's rules to statements: which stand alone, and what each one does (K13, SPEC
S7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schema_policy import ShadowNames
from cdc_pipeline.errors import CdcError
from cdc_pipeline.run.decode.schemas import Schemas
from cdc_pipeline.schema.ddl.ddl import parse_logged
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind
from cdc_pipeline.schema.evolution.changes import decide, is_isolated
from cdc_pipeline.schema.evolution.statement_context import (
    ALL_FEATURES,
    Decision,
    KnownTable,
    RowPosition,
    Shadow,
    StatementContext,
)
from cdc_pipeline.schema.evolution.steps import AddColumn, FillColumns
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.features import allowed
from cdc_pipeline.targets.confirmed import as_recorded
from cdc_pipeline.targets.decided import known, known_all, placed
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import (
    NameRule,
    TablePattern,
    TablePatterns,
    split_table_name,
    table_name,
)

_LEAVING: Final = frozenset(
    {StatementKind.DROP_TABLE, StatementKind.DROP_DATABASE, StatementKind.RENAME_TABLE}
)


# What is recorded of a table, as it was at an earlier place of the log.
AsBefore = Callable[[list[KnownTable]], list[KnownTable]]


class StatementRules:
    """Tables and policies of a pipeline, applied to statements. Used by both threads.

    Its state belongs to the reader alone: new names of captured tables, so that DDL under them
    stands alone too. The drain learns them from its targets, when it gets there.
    """

    def __init__(
        self,
        tables: TableFilter,
        *,
        is_mariadb: bool,
        names: NameRule,
        config: PipelineConfig,
        followed: Collection[str],
    ) -> None:
        """`followed`: source tables that targets follow after a rename."""
        self._tables = tables
        self._is_mariadb = is_mariadb
        self._names = names
        permitted = allowed(config.sink)
        self._features = frozenset(name for name in ALL_FEATURES if permitted.permits(name))
        self._shadows = ShadowNames(config.tables.shadow_tables, names)
        self._read_as_captured = set(followed)
        self._accepted = TablePatterns(
            TablePattern.parse(text, names) for text in config.accept.statements
        )

    def parse(self, query: Query) -> Statement:
        return parse_logged(query, is_mariadb=self._is_mariadb, names=self._names)

    def is_isolated(self, query: Query) -> bool:
        """Whether the statement is alone in its batch: DDL of captured tables, or unknown."""
        statement = self.parse(query)
        isolated = is_isolated(statement, self._is_read)
        if isolated:
            self._read_as_captured.update(
                table_name(*new) for old, new in statement.renames if self._is_read(*old)
            )
        return isolated

    def _is_read(self, database: str, table: str) -> bool:
        return (
            self._tables.captured(database, table)
            or table_name(database, table) in self._read_as_captured
        )

    def decide(
        self,
        query: Query,
        *,
        targets: Targets,
        journal: str,
        offset: int,
        schemas: Schemas | None = None,
        place: RowPosition | None = None,
        as_before: AsBefore | None = None,
    ) -> Decision:
        """What the statement does to the targets; suspended ones are left out (K4).

        Each target of a table gets its own decision; the first one's is recorded for the
        statement.

        Args:
            place: of rows that the statement itself removes.
            as_before: decides on tables as they were.

        Raises:
            UnsupportedDdlError, UnsupportedEventError, ContentUnknownError: it cannot be applied;
                with journal, offset and what to do.
        """
        statement = self.parse(query)
        lookup = _Lookup(targets, statement.kind, as_before)
        context = StatementContext(
            statement,
            captured=lookup.concerned,
            known=lookup.known,
            targets_in=lookup.names_in,
            journal=journal,
            offset=offset,
            shadow=lookup.shadow,
            shadowed=self._shadows.table_of,
            masked=lookup.masked,
            is_name_captured=targets.captured,
            features=self._features,
            place=place or RowPosition(),
            databases=query.databases,
            reachable=lookup.followed_tables,
            accepted=self._accepted.match,
        )
        if schemas is not None:
            context = replace(
                context,
                programs=schemas.programs,
                before=partial(lookup.before, schemas, (journal, offset)),
                catalog_after=partial(schemas.after, journal=journal, offset=offset),
            )

        def decide_for(number: int) -> Decision:
            of_target = replace(lookup, number=number)
            return decide(replace(context, known=of_target.known, masked=of_target.masked))

        decision = decide_for(0)
        tables = dict.fromkeys(
            (*decision.statement.tables, *(change.table for change in decision.changes))
        )
        count = (
            max((len(lookup.known_all(*table)) for table in tables), default=1)
            if decision.changes
            else 1
        )
        for number in range(1, count):
            more = decide_for(number).changes
            done = {(change.table, change.known.name) for change in decision.changes}
            new = tuple(change for change in more if (change.table, change.known.name) not in done)
            decision = replace(decision, changes=decision.changes + new)
        return placed(targets, decision)


@dataclass(frozen=True, slots=True)
class _Lookup:
    targets: Targets
    kind: StatementKind
    as_before: AsBefore | None
    number: int = 0

    def concerned(self, database: str, table: str) -> bool:
        if not self.targets.captured(database, table):
            return False
        # A snapshot cannot bring rows of a dropped table: its target is treated as that of any
        # dropped table (K28).
        is_over = self.kind in _LEAVING and self._awaits_snapshot(database, table)
        return is_over or not self.targets.is_suspended(database, table)

    def _awaits_snapshot(self, database: str, table: str) -> bool:
        """Whether all targets of a table wait, as a RENAME made their contents unknown (K28)."""
        routes = self.targets.routes_of(table_name(database, table))
        unknown = self.targets.has_unknown_content
        return bool(routes) and all(unknown(route.target) for route in routes)

    def shadow(self, database: str, table: str) -> Shadow | None:
        return self.targets.shadows.get(table_name(database, table))

    def names_in(self, database: str) -> list[str]:
        """Names (without schema) of a database's tables with a target that is not suspended."""
        targets = self.targets
        names = {
            source
            for name, target in targets.by_name.items()
            if not targets.is_not_following(name) or targets.has_unknown_content(name)
            for source in target.spec.sources
        }
        return sorted(table for schema, table in map(split_table_name, names) if schema == database)

    def followed_tables(self) -> list[tuple[str, str]]:
        """Source tables whose targets follow them, or will from their first row on."""
        names = {
            source
            for name, target in self.targets.by_name.items()
            if not self.targets.is_not_following(name)
            for source, of in target.spec.sources.items()
            if not of.gone
        }
        return [split_table_name(name) for name in sorted(names | self.targets.created_in_log)]

    def before(
        self, schemas: Schemas, at: tuple[str, int], database: str, table: str
    ) -> SourceTable | None:
        before = schemas.before(database, table, *at)
        if before is None:
            return None
        return replace(before, schema=as_recorded(self.targets, before.schema))

    def known_all(self, database: str, table: str) -> list[KnownTable]:
        tables = known_all(self.targets, database, table)
        return tables if self.as_before is None else self.as_before(tables)

    def known(self, database: str, table: str) -> KnownTable | None:
        tables = self.known_all(database, table)
        return tables[min(self.number, len(tables) - 1)] if tables else None

    def masked(self, database: str, table: str) -> set[str]:
        routes = (
            self.targets.route_of(table_name(database, table), known.name)
            for known in self.known_all(database, table)
        )
        return {name for route in routes if route is not None for name in route.rule.masks}


def decide_in_overlap(
    rules: StatementRules,
    query: Query,
    *,
    targets: Targets,
    journal: str,
    offset: int,
    schemas: Schemas | None = None,
    place: RowPosition | None = None,
) -> Decision:
    """Decide as `rules.decide`, but record a statement as applied if its result exists."""
    try:
        return rules.decide(
            query, targets=targets, journal=journal, offset=offset, schemas=schemas, place=place
        )
    except CdcError as refused:
        # The tables as they were: without the columns that the statement names, or not there.
        earlier: tuple[AsBefore, ...] = (
            partial(_without_named, query.sql.lower()),
            lambda _known: [],
        )
        for as_before in earlier:
            try:
                decision = rules.decide(
                    query, targets=targets, journal=journal, offset=offset, as_before=as_before
                )
            except CdcError:
                continue
            if _is_applied(decision, targets):
                reason = f"already applied before the switch: {decision.ddl.reason}"
                ddl = decision.ddl.model_copy(update={"decision": "recorded", "reason": reason})
                return replace(decision, ddl=ddl, changes=(), creates=())
        raise refused


def _without_named(sql: str, known: list[KnownTable]) -> list[KnownTable]:
    without = []
    for table in known:
        of = table.source
        columns = tuple(c for c in of.columns if c.name in of.key or c.name.lower() not in sql)
        source = of.model_copy(update={"columns": columns})
        without.append(KnownTable(source, name=table.name, policy=table.policy))
    return without


def _is_applied(decision: Decision, targets: Targets) -> bool:
    """Whether the targets have all that a decision makes, which must be something."""

    def has(database: str, table: str, columns: Sequence[TargetColumn]) -> bool:
        recorded = known(targets, database, table)
        recorded_columns = () if recorded is None else recorded.source.columns
        existing = {column.name: column.delta_type for column in recorded_columns}
        return all(existing.get(column.name) == column.delta_type for column in columns)

    if any(
        not isinstance(step, AddColumn | FillColumns)
        for change in decision.changes
        for step in change.steps
    ):
        return False
    wanted = [
        (*change.table, [TargetColumn(name=step.name, delta_type=step.delta_type)])
        for change in decision.changes
        for step in change.steps
        if isinstance(step, AddColumn)
    ]
    wanted += [(*part.table, list(part.columns)) for part in decision.creates]
    return bool(wanted) and all(has(*part) for part in wanted)
