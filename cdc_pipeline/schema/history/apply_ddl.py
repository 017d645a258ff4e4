"""What a DDL of the log does to the schema history.

Rules:
- Only what is certain from the text produces a schema; anything else produces a version that says
  why nothing is known from there on. `schema/evolution/changes.py` decides what the pipeline does
  with the statement.
- A statement that was already applied at its position is not applied again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.schema.ddl.statement import Statement, StatementKind, TableName
from cdc_pipeline.schema.history.history import (
    CREATED,
    DROPPED,
    Origin,
    SchemaHistory,
    Version,
)
from cdc_pipeline.schema.source_table import SourceTable, Uncertain, altered, created, indexed

_K = StatementKind

# Kinds that change which columns a table has, or its key.
TOUCHING: Final = frozenset(
    {
        _K.CREATE_TABLE,
        _K.CREATE_TABLE_LIKE,
        _K.CREATE_TABLE_SELECT,
        _K.ALTER_TABLE,
        _K.DROP_TABLE,
        _K.RENAME_TABLE,
        _K.CREATE_INDEX,
        _K.DROP_INDEX,
        _K.DROP_DATABASE,
        _K.UNKNOWN,
    }
)
# All kinds that `apply` reads.
SCHEMA_KINDS: Final = TOUCHING | {_K.CREATE_DATABASE, _K.ALTER_DATABASE}


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement of the log, with what its event says beside the text.

    Attributes:
        error_code: the error it ended with at the source; it may be only partly done.
        server_charset: of `collation_server` in its session; "" if the event does not say.
        time_us: its commit time, microseconds since 1970; -1 if unknown.
    """

    statement: Statement
    place: int
    error_code: int = 0
    server_charset: str = ""
    time_us: int = -1


def apply(
    history: SchemaHistory, logged: LoggedStatement, captured: Callable[[str, str], bool]
) -> None:
    """Apply a statement to the history: captured tables and the default charset of databases."""
    if not logged.statement.temporary:
        _Applied(history, logged, captured).run()


