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

from cdc_pipeline.schema.ddl.statement import (
    CREATES,
    TABLE_DDL,
    Statement,
    StatementKind,
    TableName,
)
from cdc_pipeline.schema.ddl.tokens import Uncertain
from cdc_pipeline.schema.history.history import (
    CREATED,
    DROPPED,
    Origin,
    SchemaHistory,
    Version,
)
from cdc_pipeline.schema.source_table import (
    SourceTable,
    altered,
    column_changes,
    created,
    indexed,
)
from cdc_pipeline.text.table_names import table_name

_K = StatementKind

# Kinds that change which columns a table has, or its key.
TOUCHING: Final = TABLE_DDL - {_K.TRUNCATE_TABLE} | {_K.UNKNOWN}
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


def table_at(history: SchemaHistory, database: str, table: str, place: int) -> SourceTable | None:
    version, of_database = history.at(database, table, place), history.at(database, "", place)
    if version is None or version.schema is None:
        return None
    charset = "" if of_database is None else of_database.charset
    return SourceTable(version.schema, version.charset, charset, version.generated)


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
                    self._set(known, DROPPED)
            if kind is _K.DROP_DATABASE:
                self._set((statement.database, ""), DROPPED)
        if kind in (_K.CREATE_DATABASE, _K.ALTER_DATABASE):
            self._database()
        elif kind is _K.DROP_TABLE:
            for name in statement.tables:
                self._set(name, DROPPED)
        elif self._logged.error_code and kind in TOUCHING:
            for name in statement.tables:
                self._set(name, f"{statement.verb} ended with error {self._logged.error_code}")
        elif kind in CREATES:
            self._change(statement.tables[0], self._create)
        elif kind is _K.ALTER_TABLE:
            self._alter()
        elif kind is _K.RENAME_TABLE:
            self._rename()
        elif kind in (_K.CREATE_INDEX, _K.DROP_INDEX):
            self._index()

    def _index(self) -> None:
        statement, table = self._statement, self._statement.tables[0]
        before = self._table(table)
        if before is None:
            return
        after = before
        if statement.kind is _K.CREATE_INDEX:
            after = indexed(before, statement)
        elif statement.index.upper() == "PRIMARY":
            after = replace(before, schema=replace(before.schema, primary_key=()))
        if after != before:
            self._set(table, after)

    # -- versions ----------------------------------------------------------------------------------

    def _before(self, table: TableName) -> Version | None:
        """What holds right before the statement."""
        return self._history.at(*table, self._logged.place - 1)

    def _table(self, table: TableName) -> SourceTable | None:
        return table_at(self._history, *table, self._logged.place - 1)

    def _change(
        self,
        name: TableName,
        change: Callable[[], SourceTable | None],
        *,
        origin: TableName | None = None,
        columns_from: tuple[tuple[str, str], ...] = (),
    ) -> None:
        try:
            after = change()
        except Uncertain as reason:
            self._set(name, str(reason), origin=origin)
        else:
            if after is not None:
                self._set(name, after, origin=origin, columns_from=columns_from)

    def _set(
        self,
        name: TableName,
        after: SourceTable | str,
        *,
        charset: str = "",
        origin: TableName | None = None,
        columns_from: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`after`: the table, or why it is unknown from here on; `origin`: its name before."""
        place, is_unknown = self._logged.place, isinstance(after, str)
        if name[1] and not self._captured(*name):
            return
        known = self._history.at(*name, place)
        renamed_from = "" if origin is None else table_name(*origin)
        if known is not None and known.place == place and (known.schema is not None or is_unknown):
            # seen before, or known from the catalog, which knows no earlier names
            renaming = replace(known, renamed_from=renamed_from, columns_from=columns_from)
            if renaming.is_renaming:
                self._history.add(*name, renaming)
            return
        version = Version(
            place,
            Origin.DDL,
            None,
            charset,
            time_us=self._logged.time_us,
            renamed_from=renamed_from,
            columns_from=columns_from,
        )
        if isinstance(after, str):
            version = replace(version, why=after)
        else:
            version = replace(
                version,
                schema=after.named(name).schema,
                charset=after.charset,
                generated=after.generated,
            )
        self._history.add(*name, version)

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
            self._set(database, why or ("" if known is None else known.why), charset=charset)

    # -- CREATE, RENAME, ALTER ---------------------------------------------------------------------

    def _create(self) -> SourceTable | None:
        """None if the statement may have found the table there. Raises Uncertain."""
        statement, table = self._statement, self._statement.tables[0]
        known, of_database = self._before(table), self._before((table[0], ""))
        exists = known is not None and known.schema is not None
        is_new = (
            known.why == DROPPED
            if known is not None
            else of_database is not None and of_database.why == CREATED
        )
        if statement.if_not_exists and (exists or not is_new):
            # Also logged if the table existed before.
            if known is None:
                raise Uncertain(
                    "CREATE TABLE IF NOT EXISTS does not show whether the table existed before"
                )
            return None
        if statement.kind is _K.CREATE_TABLE_LIKE:
            like = self._table(statement.reads[0]) if statement.reads else None
            if like is None:
                raise Uncertain("CREATE TABLE ... LIKE an unknown table")
            return like
        if statement.created is None:
            raise Uncertain(f"the columns of its {statement.verb} cannot be read with certainty")
        return created(
            table,
            statement.created,
            database_charset="" if of_database is None else of_database.charset,
            is_mariadb=statement.is_mariadb,
        )

    def _rename(self) -> None:
        renames, came_from = self._statement.renames, self._statement.came_from
        after = {
            name: None if origin is None else self._table(origin)
            for name, origin in came_from.items()
        }
        for name, origin in came_from.items():
            if origin is not None or all(name != old for old, _ in renames):
                unknown = "the table was renamed from an unknown one"
                self._set(name, after[name] or unknown, origin=origin)
            elif self._before(name) is not None or any(name == new for _, new in renames):
                self._set(name, DROPPED)

    def _alter(self) -> None:
        statement, table = self._statement, self._statement.tables[0]
        others = set(statement.tables[1:]) - {new for _, new in statement.renames}
        for other in others:  # CONVERT PARTITION ... TO TABLE makes one; EXCHANGE changes none
            if self._before(other) is None:
                self._set(other, f"created by {statement.verb} of another table")
        before = self._table(table)
        if before is None:
            self._rename()
            return
        target = statement.renames[-1][1] if statement.renames else table
        if target != table:
            self._set(table, DROPPED)

        changes = column_changes(statement.actions, before.schema.column_names)
        columns_from = changes.columns_from

        def after() -> SourceTable | None:
            try:
                result = altered(before, statement)
            except Uncertain as reason:
                raise Uncertain(
                    f"its ALTER TABLE cannot be read with certainty: {reason}"
                ) from None
            return result if result != before or target != table or columns_from else None

        origin = table if target != table else None
        self._change(target, after, origin=origin, columns_from=columns_from)
