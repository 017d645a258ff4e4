"""Random DDL of one table: SQL, and what it makes of the generator's picture of the table.

Every maker returns the statements and a function that is called when the server has taken them all;
None where the table has nothing that the change could act on. Which kinds are made at all is told
by `capabilities`. A statement that does something to the table's rows without row events is an
`AlteringSql`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.campaigns.sink.alterations import Alteration, AlteringSql
from tests.campaigns.sink.capabilities import KINDS
from tests.campaigns.sink.column_types import types_for
from tests.campaigns.sink.tables import Column, Table, quoted


@dataclass(frozen=True)
class Change:
    """A DDL of a table. `kind`: as in `capabilities`; `after`: brings the generator's picture up to
    date.
    """

    kind: str
    statements: tuple[str, ...]
    after: Callable[[], None]


Made = tuple[list[str], Callable[[], None]] | None
Maker = Callable[[random.Random, Table, str], Made]


def random_change(
    choose: random.Random, table: Table, *, flavor: str, kinds: frozenset[str] = KINDS
) -> Change:
    while True:
        kind = choose.choice(sorted(kinds & MAKERS.keys()))
        made = MAKERS[kind](choose, table, flavor)
        if made is not None:
            return Change(kind, tuple(made[0]), made[1])


def _nothing() -> None:
    """The picture stays."""


def _new_column(choose: random.Random, table: Table, flavor: str) -> tuple[Column, str, str, int]:
    """A column with its definition, its place as SQL, and its index."""
    column_type = choose.choice(types_for(flavor))
    column = Column(table.fresh_name(choose), column_type, nullable=True)
    definition = column.definition
    if column_type.default and choose.random() < 0.5:
        column.nullable = choose.random() < 0.5
        value = column_type.literal(choose)
        if "x'" not in value:
            definition = f"{column.definition} DEFAULT {value}"
    index = choose.randint(0, len(table.columns))
    if index == 0:
        return column, definition, " FIRST", 0
    if index == len(table.columns):
        return column, definition, "", index
    return column, definition, f" AFTER {quoted(table.columns[index - 1].name)}", index


def _add_column(choose: random.Random, table: Table, flavor: str) -> Made:
    if len(table.columns) > 14:
        return None
    column, definition, place, index = _new_column(choose, table, flavor)
    sql = f"ALTER TABLE {table.sql_name} ADD COLUMN {definition}{place}"
    if flavor == "mysql" and choose.random() < 0.2:
        sql += ", ALGORITHM=INPLACE"
    return [sql], lambda: table.columns.insert(index, column)


def _add_columns(choose: random.Random, table: Table, flavor: str) -> Made:
    if len(table.columns) > 13:
        return None
    one, first, _, _ = _new_column(choose, table, flavor)
    table.columns.append(one)
    other, second, _, _ = _new_column(choose, table, flavor)
    table.columns.remove(one)
    sql = f"ALTER TABLE {table.sql_name} ADD COLUMN {first}, ADD {second}, COMMENT = 'two'"
    return [sql], lambda: table.columns.extend((one, other))


def _add_index(choose: random.Random, table: Table, flavor: str) -> Made:
    columns = [
        column for column in table.columns if column.type.kind in ("int", "decimal", "varchar")
    ]
    if not columns:
        return None
    name = f"i{choose.randrange(10**6)}"
    column = quoted(choose.choice(columns).name)
    forms = (
        f"ALTER TABLE {table.sql_name} ADD INDEX {name} ({column})",
        f"CREATE INDEX {name} ON {table.sql_name} ({column} DESC)",
    )
    return [choose.choice(forms)], lambda: table.indexes.append(name)


def _drop_index(choose: random.Random, table: Table, flavor: str) -> Made:
    if not table.indexes:
        return None
    name = choose.choice(table.indexes)
    return [f"DROP INDEX {name} ON {table.sql_name}"], lambda: table.indexes.remove(name)


def _comment(choose: random.Random, table: Table, flavor: str) -> Made:
    forms = ["COMMENT = 'it''s; DROP TABLE x'", "ROW_FORMAT = DYNAMIC", "ENGINE = InnoDB", "FORCE"]
    return [f"ALTER TABLE {table.sql_name} {choose.choice(forms)}"], _nothing


def _default(choose: random.Random, table: Table, flavor: str) -> Made:
    columns = [c for c in table.others() if c.type.kind in ("int", "varchar")]
    if not columns:
        return None
    column = choose.choice(columns)
    value = column.type.literal(choose)
    return [
        f"ALTER TABLE {table.sql_name} ALTER COLUMN {quoted(column.name)} SET DEFAULT {value}"
    ], _nothing


def _uncaptured(choose: random.Random, table: Table, flavor: str) -> Made:
    """DDL of another database, some of it hard to read, with the captured table's name in it."""
    other = f"{quoted('elsewhere_' + table.database)}.{quoted(table.name)}"
    forms = (
        f"ALTER TABLE {other} ADD COLUMN c{choose.randrange(10**9)} INT /* `{table.database}`.x */",
        f"TRUNCATE TABLE {other}",
        f"ALTER TABLE {other} CONVERT TO CHARACTER SET {choose.choice(('latin1', 'utf8mb4'))}",
    )
    made = f"CREATE TABLE IF NOT EXISTS {other} (id INT PRIMARY KEY, note TEXT)"
    database = f"CREATE DATABASE IF NOT EXISTS {quoted('elsewhere_' + table.database)}"
    return [
        database,
        made,
        f"INSERT IGNORE INTO {other} (id) VALUES (1), (2)",
        choose.choice(forms),
    ], _nothing