class _Applied:
    def __init__(
        self,
        history: SchemaHistory,
        logged: LoggedStatement,
        captured: Callable[[str, str], bool],
    ) -> None:
        self._history = history
        self._logged = logged
        self._statement = logged.statement
        self._captured = captured

    def run(self) -> None:
        statement, kind = self._statement, self._statement.kind
        if statement.drops_database:
            for known in list(self._history.tables()):
                if known[0] == statement.database:
                    self._set_unknown(known, DROPPED)
            if kind is _K.DROP_DATABASE:
                self._set_unknown((statement.database, ""), DROPPED)
        if kind in (_K.CREATE_DATABASE, _K.ALTER_DATABASE):
            self._database()
        elif kind is _K.DROP_TABLE:
            for name in statement.tables:
                self._set_unknown(name, DROPPED)
        elif self._logged.error_code and kind in TOUCHING:
            for name in statement.tables:
                self._set_unknown(
                    name, f"{statement.verb} ended with error {self._logged.error_code}"
                )
        elif kind in (_K.CREATE_TABLE, _K.CREATE_TABLE_LIKE, _K.CREATE_TABLE_SELECT):
            self._create()
        elif kind is _K.ALTER_TABLE:
            self._alter()
        elif kind is _K.RENAME_TABLE:
            self._rename(statement.renames)
        elif kind in (_K.CREATE_INDEX, _K.DROP_INDEX):
            self._index()

    def _index(self) -> None:
        statement, table = self._statement, self._statement.tables[0]
        before = self._table(table)
        if before is None:
            return
        if statement.kind is _K.CREATE_INDEX:
            after = indexed(before, statement)
        elif statement.index.upper() == "PRIMARY":
            after = replace(before, schema=replace(before.schema, primary_key=()))
        else:
            return
        if after != before:
            self._set(table, after)

    # -- versions ----------------------------------------------------------------------------------

    def _before(self, table: TableName) -> Version | None:
        """What holds right before the statement."""
        place = self._logged.place
        return self._history.at(*table, place - 1)

    def _table(self, table: TableName) -> SourceTable | None:
        version = self._before(table)
        if version is None or version.schema is None:
            return None
        of_database = self._before((table[0], ""))
        return SourceTable(
            version.schema,
            version.charset,
            "" if of_database is None else of_database.charset,
            version.generated,
        )

    def _set(self, name: TableName, table: SourceTable) -> None:
        self._add(name, table.named(name))

    def _set_unknown(self, name: TableName, why: str, *, charset: str = "") -> None:
        self._add(name, None, charset=charset, why=why)

    def _add(
        self, name: TableName, table: SourceTable | None, *, charset: str = "", why: str = ""
    ) -> None:
        place = self._logged.place
        if name[1] and not self._captured(*name):
            return
        known = self._history.at(*name, place)
        if (
            known is not None
            and known.place == place
            and (known.schema is not None or table is None)
        ):
            return  # seen before, or known from the catalog
        schema, generated = None, None
        if table is not None:
            schema, charset, generated = table.schema, table.charset, table.generated
        time_us = self._logged.time_us
        self._history.add(
            *name, Version(place, Origin.DDL, schema, charset, why, time_us, generated)
        )

    def _database(self) -> None:
        logged, statement = self._logged, self._statement
        database, why = (statement.database, ""), ""
        known = self._before(database)
        own = "" if known is None else known.charset
        if statement.kind is _K.CREATE_DATABASE:
            if not statement.if_not_exists or (known is not None and known.why == DROPPED):
                own, why = logged.server_charset, CREATED
            elif known is not None:
                return  # it may have existed
        named = statement.charset
        charset = "" if named is None else named.over(own, logged.server_charset)
        if charset or why or known is not None:
            self._set_unknown(
                database, why or ("" if known is None else known.why), charset=charset
            )

    # -- CREATE ------------------------------------------------------------------------------------

    def _create(self) -> None:
        statement, table = self._statement, self._statement.tables[0]
        if not self._captured(*table):
            return
        known = self._before(table)
        exists = known is not None and known.schema is not None
        of_database = self._before((table[0], ""))
        is_new = (
            known.why == DROPPED
            if known is not None
            else of_database is not None and of_database.why == CREATED
        )
        if statement.if_not_exists and (exists or not is_new):
            # Also logged if the table existed before.
            if known is None:
                self._set_unknown(
                    table,
                    "CREATE TABLE IF NOT EXISTS does not show whether the table existed before",
                )
            return
        if statement.kind is _K.CREATE_TABLE_LIKE:
            like = self._table(statement.reads[0]) if statement.reads else None
            if like is None:
                self._set_unknown(table, "CREATE TABLE ... LIKE an unknown table")
            else:
                self._set(table, like)
            return
        if statement.created is None:
            self._set_unknown(
                table, f"the columns of its {statement.verb} cannot be read with certainty"
            )
            return
        charset = "" if of_database is None else of_database.charset
        try:
            after = created(
                table,
                statement.created,
                database_charset=charset,
                is_mariadb=statement.is_mariadb,
            )
        except Uncertain as reason:
            self._set_unknown(table, str(reason))
        else:
            self._set(table, after)

    # -- RENAME, ALTER -----------------------------------------------------------------------------

    def _rename(self, renames: tuple[tuple[TableName, TableName], ...]) -> None:
        # In order: RENAME TABLE a TO b, c TO a hands names over within one statement.
        now: dict[TableName, SourceTable | None] = {}
        left: set[TableName] = set()
        for old, new in renames:
            moved = now[old] if old in now else self._table(old)
            now |= {old: None, new: moved}
            left = (left | {old}) - {new}
        for name, table in now.items():
            if name in left:
                if self._before(name) is not None or any(name == new for _, new in renames):
                    self._set_unknown(name, DROPPED)
            elif table is not None:
                self._set(name, table)
            else:
                self._set_unknown(name, "the table was renamed from an unknown one")

    def _alter(self) -> None:
        statement, table = self._statement, self._statement.tables[0]
        others = set(statement.tables[1:]) - {new for _, new in statement.renames}
        for other in others:  # CONVERT PARTITION ... TO TABLE makes one; EXCHANGE changes none
            if self._before(other) is None:
                self._set_unknown(other, f"created by {statement.verb} of another table")
        before = self._table(table)
        if before is None:
            self._rename(statement.renames)
            return
        target = statement.renames[-1][1] if statement.renames else table
        if target != table:
            self._set_unknown(table, DROPPED)
        try:
            after = altered(before, statement)
        except Uncertain as reason:
            self._set_unknown(target, f"its ALTER TABLE cannot be read with certainty: {reason}")
            return
        if after != before or target != table:
            self._set(target, after)
