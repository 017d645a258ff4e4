"""What a DDL of the log does to the schema history.

Rules:
- Only what is certain from the text produces a schema; anything else produces a version that says
  why nothing is known from there on. `schema/evolution/changes.py` decides what the pipeline does
  with the statement.
- An ALTER TABLE is one change, in the server's order: first every column that exists is dropped,
  renamed or replaced in its place; then added and moved ones are placed, one by one, in the order
  of the text.
- A statement that was already applied at its position is not applied again.

Source: MySQL 9.7 manual, 15.1.11 and 15.1.24; `mysql_prepare_alter_table` of both servers for the
order of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.tables import server_columns
from cdc_pipeline.binlog.tables.server_columns import with_server_columns
from cdc_pipeline.schema.ddl.alter import Action, ActionKind, alter_actions
from cdc_pipeline.schema.ddl.columns import ColumnDefinition
from cdc_pipeline.schema.ddl.create import create_columns, hash_key_count
from cdc_pipeline.schema.ddl.ddl import classify, classify_tokens
from cdc_pipeline.schema.ddl.options import NamedCharset, database_charset
from cdc_pipeline.schema.ddl.published import without_literals
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind, TableName
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes, TokenReader
from cdc_pipeline.schema.ddl.types import are_known
from cdc_pipeline.schema.generated import GeneratedColumn, generated_column
from cdc_pipeline.schema.generated import renamed as renamed_generated
from cdc_pipeline.schema.history.history import (
    CREATED,
    DROPPED,
    LogPosition,
    Origin,
    SchemaHistory,
    Version,
)

_A = ActionKind
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
_KEEPS_COLUMNS: Final = frozenset(
    {
        _A.INDEX,
        _A.UNIQUE_INDEX,
        _A.CONSTRAINT,
        _A.COLUMN_DEFAULT,
        _A.ENGINE,
        _A.ORDER_BY,
        _A.PARTITION,
        _A.PARTITION_ROWS,
        _A.TABLESPACE,
        _A.RENAME_TABLE,
    }
)


class Uncertain(Exception):
    """The text does not determine the columns with certainty."""


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement of the log, with the session settings of its event.

    Attributes:
        error_code: the error it ended with at the source; it may be only partly done.
        server_charset: of `collation_server` in its session; "" if the event does not say.
        time_us: its commit time, microseconds since 1970; -1 if unknown.
    """

    sql: str
    database: str
    place: LogPosition
    is_mariadb: bool = False
    modes: SqlModes = UNKNOWN_MODES
    error_code: int = 0
    server_charset: str = ""
    time_us: int = -1


def apply(
    history: SchemaHistory, logged: LoggedStatement, captured: Callable[[str, str], bool]
) -> None:
    """Apply a statement to the history: captured tables and the default charset of databases."""
    statement = classify(
        logged.sql, logged.database, is_mariadb=logged.is_mariadb, modes=logged.modes
    )
    if statement.temporary:
        return
    _Applied(history, logged, statement, captured).run()