def _drop_column(choose: random.Random, table: Table, flavor: str) -> Made:
    used = {table.column(name).name for name in table.key} | _sources(table)
    columns = [column for column in table.columns if column.name not in used]
    if len(columns) < 2:
        return None
    column = choose.choice(columns)
    sql = f"ALTER TABLE {table.sql_name} DROP COLUMN {quoted(column.name)}"
    return [
        AlteringSql(sql, Alteration(columns={column.name: None}))
    ], lambda: table.columns.remove(column)


def _drop_add(choose: random.Random, table: Table, flavor: str) -> Made:
    """A column goes and another one comes under its name, in one statement or in two."""
    used = set(table.key) | _sources(table)
    columns = [column for column in table.columns if column.name not in used]
    if not columns:
        return None
    old = choose.choice(columns)
    new = Column(old.name, choose.choice(types_for(flavor)))
    drop, add = f"DROP COLUMN {quoted(old.name)}", f"ADD COLUMN {new.definition}"
    actions = [f"{drop}, {add}"] if choose.random() < 0.5 else [drop, add]

    def after() -> None:
        table.columns.remove(old)
        table.columns.append(new)

    first, *others = (f"ALTER TABLE {table.sql_name} {action}" for action in actions)
    return [AlteringSql(first, Alteration(columns={old.name: None})), *others], after


def _swap_columns(choose: random.Random, table: Table, flavor: str) -> Made:
    columns = [column for column in table.others() if column.name not in _sources(table)]
    pairs = [
        (a, b)
        for a in columns
        for b in columns
        if a is not b and a.type.declared == b.type.declared
    ]
    if not pairs:
        return None
    one, other = choose.choice(pairs)
    first, second = quoted(one.name), quoted(other.name)

    def after() -> None:
        one.name, other.name = other.name, one.name

    sql = (
        f"ALTER TABLE {table.sql_name} RENAME COLUMN {first} TO {second}, RENAME COLUMN "
        f"{second} TO {first}"
    )
    return [
        AlteringSql(sql, Alteration(columns={one.name: other.name, other.name: one.name}))
    ], after


def _drop_database(choose: random.Random, table: Table, flavor: str) -> Made:
    """The whole database goes, and comes back with this table alone."""
    database = quoted(table.database)
    statements = [f"DROP DATABASE {database}", f"CREATE DATABASE {database}", table.create_sql()]
    return statements, _forget(table)


def _sources(table: Table) -> set[str]:
    texts = [column.generated for column in table.columns if column.generated]
    return {
        column.name
        for column in table.columns
        if any(quoted(column.name) in text for text in texts)
    }


def _rename_column(choose: random.Random, table: Table, flavor: str) -> Made:
    columns = [column for column in table.columns if column.name not in _sources(table)]
    if not columns:
        return None
    column, name = choose.choice(columns), table.fresh_name(choose)
    old = column.name

    def after() -> None:
        column.name = name
        table.key = tuple(name if part == old else part for part in table.key)
        table.keys[:] = [
            {name if part == old else part: v for part, v in key.items()} for key in table.keys
        ]

    sql = f"ALTER TABLE {table.sql_name} RENAME COLUMN {quoted(old)} TO {quoted(name)}"
    return [AlteringSql(sql, Alteration(columns={old: name}))], after


WIDER = {
    "TINYINT": "SMALLINT", "SMALLINT": "INT", "MEDIUMINT": "INT", "INT": "BIGINT",
    "FLOAT": "DOUBLE",
    "DECIMAL(10,2)": "DECIMAL(14,4)", "VARCHAR(40)": "VARCHAR(120)", "VARCHAR(300)": "TEXT",
}  # fmt: skip
OTHER_TYPES = {
    "INT": "VARCHAR(40)", "BIGINT": "INT UNSIGNED", "DECIMAL(10,2)": "DOUBLE", "DATETIME": "DATE",
    "DOUBLE": "FLOAT",
    "DATETIME(6)": "DATETIME", "VARCHAR(40)": "BLOB", "DECIMAL(38,10)": "DECIMAL(20,4)",
    "TIME(3)": "TIME",
}  # fmt: skip


