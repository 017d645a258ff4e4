"""A table at its server, and what an ALTER TABLE makes of it: the one model that DDL is applied to.

Rules:
- An ALTER TABLE is one change, in the server's order: every action names columns as they were
  before it. First every column that exists is dropped, renamed or replaced in its place; then added
  and moved ones are placed, one by one, in the order of the text.
- Only what is certain from the text is applied; anything else is `Uncertain`.

Source: MySQL 9.7 manual, 15.1.11 and 15.1.24; `mysql_prepare_alter_table` of both servers for the
order of columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.tables import server_columns
from cdc_pipeline.binlog.tables.server_columns import with_server_columns
from cdc_pipeline.schema.ddl.alter import Action, ActionKind
from cdc_pipeline.schema.ddl.columns import ColumnDefinition
from cdc_pipeline.schema.ddl.create import CreatedTable, hash_key_count
from cdc_pipeline.schema.ddl.options import NamedCharset, table_comment
from cdc_pipeline.schema.ddl.published import without_literals
from cdc_pipeline.schema.ddl.statement import Statement, TableName
from cdc_pipeline.schema.ddl.tokens import Uncertain
from cdc_pipeline.schema.ddl.types import are_known
from cdc_pipeline.schema.generated import GeneratedColumn, generated_column
from cdc_pipeline.schema.generated import renamed as renamed_generated

_A = ActionKind

# Of columns by name, and of the table as ""; sorted, without empty texts.
Comments = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Columns, key, and the default charsets of table and database; "" if unknown.

    `generated` are None if unknown: no table map shows them. If only the catalog knows them, they
    are as after the statement that is decided about.
    """

    schema: TableSchema
    charset: str = ""
    database_charset: str = ""
    generated: tuple[GeneratedColumn, ...] | None = None

    def named(self, table: TableName) -> SourceTable:
        return replace(self, schema=replace(self.schema, database=table[0], table=table[1]))


@dataclass(slots=True)
class ColumnChanges:
    """What the actions of an ALTER TABLE do to columns; old names in the table's spelling.

    Attributes:
        changed: by MODIFY and CHANGE, by the old name.
        placed: added columns, and changed ones that move, in the order of the text.
        key: names after the statement; None if it names no key.
        contradictions: actions that cannot have run on such a table, and why.
        skipped: actions with IF EXISTS or IF NOT EXISTS that do nothing.
    """

    dropped: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    changed: dict[str, ColumnDefinition] = field(default_factory=dict)
    added: list[ColumnDefinition] = field(default_factory=list)
    placed: list[ColumnDefinition] = field(default_factory=list)
    visible: dict[str, bool] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    contradictions: list[tuple[Action, str]] = field(default_factory=list)
    skipped: list[Action] = field(default_factory=list)

    def name_after(self, name: str) -> str:
        return self.renamed.get(name, name)

    def leave_out(self, action: Action, why: str) -> None:
        if action.if_exists:
            self.skipped.append(action)
        else:
            self.contradictions.append((action, why))

    def names_after(self, names: Iterable[str]) -> tuple[str, ...]:
        """Of those that stay."""
        return tuple(self.name_after(name) for name in names if name not in self.dropped)

    @property
    def columns_from(self) -> tuple[tuple[str, str], ...]:
        """Names that other columns had before, as `Version.columns_from`."""
        left = {name.lower() for name in (*self.dropped, *self.renamed)}
        new = [(one.name, "") for one in self.added if one.name.lower() in left]
        return (*((name, of) for of, name in self.renamed.items()), *new)


