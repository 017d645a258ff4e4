"""Random changes of rows: SQL of one transaction on some tables."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.campaigns.sink.tables import Row, Table, quoted

IMAGES = ("FULL", "FULL", "FULL", "MINIMAL", "NOBLOB")


@dataclass(frozen=True)
class Transaction:
    """Statements between BEGIN and COMMIT or ROLLBACK; `session` statements come before BEGIN."""

    session: tuple[str, ...]
    statements: tuple[str, ...]
    commits: bool
    tables: tuple[Table, ...]


def random_transaction(
    choose: random.Random, tables: list[Table], *, flavor: str, statements_max: int
) -> Transaction:
    image = choose.choice(IMAGES)
    if any(not table.key for table in tables):
        image = "FULL"
    session = [f"SET SESSION binlog_row_image = '{image}'"]
    partial = flavor == "mysql" and image == "FULL" and choose.random() < 0.4
    if flavor == "mysql":
        session.append(
            f"SET SESSION binlog_row_value_options = '{'PARTIAL_JSON' if partial else ''}'"
        )
    chosen = choose.sample(tables, choose.randint(1, len(tables)))
    statements: list[str] = []
    for _ in range(choose.randint(1, statements_max)):
        statements += _change(choose, choose.choice(chosen), image=image)
    if choose.random() < 0.15:
        first = choose.randrange(len(statements) + 1)
        statements.insert(first, "SAVEPOINT here")
        statements.insert(choose.randint(first + 1, len(statements)), "ROLLBACK TO SAVEPOINT here")
    return Transaction(tuple(session), tuple(statements), choose.random() > 0.08, tuple(chosen))


def _change(choose: random.Random, table: Table, *, image: str) -> list[str]:
    kinds = [_insert] * (6 if len(table.keys) < 6 else 2)
    if table.keys:
        kinds += [
            _update,
            _update,
            _update,
            _update_many,
            _update_equal,
            _delete,
            _delete_many,
            _update_json,
        ]
        kinds += [_replace, _upsert] if table.key else []
        kinds += [_move, _move, _swap, _delete_insert] if table.key else []
    return choose.choice(kinds)(choose, table)


def _known(choose: random.Random, table: Table) -> Row:
    return choose.choice(table.keys)


def _remember(table: Table, row: Row) -> None:
    names = (
        table.key
        or tuple(column.name for column in table.written if "CHAR" in column.type.declared)[:1]
    )
    names = names or (table.written[0].name,)
    table.keys.append({name: row[name] for name in names})
    del table.keys[:-30]


def _values(rows: list[Row]) -> str:
    listed = ", ".join(quoted(name) for name in rows[0])
    return f"({listed}) VALUES " + ", ".join(f"({', '.join(row.values())})" for row in rows)


def _insert(choose: random.Random, table: Table) -> list[str]:
    rows = [table.row(choose) for _ in range(choose.choice((1, 1, 2, 4)))]
    for row in rows:
        _remember(table, row)
    return (
        [f"INSERT IGNORE INTO {table.sql_name} {_values(rows)}"]
        if len(rows) > 1
        else [_one(table, rows[0])]
    )


def _one(table: Table, row: Row) -> str:
    return f"INSERT INTO {table.sql_name} {_values([row])}"


def _replace(choose: random.Random, table: Table) -> list[str]:
    row = table.row(choose) | _known(choose, table)
    return [f"REPLACE INTO {table.sql_name} {_values([row])}"]


def _upsert(choose: random.Random, table: Table) -> list[str]:
    row = table.row(choose) | _known(choose, table)
    others = table.others()
    if not others:
        return _replace(choose, table)
    column = choose.choice(others)
    setting = f"{quoted(column.name)} = {column.literal(choose)}"
    return [f"{_one(table, row)} ON DUPLICATE KEY UPDATE {setting}"]


def _settings(choose: random.Random, table: Table) -> str:
    others = table.others()
    columns = choose.sample(others, min(len(others), choose.choice((1, 1, 2, 3))))
    return ", ".join(f"{quoted(column.name)} = {column.literal(choose)}" for column in columns)


def _update(choose: random.Random, table: Table) -> list[str]:
    if not table.others():
        return _move(choose, table)
    limit = "" if table.key else " LIMIT 1"
    return [
        f"UPDATE {table.sql_name} SET {_settings(choose, table)} WHERE "
        f"{table.where(_known(choose, table))}{limit}"
    ]


def _order(table: Table) -> str:
    return ", ".join(
        quoted(name) for name in (table.key or tuple(column.name for column in table.columns[:3]))
    )


def _update_many(choose: random.Random, table: Table) -> list[str]:
    if not table.others():
        return _delete_many(choose, table)
    return [
        f"UPDATE {table.sql_name} SET {_settings(choose, table)} ORDER BY {_order(table)} LIMIT "
        f"{choose.randint(1, 8)}"
    ]


def _update_equal(choose: random.Random, table: Table) -> list[str]:
    name = quoted(choose.choice(table.written).name)
    return [
        f"UPDATE {table.sql_name} SET {name} = {name} WHERE {table.where(_known(choose, table))}"
    ]


def _update_json(choose: random.Random, table: Table) -> list[str]:
    documents = [column for column in table.others() if column.type.kind == "json"]
    if not documents:
        return _update(choose, table)
    name = quoted(choose.choice(documents).name)
    change = choose.choice(
        (
            f"JSON_SET({name}, '$.a', {choose.randrange(1000)})",
            f"JSON_REPLACE({name}, '$.b', '{'z' * choose.randrange(20)}')",
            f"JSON_REMOVE({name}, '$.a')",
            f"JSON_SET({name}, '$.n', JSON_ARRAY(1, 'x'))",
        )
    )
    return [
        f"UPDATE {table.sql_name} SET {name} = {change} WHERE {table.where(_known(choose, table))}"
    ]


def _delete(choose: random.Random, table: Table) -> list[str]:
    return [f"DELETE FROM {table.sql_name} WHERE {table.where(_known(choose, table))}"]


def _delete_many(choose: random.Random, table: Table) -> list[str]:
    return [f"DELETE FROM {table.sql_name} ORDER BY {_order(table)} LIMIT {choose.randint(1, 3)}"]


def _new_key(choose: random.Random, table: Table) -> Row:
    return {name: table.column(name).type.literal(choose) for name in table.key}


def _setting_key(key: Row) -> str:
    return ", ".join(f"{quoted(name)} = {value}" for name, value in key.items())


def _move(choose: random.Random, table: Table) -> list[str]:
    """A key update, sometimes with other columns, sometimes of case alone."""
    old, new = _known(choose, table), _new_key(choose, table)
    if choose.random() < 0.2:
        new = {
            n: f"UPPER({quoted(n)})" if "CHAR" in table.column(n).type.declared else v
            for n, v in old.items()
        }
    else:
        table.keys.append(new)
    also = f", {_settings(choose, table)}" if table.others() and choose.random() < 0.4 else ""
    return [f"UPDATE {table.sql_name} SET {_setting_key(new)}{also} WHERE {table.where(old)}"]


def _swap(choose: random.Random, table: Table) -> list[str]:
    """Two keys change places within one transaction."""
    one, other, spare = _known(choose, table), _known(choose, table), _new_key(choose, table)
    if one == other:
        return _update(choose, table)
    return [
        f"UPDATE {table.sql_name} SET {_setting_key(new)} WHERE {table.where(old)}"
        for old, new in ((one, spare), (other, one), (spare, other))
    ]


def _delete_insert(choose: random.Random, table: Table) -> list[str]:
    key = _known(choose, table)
    return [
        f"DELETE FROM {table.sql_name} WHERE {table.where(key)}",
        _one(table, table.row(choose) | key),
    ]