class _Applied:
    def __init__(
        self,
        history: SchemaHistory,
        logged: LoggedStatement,
        statement: Statement,
        captured: Callable[[str, str], bool],
    ) -> None:
        self._history = history
        self._logged = logged
        self._statement = statement
        self._captured = captured

    def run(self) -> None:
        statement, kind = self._statement, self._statement.kind
        if statement.drops_database:
            for known in list(self._history.tables()):
                if known[0] == statement.database:
                    self._set(known, None, why=DROPPED)
            if kind is _K.DROP_DATABASE:
                self._set((statement.database, ""), None, why=DROPPED)
        if kind in (_K.CREATE_DATABASE, _K.ALTER_DATABASE):
            self._database()
        elif kind is _K.DROP_TABLE:
            for name in statement.tables:
                self._set(name, None, why=DROPPED)
        elif self._logged.error_code and kind in TOUCHING:
            for name in statement.tables:
                self._set(
                    name, None, why=f"{statement.verb} ended with error {self._logged.error_code}"
                )
        elif kind in (_K.CREATE_TABLE, _K.CREATE_TABLE_LIKE, _K.CREATE_TABLE_SELECT):
            self._create()
        elif kind is _K.ALTER_TABLE:
            self._alter()
        elif kind is _K.RENAME_TABLE:
            self._rename(statement.renames)
        elif kind is _K.CREATE_INDEX and self._logged.is_mariadb:
            self._create_index()
        elif kind is _K.DROP_INDEX and statement.index.upper() == "PRIMARY":
            before = self._before(statement.tables[0])
            if before is not None and before.schema is not None:
                schema = replace(before.schema, primary_key=())
                self._set(
                    statement.tables[0], schema, charset=before.charset, generated=before.generated
                )

    def _create_index(self) -> None:
        table = self._statement.tables[0]
        before = self._before(table)
        logged = self._logged
        tokens = TokenReader(logged.sql, modes=logged.modes, is_mariadb=True)
        is_unique = False
        while not is_unique and not tokens.at_any("INDEX", "(") and not tokens.at_end():
            is_unique = tokens.next().key == "UNIQUE"
        if before is None or before.schema is None or not is_unique:
            return
        added = hash_key_count(
            {column.name: column for column in before.schema.columns},
            own=(),
            texts=[self._logged.sql],
            modes=self._logged.modes,
        )
        if added:
            schema = _kept_by_server(before.schema, before.schema, hash_keys=added)
            self._set(table, schema, charset=before.charset, generated=before.generated)

    # -- versions ----------------------------------------------------------------------------------

    def _before(self, table: TableName) -> Version | None:
        """What holds right before the statement."""
        place = self._logged.place
        return self._history.at(*table, LogPosition(place.epoch, place.journal, place.offset - 1))

    def _set(
        self,
        table: TableName,
        schema: TableSchema | None,
        *,
        charset: str = "",
        why: str = "",
        generated: tuple[GeneratedColumn, ...] | None = None,
    ) -> None:
        logged = self._logged
        if table[1] and not self._captured(*table):
            return
        known = self._history.at(*table, logged.place)
        if (
            known is not None
            and known.place == logged.place
            and (known.schema is not None or schema is None)
        ):
            return  # seen before, or known from the catalog
        version = Version(logged.place, Origin.DDL, schema, charset, why, logged.time_us, generated)
        self._history.add(*table, version)

    def _database_charset(self, database: str) -> str:
        known = self._before((database, ""))
        return "" if known is None else known.charset

    def _database(self) -> None:
        logged, statement = self._logged, self._statement
        tokens = TokenReader(logged.sql, modes=logged.modes, is_mariadb=logged.is_mariadb)
        classify_tokens(tokens, logged.database)
        named = database_charset(tokens)
        database, why = (statement.database, ""), ""
        known = self._before(database)
        own = "" if known is None else known.charset
        if statement.kind is _K.CREATE_DATABASE:
            if not statement.if_not_exists or (known is not None and known.why == DROPPED):
                own, why = logged.server_charset, CREATED
            elif known is not None:
                return  # it may have existed
        charset = "" if named is None else named.over(own, logged.server_charset)
        if charset or why or known is not None:
            why = why or ("" if known is None else known.why)
            self._set(database, None, charset=charset, why=why)

    # -- CREATE ------------------------------------------------------------------------------------

    def _create(self) -> None:
        logged, statement, table = self._logged, self._statement, self._statement.tables[0]
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
                self._set(
                    table,
                    None,
                    why="CREATE TABLE IF NOT EXISTS does not show whether the table existed before",
                )
            return
        if statement.kind is _K.CREATE_TABLE_LIKE:
            like = self._before(statement.reads[0]) if statement.reads else None
            if like is None or like.schema is None:
                self._set(table, None, why="CREATE TABLE ... LIKE an unknown table")
            else:
                schema = replace(like.schema, database=table[0], table=table[1])
                self._set(table, schema, charset=like.charset, generated=like.generated)
            return
        created = None
        if statement.kind is _K.CREATE_TABLE:
            created = create_columns(
                logged.sql, logged.database, is_mariadb=logged.is_mariadb, modes=logged.modes
            )
        if created is None:
            self._set(
                table,
                None,
                why=f"the columns of its {statement.verb} cannot be read with certainty",
            )
            return
        outer = "" if created.omits_options else self._database_charset(table[0])
        charset = created.charset.over(outer, outer)
        columns = [
            resolved_column(definition, charset, is_mariadb=logged.is_mariadb)
            for definition in created.columns
        ]
        if doubtful := [
            column.name
            for column in columns
            if not holds_labels(column, is_mariadb=logged.is_mariadb)
        ]:
            self._set(
                table,
                None,
                why=f"the charset of {', '.join(doubtful)} lacks characters of its labels, or is "
                "unknown",
            )
            return
        generated = generated_columns(created.columns, columns)
        schema = with_server_columns(
            _schema(table, columns, created.primary_key),
            is_versioned=created.is_versioned,
            row_end=created.row_end,
            hash_keys=created.hash_keys,
        )
        self._set(table, schema, charset=charset, generated=generated)

    # -- RENAME, ALTER -----------------------------------------------------------------------------

    def _rename(self, renames: tuple[tuple[TableName, TableName], ...]) -> None:
        # In order: RENAME TABLE a TO b, c TO a hands names over within one statement.
        now: dict[TableName, Version | None] = {}
        left: set[TableName] = set()
        for old, new in renames:
            moved = now[old] if old in now else self._before(old)
            now |= {old: None, new: moved}
            left = (left | {old}) - {new}
        for table, version in now.items():
            if table in left:
                if self._before(table) is not None or any(table == new for _, new in renames):
                    self._set(table, None, why=DROPPED)
            elif version is not None and version.schema is not None:
                schema = replace(version.schema, database=table[0], table=table[1])
                self._set(table, schema, charset=version.charset, generated=version.generated)
            else:
                self._set(table, None, why="the table was renamed from an unknown one")

    def _alter(self) -> None:
        logged, statement, table = self._logged, self._statement, self._statement.tables[0]
        others = set(statement.tables[1:]) - {new for _, new in statement.renames}
        for other in others:  # CONVERT PARTITION ... TO TABLE makes one; EXCHANGE changes none
            if self._before(other) is None:
                self._set(other, None, why=f"created by {statement.verb} of another table")
        known = self._before(table)
        if known is None or known.schema is None:
            self._rename(statement.renames)
            return
        actions = alter_actions(
            logged.sql, logged.database, is_mariadb=logged.is_mariadb, modes=logged.modes
        )
        try:
            after = altered(known, actions, logged, self._database_charset(table[0]))
            schema, charset, generated, why = after.schema, after.charset, after.generated, ""
        except Uncertain as reason:
            schema, charset, generated = None, "", None
            why = f"its ALTER TABLE cannot be read with certainty: {reason}"
        target = statement.renames[-1][1] if statement.renames else table
        if target != table:
            self._set(table, None, why=DROPPED)
            if schema is not None:
                schema = replace(schema, database=target[0], table=target[1])
        if (schema, charset, generated) != (
            known.schema,
            known.charset,
            known.generated,
        ) or target != table:
            self._set(target, schema, charset=charset, why=why, generated=generated)