def column_changes(actions: Iterable[Action], columns: Collection[str]) -> ColumnChanges:
    """`columns`: the table's before the statement."""
    changes, spelled = ColumnChanges(), {name.lower(): name for name in columns}
    leaving = {
        action.name.lower()
        for action in actions
        if action.kind is _A.DROP_COLUMN
        or (
            action.kind in (_A.RENAME_COLUMN, _A.CHANGE_COLUMN)
            and action.name.lower() != action.new_name.lower()
        )
    }
    added_key: tuple[str, ...] | None = None
    for action in actions:
        kind, definition, name = action.kind, action.column, spelled.get(action.name.lower())
        if kind is _A.ADD_PRIMARY_KEY:  # after DROP PRIMARY KEY, wherever it is written
            added_key = action.key
        elif kind is _A.DROP_PRIMARY_KEY:
            changes.key = changes.key or ()
        elif kind is _A.ADD_COLUMN and definition is not None:
            # IF NOT EXISTS asks for the column as it was, whatever else the statement does to it.
            if name is not None and (action.if_exists or name.lower() not in leaving):
                changes.leave_out(action, "is added, but already exists")
                continue
            changes.added.append(definition)
            changes.placed.append(definition)
        elif kind not in _OF_COLUMNS:
            continue
        elif name is None:
            changes.leave_out(action, "is changed, but does not exist")
            continue
        elif kind is not _A.COLUMN_VISIBILITY and (
            name in changes.dropped or name in changes.changed or name in changes.renamed
        ):
            changes.contradictions.append((action, "is changed twice"))
            continue
        elif kind is _A.DROP_COLUMN:
            changes.dropped.append(name)
        elif kind is _A.COLUMN_VISIBILITY:
            changes.visible[name] = action.visible
        else:
            if definition is not None:
                changes.changed[name] = definition
                if definition.first or definition.after:
                    changes.placed.append(definition)
            if action.new_name != name:
                changes.renamed[name] = action.new_name
        if definition is not None and definition.primary_key:
            changes.key = (definition.name,)
    if added_key is not None:
        changes.key = added_key
    after = Counter(name.lower() for name in changes.names_after(columns))
    after.update(definition.name.lower() for definition in changes.added)
    for action in actions:
        if action.kind in _NAMING and after[action.new_name.lower() or action.name.lower()] > 1:
            changes.contradictions.append((action, "gets the name of another one"))
    return changes


def comments_after(
    comments: Comments, actions: Iterable[Action], changes: ColumnChanges
) -> Comments:
    """MODIFY and CHANGE without COMMENT leave a column without one."""
    texts = {
        changes.name_after(name): text for name, text in comments if name not in changes.dropped
    }
    texts |= {changes.name_after(old): new.comment for old, new in changes.changed.items()}
    texts |= {definition.name: definition.comment for definition in changes.added}
    engine = ""
    for action in actions:
        engine = action.name if action.kind is _A.ENGINE else engine
        if action.kind is _A.OPTION and action.name == "COMMENT":
            texts[""] = action.value
    texts[""] = table_comment(texts.get("", ""), engine)
    return comments_of(texts)


def comments_of(texts: Mapping[str, str]) -> Comments:
    """As both servers keep them: in utf8mb3, where any other character is a question mark."""
    return tuple(sorted((name, _NOT_KEPT.sub("?", text)) for name, text in texts.items() if text))


_NOT_KEPT: Final = re.compile("[^\0-\uffff]")


_NAMING: Final = frozenset({_A.ADD_COLUMN, _A.RENAME_COLUMN, _A.CHANGE_COLUMN})
_OF_COLUMNS: Final = frozenset(
    {_A.DROP_COLUMN, _A.COLUMN_VISIBILITY, _A.RENAME_COLUMN, _A.MODIFY_COLUMN, _A.CHANGE_COLUMN}
)