def _modified(choose: random.Random, table: Table, flavor: str, to: dict[str, str]) -> Made:
    known = {known.declared: known for known in types_for(flavor)}
    columns = [c for c in table.others() if c.type.declared in to and c.name not in _sources(table)]
    if not columns:
        return None
    column = choose.choice(columns)
    declared = to[column.type.declared]
    template = known.get(declared, column.type)
    new = type(template)(declared, template.literal, default=template.default, kind=template.kind)
    null = "NULL" if column.nullable else "NOT NULL"
    name = quoted(column.name)
    forms = (
        f"MODIFY COLUMN {name} {declared} {null}",
        f"CHANGE COLUMN {name} {name} {declared} {null}",
    )

    def after() -> None:
        column.type = new

    sql = f"ALTER TABLE {table.sql_name} {choose.choice(forms)}"
    doubled = (column.type.declared, declared) == ("FLOAT", "DOUBLE")
    return [AlteringSql(sql, Alteration(doubled=column.name)) if doubled else sql], after


def _widen(choose: random.Random, table: Table, flavor: str) -> Made:
    return _modified(choose, table, flavor, WIDER)


def _modify(choose: random.Random, table: Table, flavor: str) -> Made:
    return _modified(choose, table, flavor, OTHER_TYPES)


REPRINTED = {"DATE": "DATETIME", "DATETIME": "DATETIME(6)"}


def _reprint(choose: random.Random, table: Table, flavor: str) -> Made:
    """Values stay, and the server prints them as other texts."""
    return _modified(choose, table, flavor, REPRINTED)


def _move_column(choose: random.Random, table: Table, flavor: str) -> Made:
    """The column's definition stays; its place changes."""
    columns = [column for column in table.columns if not column.generated]
    column = choose.choice(columns)

    def after() -> None:
        table.columns.remove(column)
        table.columns.insert(0, column)

    return [f"ALTER TABLE {table.sql_name} MODIFY COLUMN {column.definition} FIRST"], after


def _convert(choose: random.Random, table: Table, flavor: str) -> Made:
    charset = choose.choice(("utf8mb4", "utf8mb3"))
    return [f"ALTER TABLE {table.sql_name} CONVERT TO CHARACTER SET {charset}"], _nothing


def _change_key(choose: random.Random, table: Table, flavor: str) -> Made:
    if not table.key or table.unique:
        return None
    columns = [c for c in table.others() if c.type.key and not c.nullable]
    if not columns:
        return None
    added = choose.choice(columns)
    key = (*table.key, added.name)
    listed = ", ".join(quoted(name) for name in key)

    def after() -> None:
        table.key = key
        table.keys.clear()

    sql = f"ALTER TABLE {table.sql_name} DROP PRIMARY KEY, ADD PRIMARY KEY ({listed})"
    return [AlteringSql(sql, Alteration(keys=(table.key, key)))], after


def _truncate(choose: random.Random, table: Table, flavor: str) -> Made:
    return [
        AlteringSql(f"TRUNCATE TABLE {table.sql_name}", Alteration(truncates=True))
    ], table.keys.clear


def _drop_create(choose: random.Random, table: Table, flavor: str) -> Made:
    return [f"DROP TABLE {table.sql_name}", table.create_sql()], _forget(table)


def _drop_table(choose: random.Random, table: Table, flavor: str) -> Made:
    return [f"DROP TABLE {table.sql_name}"], _nothing


def _forget(table: Table) -> Callable[[], None]:
    def after() -> None:
        table.keys.clear()
        table.indexes.clear()

    return after


def _rename(choose: random.Random, table: Table, flavor: str) -> Made:
    name = f"{table.name}_{choose.randrange(1000)}"
    new = f"{quoted(table.database)}.{quoted(name)}"
    forms = (
        f"RENAME TABLE {table.sql_name} TO {new}",
        f"ALTER TABLE {table.sql_name} RENAME TO {new}",
    )

    def after() -> None:
        table.name = name

    return [
        AlteringSql(choose.choice(forms), Alteration(moves_to=f"{table.database}.{name}"))
    ], after