@dataclass(frozen=True, slots=True)
class AlteredTable:
    schema: TableSchema
    charset: str
    generated: tuple[GeneratedColumn, ...] | None


def altered(
    known: Version, actions: tuple[Action, ...], logged: LoggedStatement, database_charset: str
) -> AlteredTable:
    """Columns, key and default charset after an ALTER TABLE. Raises Uncertain."""
    before = known.schema
    assert before is not None
    charset, converted = charsets_after(actions, known.charset, database_charset)
    of_columns = charset if converted is None else converted
    dropped: set[str] = set()
    renamed: dict[str, str] = {}
    changed: dict[str, ColumnDefinition] = {}  # by the old name
    placed: list[ColumnDefinition] = []
    visible: dict[str, bool] = {}
    there = {column.name.lower() for column in before.columns}
    key = list(before.key_names)
    for action in actions:
        old = action.name.lower()
        if action.kind is _A.DROP_COLUMN:
            if old in there:
                dropped.add(old)
            elif not action.if_exists:
                raise Uncertain(f"no column {action.name}")
        elif action.kind is _A.RENAME_COLUMN:
            renamed[old] = action.new_name
        elif action.kind in (_A.MODIFY_COLUMN, _A.CHANGE_COLUMN):
            assert action.column is not None
            if old in there:
                changed[old] = action.column
                if action.column.first or action.column.after:
                    placed.append(action.column)
            elif not action.if_exists:
                raise Uncertain(f"no column {action.name}")
        elif action.kind is _A.ADD_COLUMN:
            assert action.column is not None
            if old in there - dropped and old not in renamed:
                if action.if_exists:
                    continue
                raise Uncertain(f"column {action.name} already exists")
            placed.append(action.column)
            if action.column.primary_key:
                key = [action.column.name]
        elif action.kind is _A.COLUMN_VISIBILITY:
            visible[old] = action.visible
        elif action.kind is _A.DROP_PRIMARY_KEY:
            key = []
    for action in actions:  # after DROP PRIMARY KEY, wherever it is written
        if action.kind is _A.ADD_PRIMARY_KEY:
            key = list(action.key)
        elif action.kind not in _KEEPS_COLUMNS | _READ:  # unknown actions
            text = without_literals(
                action.text, modes=logged.modes, is_mariadb=logged.is_mariadb, max_chars=200
            )
            raise Uncertain(text or action.kind)
    missing = (renamed.keys() | visible.keys()) - there
    if missing:
        raise Uncertain(f"no column {min(missing)}")
    columns: list[Column] = []

    def _resolved(definition: ColumnDefinition) -> Column:
        return resolved_column(definition, of_columns, is_mariadb=logged.is_mariadb)

    for column in before.columns:
        old = column.name.lower()
        if old in dropped:
            continue
        if old in changed:
            if changed[old] not in placed:
                columns.append(_resolved(changed[old]))
            continue
        kept = column
        if converted is not None and column.type.has_charset:
            if converted in ("", "binary"):
                raise Uncertain("CONVERT TO CHARACTER SET")
            kept = replace(column, charset=converted)
        columns.append(
            replace(
                kept, name=renamed.get(old, column.name), visible=visible.get(old, column.visible)
            )
        )
    for definition in placed:
        _insert_column(columns, definition, _resolved(definition))
    names = {old: definition.name for old, definition in changed.items()} | renamed
    if list(before.key_names) == key:
        key = [names.get(name.lower(), name) for name in key if name.lower() not in dropped]
    for definition in changed.values():
        if definition.primary_key:
            key = [definition.name]
    for column in columns:
        if not holds_labels(column, is_mariadb=logged.is_mariadb):
            raise Uncertain(
                f"the charset of {column.name} lacks characters of its labels, or is unknown"
            )
    schema = _schema((before.database, before.table), columns, tuple(key))
    if logged.is_mariadb:
        schema = _altered_by_server(before, schema, actions, [*changed.values(), *placed], logged)
    if known.generated is None:
        return AlteredTable(schema, charset, None)
    replaced = dropped | changed.keys()
    stay = [computed for computed in known.generated if computed.name.lower() not in replaced]
    generated = generated_columns(
        [*changed.values(), *(one for one in placed if one not in changed.values())], columns
    )
    return AlteredTable(schema, charset, (*renamed_generated(stay, names), *generated))