def altered(table: SourceTable, statement: Statement) -> SourceTable:
    """After an ALTER TABLE. Raises Uncertain."""
    before, is_mariadb, actions = table.schema, statement.is_mariadb, statement.actions
    changes = column_changes(actions, before.column_names)
    for action, why in changes.contradictions:
        raise Uncertain(f"column {action.name} {why}")
    for action in actions:
        if action.kind is _A.UNKNOWN:
            text = without_literals(
                action.text, modes=statement.modes, is_mariadb=is_mariadb, max_chars=200
            )
            raise Uncertain(text or action.kind)
    charset, converted = charsets_after(actions, table.charset, table.database_charset)

    def resolved(definition: ColumnDefinition) -> Column:
        of_columns = charset if converted is None else converted
        return resolved_column(definition, of_columns, is_mariadb=is_mariadb)

    columns: list[Column] = []
    for old in before.columns:
        name, column = old.name, old
        if name in changes.dropped:
            continue
        if name in changes.changed:
            if changes.changed[name] not in changes.placed:
                columns.append(resolved(changes.changed[name]))
            continue
        if converted is not None and old.type.has_charset:
            if converted in ("", "binary"):
                raise Uncertain("CONVERT TO CHARACTER SET")
            column = replace(old, charset=converted)
        visible = changes.visible.get(name, old.visible)
        columns.append(replace(column, name=changes.name_after(name), visible=visible))
    for definition in changes.placed:
        _insert_column(columns, definition, resolved(definition))
    _check_labels(columns, is_mariadb=is_mariadb)
    key = changes.names_after(before.key_names) if changes.key is None else changes.key
    schema = _schema((before.database, before.table), columns, key)
    definitions = [*changes.changed.values(), *changes.added]
    if is_mariadb:
        schema = _altered_by_server(before, schema, statement, definitions)
    generated = None
    if table.generated is not None:
        replaced = {name.lower() for name in (*changes.dropped, *changes.changed)}
        stay = [computed for computed in table.generated if computed.name.lower() not in replaced]
        names = {old.lower(): new for old, new in changes.renamed.items()}
        generated = (*renamed_generated(stay, names), *_generated(definitions, columns))
    return SourceTable(schema, charset, table.database_charset, generated)


def created(
    table: TableName, by: CreatedTable, *, database_charset: str, is_mariadb: bool
) -> SourceTable:
    """By a plain CREATE TABLE. Raises Uncertain."""
    outer = "" if by.omits_options else database_charset
    charset = by.charset.over(outer, outer)
    columns = [
        resolved_column(definition, charset, is_mariadb=is_mariadb) for definition in by.columns
    ]
    _check_labels(columns, is_mariadb=is_mariadb)
    schema = with_server_columns(
        _schema(table, columns, by.primary_key),
        is_versioned=by.is_versioned,
        row_end=by.row_end,
        hash_keys=by.hash_keys,
    )
    return SourceTable(schema, charset, database_charset, _generated(by.columns, columns))


def indexed(table: SourceTable, statement: Statement) -> SourceTable:
    """After CREATE INDEX: MariaDB may keep a UNIQUE key in a column of its own."""
    if not statement.is_mariadb or statement.unique is None:
        return table
    added = hash_key_count(
        {column.name: column for column in table.schema.columns},
        own=(),
        keys=[statement.unique],
    )
    if not added:
        return table
    return replace(table, schema=_kept_by_server(table.schema, table.schema, hash_keys=added))


def _generated(
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
    statement: Statement,
    definitions: Collection[ColumnDefinition],
) -> TableSchema:
    """With what the server adds to the columns of `schema`."""
    is_versioned = bool(before.row_end)
    for action in statement.actions:
        words = action.text.upper().split()
        if action.kind is _A.VERSIONING and words[1:] == ["SYSTEM", "VERSIONING"]:
            is_versioned = words[0] == "ADD"
    added_keys = hash_key_count(
        {column.name: column for column in schema.columns},
        # one that is longer now may have a key already
        own=[
            definition.name for definition in definitions if definition.name in schema.column_names
        ],
        keys=[action.unique for action in statement.actions if action.unique is not None],
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


def _check_labels(columns: Iterable[Column], *, is_mariadb: bool) -> None:
    doubtful = [
        column.name for column in columns if not holds_labels(column, is_mariadb=is_mariadb)
    ]
    if doubtful:
        raise Uncertain(
            f"the charset of {', '.join(doubtful)} lacks characters of its labels, or is unknown"
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