def _ghost(choose: random.Random, table: Table, flavor: str) -> Made:
    """As gh-ost changes a table: a shadow is made, filled, and swapped in by one RENAME."""
    if len(table.columns) > 14 or not table.key:
        return None
    column, definition, _, _ = _new_column(choose, table, flavor)
    shadow, old = (
        f"{quoted(table.database)}.{quoted(f'_{table.name}_{end}')}" for end in ("gho", "del")
    )
    log = f"{quoted(table.database)}.{quoted(f'_{table.name}_ghc')}"
    listed = ", ".join(quoted(column.name) for column in table.written)
    statements = [
        f"CREATE TABLE {log} (id BIGINT AUTO_INCREMENT PRIMARY KEY, value VARCHAR(40))",
        f"CREATE TABLE {shadow} LIKE {table.sql_name}",
        f"ALTER TABLE {shadow} ADD COLUMN {definition}",
        f"INSERT INTO {log} (value) VALUES ('copy')",
        f"INSERT IGNORE INTO {shadow} ({listed}) SELECT {listed} FROM {table.sql_name}",
        f"RENAME TABLE {table.sql_name} TO {old}, {shadow} TO {table.sql_name}",
        f"DROP TABLE {old}",
        f"DROP TABLE {log}",
    ]
    return statements, lambda: table.columns.append(column)


def _ptosc(choose: random.Random, table: Table, flavor: str) -> Made:
    """As pt-online-schema-change does it: a shadow, triggers, a copy, a swap."""
    if len(table.columns) > 14 or not table.key:
        return None
    column, definition, _, _ = _new_column(choose, table, flavor)
    shadow, old = (
        f"{quoted(table.database)}.{quoted(f'_{table.name}_{end}')}" for end in ("new", "old")
    )
    trigger = f"{quoted(table.database)}.{quoted(f'pt_osc_{table.name}_del')}"
    same = " AND ".join(f"{shadow}.{quoted(name)} <=> OLD.{quoted(name)}" for name in table.key)
    listed = ", ".join(quoted(column.name) for column in table.written)
    statements = [
        f"CREATE TABLE {shadow} LIKE {table.sql_name}",
        f"ALTER TABLE {shadow} ADD COLUMN {definition}",
        f"CREATE TRIGGER {trigger} AFTER DELETE ON {table.sql_name} FOR EACH ROW DELETE IGNORE "
        f"FROM {shadow} WHERE {same}",
        f"INSERT LOW_PRIORITY IGNORE INTO {shadow} ({listed}) SELECT {listed} FROM "
        f"{table.sql_name} LOCK IN SHARE MODE /*pt-online-schema-change 1 copy table*/",
        f"DELETE FROM {table.sql_name} ORDER BY "
        f"{', '.join(quoted(name) for name in table.key)} LIMIT 1",
        f"RENAME TABLE {table.sql_name} TO {old}, {shadow} TO {table.sql_name}",
        f"DROP TABLE IF EXISTS {old}",
        f"DROP TRIGGER IF EXISTS {trigger}",
    ]
    return statements, lambda: table.columns.append(column)


def _partition(choose: random.Random, table: Table, flavor: str) -> Made:
    if table.unique or not table.key or table.column(table.key[0]).type.kind != "int":
        return None
    column = quoted(table.key[0])
    statements = [
        f"ALTER TABLE {table.sql_name} PARTITION BY RANGE ({column}) "
        "(PARTITION low VALUES LESS THAN (0), PARTITION rest VALUES LESS THAN MAXVALUE)",
        f"ALTER TABLE {table.sql_name} {choose.choice(('DROP', 'TRUNCATE'))} PARTITION low",
        f"ALTER TABLE {table.sql_name} REMOVE PARTITIONING",
    ]
    return statements, _nothing


def _create_select(choose: random.Random, table: Table, flavor: str) -> Made:
    """The table is replaced by one that CREATE ... SELECT fills from it."""
    if not table.key or table.unique or any(column.generated for column in table.columns):
        return None
    copy = f"{quoted(table.database)}.{quoted('copy_of')}"
    listed = ", ".join(quoted(name) for name in table.key)
    statements = [
        f"CREATE TABLE {copy} (PRIMARY KEY ({listed})) AS SELECT * FROM {table.sql_name}",
        f"DROP TABLE {copy}",
    ]
    return statements, _nothing


MAKERS: dict[str, Maker] = {
    "add_column": _add_column,
    "add_columns": _add_columns,
    "add_index": _add_index,
    "drop_index": _drop_index,
    "comment": _comment,
    "default": _default,
    "uncaptured": _uncaptured,
    "drop_column": _drop_column,
    "rename_column": _rename_column,
    "drop_add": _drop_add,
    "swap_columns": _swap_columns,
    "drop_database": _drop_database,
    "widen": _widen,
    "modify": _modify,
    "reprint": _reprint,
    "move_column": _move_column,
    "convert_charset": _convert,
    "change_key": _change_key,
    "truncate": _truncate,
    "drop_create": _drop_create,
    "drop_table": _drop_table,
    "rename_table": _rename,
    "gh_ost": _ghost,
    "pt_osc": _ptosc,
    "partition": _partition,
    "create_select": _create_select,
}