def generated_columns(
    definitions: Iterable[ColumnDefinition], columns: Collection[Column]
) -> tuple[GeneratedColumn, ...]:
    """`columns` are all that the table has."""
    return tuple(
        generated_column(
            definition.name, definition.expression, columns, is_stored=definition.stored
        )
        for definition in definitions
        if definition.generated and not definition.period
    )


def _altered_by_server(
    before: TableSchema,
    schema: TableSchema,
    actions: tuple[Action, ...],
    definitions: Collection[ColumnDefinition],
    logged: LoggedStatement,
) -> TableSchema:
    """With what the server adds to the columns of `schema`."""
    is_versioned = bool(before.row_end)
    for action in actions:
        words = action.text.upper().split()
        if action.kind is _A.VERSIONING and words[1:] == ["SYSTEM", "VERSIONING"]:
            is_versioned = words[0] == "ADD"
    added_keys = hash_key_count(
        {column.name: column for column in schema.columns},
        own=[
            definition.name for definition in definitions
        ],  # definition that is longer now may have a key already
        texts=[action.text for action in actions if action.kind is _A.UNIQUE_INDEX],
        modes=logged.modes,
    )
    return _kept_by_server(
        before,
        schema,
        is_versioned=is_versioned,
        row_end=next(
            (definition.name for definition in definitions if definition.period == "END"), ""
        ),
        hash_keys=added_keys,
    )


