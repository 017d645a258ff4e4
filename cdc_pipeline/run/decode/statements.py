"""Apply a pipeline's rules to statements: which stand alone, and what each one does (K13, SPEC
S7)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.schema_policy import ShadowNames
from cdc_pipeline.errors import CdcError, ContentUnknownError
from cdc_pipeline.lake.records import Note
from cdc_pipeline.run.decode.schemas import Schemas
from cdc_pipeline.schema.ddl.alter import ActionKind
from cdc_pipeline.schema.ddl.ddl import parse_logged
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind, TableName
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import (
    Decision,
    KnownTable,
    RowPosition,
    StatementContext,
)
from cdc_pipeline.schema.evolution.steps import ALL_FEATURES, AddColumn, Describe, FillColumns
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.features import allowed
from cdc_pipeline.targets.decided import AsBefore, StatementTargets, known, placed
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.targets.targets import Targets
from cdc_pipeline.text.table_names import (
    NameRule,
    TablePattern,
    TablePatterns,
    table_name,
)

_DROPPED_CONSTRAINT_NOTE: Final = "dropped_constraint"
_REPLACED_TABLE_NOTE: Final = "replaced_table"
_DROPS_KEY: Final = re.compile(r"DROP\b(?!\s+CHECK\b)", re.IGNORECASE)
_INDEXES: Final = (ActionKind.INDEX, ActionKind.DROP_PRIMARY_KEY)


class StatementRules:
    """Used by both threads. Its state belongs to the reader: new names of captured tables, so that
    DDL under them stands alone too. The drain learns them from its targets, when it gets there.
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
        accepted = [TablePattern.parse(text, names) for text in config.accept.statements]
        self._accepted = TablePatterns(accepted)

    def parse(self, query: Query) -> Statement:
        return parse_logged(query, is_mariadb=self._is_mariadb, names=self._names)

    def is_isolated(self, query: Query) -> bool:
        """Whether the statement is alone in its batch: DDL of captured tables, or unknown."""
        statement = self.parse(query)
        isolated = statement.is_isolated(self._is_read)
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
        in_overlap: bool = False,
    ) -> Decision:
        """What the statement does to the targets; suspended ones are left out (K4). The first
        target's decision is recorded. `place`: of rows that the statement removes; `in_overlap`: it
        is recorded as applied if its result exists.

        Raises UnsupportedDdlError, UnsupportedEventError, ContentUnknownError, with their place.
        """
        meant = partial(self._meant, query, targets, journal, offset)
        try:
            return meant(schemas, place or RowPosition())
        except CdcError as refused:
            # The tables as they were: without the columns that the statement names, or not there.
            earlier: list[AsBefore] = [
                partial(_without_named, query.sql.lower()),
                lambda _known: [],
            ]
            for as_before in earlier if in_overlap else ():
                with suppress(CdcError):
                    decision = meant(as_before=as_before)
                    if _is_applied(decision, targets):
                        reason = f"already applied before the switch: {decision.ddl.reason}"
                        update = {"decision": "recorded", "reason": reason}
                        ddl = decision.ddl.model_copy(update=update)
                        return replace(decision, ddl=ddl, changes=(), creates=())
            raise refused

    def _meant(
        self,
        query: Query,
        targets: Targets,
        journal: str,
        offset: int,
        schemas: Schemas | None = None,
        place: RowPosition = RowPosition(),  # noqa: B008
        as_before: AsBefore | None = None,
    ) -> Decision:
        statement = self.parse(query)
        met = StatementTargets(targets, statement.kind, as_before)
        context = StatementContext(
            statement,
            captured=met.captured,
            known=met.known,
            targets_in=met.names_in,
            journal=journal,
            offset=offset,
            shadow=met.shadow,
            shadowed=self._shadows.table_of,
            masked=met.masked,
            is_name_captured=targets.captured,
            features=self._features,
            place=place,
            databases=query.databases,
            reachable=met.followed_tables,
            accepted=self._accepted.match,
        )
        if schemas is not None:
            before = partial(schemas.before, journal=journal, offset=offset)
            context = replace(
                context,
                programs=schemas.programs,
                before=partial(met.before, before),
                catalog_after=partial(schemas.after, journal=journal, offset=offset),
            )

        def decide_for(number: int) -> Decision:
            of_target = replace(met, number=number)
            return decide(replace(context, known=of_target.known, masked=of_target.masked))

        decision = decide_for(0)
        tables = dict.fromkeys((*decision.statement.tables, *(c.table for c in decision.changes)))
        count = max((len(met.known_all(*table)) for table in tables), default=1)
        for number in range(1, count if decision.changes else 1):
            done = {(change.table, change.known.name) for change in decision.changes}
            more = decide_for(number).changes
            new = tuple(change for change in more if (change.table, change.known.name) not in done)
            decision = replace(decision, changes=decision.changes + new)
        return placed(targets, decision)


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
        not isinstance(step, AddColumn | FillColumns | Describe)
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
    wanted += [(*part.table, list(part.source.columns)) for part in decision.creates]
    return bool(wanted) and all(has(*part) for part in wanted)


def notes_of(decision: Decision, query: Query) -> Iterator[Note]:
    """Of what DDL may hide: no catalog warns of a constraint's cascades once it is gone, and the
    text does not say that it was a foreign key; a shadow's copy may have left rows out.
    """
    statement, ddl = decision.statement, decision.ddl

    def note(kind: str, table: TableName, text: str) -> Note:
        name = table_name(*table)
        return Note(kind=kind, text=text, journal=ddl.journal, offset=ddl.offset, table=name)

    for action in () if decision.ignored else statement.actions:
        if action.kind is ActionKind.CONSTRAINT and _DROPS_KEY.match(action.text):
            text = (
                f"constraint `{action.name}` was dropped: rows that its cascades changed before "
                "are as they were, if the server did not log them"
            )
            yield note(_DROPPED_CONSTRAINT_NOTE, statement.tables[0], text)
    if not decision.ignored and _drops_index(statement) and not query.foreign_key_checks:
        text = (
            "an index was dropped with foreign_key_checks=0, and with it the foreign keys "
            "that need it, if the table was copied: rows that their cascades changed "
            "before are as they were, if the server did not log them"
        )
        yield note(_DROPPED_CONSTRAINT_NOTE, statement.tables[0], text)
    shadows = {change.name for change in decision.shadows if change.shadow is None}
    for table, before in statement.came_from.items():
        if before in shadows and table_name(*table) in ddl.tables:
            text = (
                f"`{before[1]}` replaced the table: rows that cascades of the old one changed, "
                "and rows that the copy left out as duplicates, are as they were, if the server "
                "did not log that"
            )
            yield note(_REPLACED_TABLE_NOTE, table, text)


def _drops_index(statement: Statement) -> bool:
    """MariaDB; MySQL keeps an index that a foreign key needs."""
    kind, actions = statement.kind, statement.actions
    return statement.is_mariadb and (
        kind is StatementKind.DROP_INDEX
        or (kind is StatementKind.CREATE_INDEX and statement.or_replace)
        or any(one.kind in _INDEXES and _DROPS_KEY.match(one.text) for one in actions)
    )


def check_not_emptied(decision: Decision) -> None:
    """ContentUnknownError: CREATE TABLE ... SELECT, logged with its rows, makes a table again."""
    for change in decision.changes:
        if change.empties:
            raise ContentUnknownError(
                "a table without a primary key is created again, in the transaction of its rows",
                table=table_name(*change.table),
                at=decision.ddl,
                got=decision.ddl.sql,
                next_step="give the table a primary key in its CREATE TABLE",
            )