def _kept_by_server(
    before: TableSchema,
    schema: TableSchema,
    *,
    is_versioned: bool | None = None,
    row_end: str = "",
    hash_keys: int,
) -> TableSchema:
    """`schema` with the server's columns of `before`, and so many more for hash keys."""
    declared = "" if server_columns.is_implicitly_versioned(before) else before.row_end
    row_end = row_end or (declared if declared in schema.column_names else "")
    if is_versioned is None:
        is_versioned = bool(before.row_end)
    return with_server_columns(
        schema,
        is_versioned=is_versioned,
        row_end=row_end,
        hash_keys=server_columns.hash_key_count(before) + hash_keys,
    )


_READ: Final = frozenset(
    {
        _A.DROP_COLUMN,
        _A.RENAME_COLUMN,
        _A.MODIFY_COLUMN,
        _A.CHANGE_COLUMN,
        _A.ADD_COLUMN,
        _A.COLUMN_VISIBILITY,
        _A.DROP_PRIMARY_KEY,
        _A.OPTION,
        _A.CONVERT_CHARSET,
        _A.VERSIONING,
    }
)


def _insert_column(columns: list[Column], definition: ColumnDefinition, column: Column) -> None:
    if definition.first:
        columns.insert(0, column)
    elif definition.after:
        names = [known.name.lower() for known in columns]
        if definition.after.lower() not in names:
            raise Uncertain(f"AFTER {definition.after}")
        columns.insert(names.index(definition.after.lower()) + 1, column)
    else:
        columns.append(column)


def resolved_column(definition: ColumnDefinition, charset: str, *, is_mariadb: bool) -> Column:
    """A column from its definition and the charset of its table."""
    column = definition.in_charset(charset, is_mariadb=is_mariadb).column
    return replace(column, name=definition.name, visible=definition.visible)


def holds_labels(column: Column, *, is_mariadb: bool) -> bool:
    """Whether a column certainly keeps its labels as written, without question marks."""
    if not are_known(column.labels):
        return False
    if not column.charset or all(label.isascii() for label in column.labels):
        return True
    # With numba, which few statements need.
    from cdc_pipeline.binlog.tables.charsets import holds_text, known_charsets

    return column.charset in known_charsets() and all(
        holds_text(label, column.charset, is_mariadb=is_mariadb) for label in column.labels
    )


def charsets_after(actions: Iterable[Action], own: str, of_database: str) -> tuple[str, str | None]:
    """After actions on a table, and the charset that CONVERT TO names, in which all of its
    columns are then, added ones too: None without one, "" if unknown.
    """
    default, converted = NamedCharset(), None
    for action in actions:
        if action.kind is _A.CONVERT_CHARSET and action.charset is not None:
            converted = action.charset.over(of_database, of_database)
        elif action.charset is not None:
            default = default.then(action.charset)
    if converted is not None:
        own = converted
    return default.over(own, of_database), converted


def _schema(table: TableName, columns: list[Column], key: tuple[str, ...]) -> TableSchema:
    names = [column.name.lower() for column in columns]
    if len(set(names)) < len(names) or any(name.lower() not in names for name in key):
        raise Uncertain("its columns and key contradict each other")
    return TableSchema(*table, tuple(columns), tuple(names.index(name.lower()) for name in key))
