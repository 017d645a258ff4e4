"""Read the catalog of a live server, and determine the place in the log at which it holds.

Rules:
- A catalog that is read now holds for a past place of the log only if no DDL of a table lies
  between: earlier rows would be decoded wrongly by a later shape. So the log from the requested
  place to its end after the reading is searched for DDL: only tables without any keep their columns
  back to that place; others have them from their last DDL on.
- The catalog is read again until no DDL came meanwhile. A table for which that never happens is
  left out, never guessed.
- A DDL is in the log before its end in MySQL's catalog (K17), and in MariaDB's catalog before it is
  in the log: opening a table waits for the end of its DDL. MySQL's tables with DDL are opened
  before the reading, all of MariaDB's after it.

Source: MySQL 9.7 manual, 28.3 (information_schema).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np

from cdc_pipeline.binlog.chunk import Role
from cdc_pipeline.binlog.events.query import Query, parse_query
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.tables.server_columns import own_key
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import StatementError
from cdc_pipeline.position.position import Position
from cdc_pipeline.schema.catalog import Catalog, catalog
from cdc_pipeline.schema.ddl.ddl import parse_logged
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind
from cdc_pipeline.schema.history.apply_ddl import TOUCHING
from cdc_pipeline.source.live.answers import AnswerRow
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.protocol import PlacedCatalog, Source
from cdc_pipeline.text.table_names import quoted, quoted_table, split_table_name

_READS_MAX: Final = 5
# A DDL that takes longer to end than this is neither in the log nor in the catalog yet.
LOCK_WAIT_S: Final = 5
_OF_A_COLUMN: Final = ("table_schema", "table_name", "column_name", "column_type", "is_nullable")
_ALL: Final = ("", "")  # of statements that may concern any table


def read_catalog(server: ServerConnection, captured: Callable[[str, str], bool]) -> Catalog:
    names = {name for name in map(split_table_name, server.tables()) if captured(*name)}
    databases = sorted({database for database, _ in names})
    if not databases:
        return Catalog()

    def of_tables(rows: Sequence[AnswerRow]) -> list[AnswerRow]:
        return [r for r in rows if (r.text("table_schema"), r.text("table_name")) in names]

    columns = of_tables(column_rows(server, databases))
    keys = of_tables(
        server.rows(
            "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, INDEX_TYPE "
            "FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA IN %s "
            "ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX",
            (databases,),
        )
    )
    tables = of_tables(
        server.rows(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_COLLATION AS collation, "
            "TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA IN %s",
            (databases,),
        )
    )
    schemata = server.rows(
        "SELECT SCHEMA_NAME AS table_schema, DEFAULT_CHARACTER_SET_NAME AS charset "
        "FROM information_schema.SCHEMATA WHERE SCHEMA_NAME IN %s",
        (databases,),
    )
    server_catalog = catalog(
        columns=columns,
        keys=keys,
        tables=tables,
        databases={row.text("table_schema"): row.text("charset") for row in schemata},
        is_mariadb=server.flavor == "mariadb",
    )
    of_keys = {tuple(map(row.text, _OF_A_COLUMN[:3])) for row in filter(is_of_key, columns)}
    for table, (schema, charset) in server_catalog.tables.items():
        named = [name for name in schema.column_names if (*table, name) in of_keys]
        if named and not schema.primary_key:
            server_catalog.tables[table] = _with_unique_key(server, schema, named), charset
    return server_catalog


def is_of_key(column: AnswerRow) -> bool:
    """Whether the log names a column in the table's key: the primary one or, for want of it, a
    unique one whose columns are never NULL, but for hashes of long texts (MariaDB) and virtual
    columns (MySQL).
    """
    return str(column["column_key"]).upper() == "PRI"


def _with_unique_key(
    server: ServerConnection, schema: TableSchema, named: Collection[str]
) -> TableSchema:
    """With the first unique key, in the server's order (which SHOW INDEX alone has), that consists
    of whole columns that are `named`.
    """
    with contextlib.suppress(StatementError):  # gone meanwhile
        rows = server.rows(f"SHOW INDEX FROM {quoted_table(schema.full_name)}")
        parts: dict[str, list[int] | None] = {}
        for row in rows:
            name, column = row.text("key_name"), row.get("column_name")
            is_usable = (
                not row.number("non_unique")
                and column in schema.column_names
                and row.get("sub_part") is None
                and column in named
            )
            known = parts.setdefault(name, [])
            if not is_usable:
                parts[name] = None
            elif known is not None:
                known.append(schema.column_names.index(str(column)))
        key = next((columns for columns in parts.values() if columns), ())
        return replace(schema, primary_key=own_key(schema.columns, key, schema.row_end))
    return schema


def column_rows(server: ServerConnection, databases: Sequence[str]) -> Sequence[AnswerRow]:
    """By table, in the order of the columns. Raises ServerAnswerError: a name or a type is none."""
    rows = server.rows(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, "
        "IS_NULLABLE, COLUMN_KEY, GENERATION_EXPRESSION AS expression, EXTRA, COLUMN_COMMENT FROM "
        "information_schema.COLUMNS WHERE TABLE_SCHEMA IN %s "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION",
        (databases,),
    )
    for row in rows:
        for name in _OF_A_COLUMN:
            row.text(name)
    return rows


def placed_catalog(
    server: ServerConnection,
    source: Source,
    captured: Callable[[str, str], bool],
    *,
    since: Position,
) -> PlacedCatalog:
    """The catalog, and which tables had DDL between `since` and its reading. Raises what reading
    the log raises: SourceError, BinlogError; the server refuses to return its catalog.
    """
    with server.no_refusal():
        server.query(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
        seen: dict[tuple[str, str], tuple[str, int]] = {}
        at = since
        for _ in range(_READS_MAX):
            _wait_for_ddl(server, seen)
            server_catalog = read_catalog(server, captured)
            if server.flavor == "mariadb":
                _wait_for_ddl(server, server_catalog.tables)
            end = server.end_position()
            statements = logged_statements(source, at, end, is_mariadb=server.flavor == "mariadb")
            met = _last_ddl(statements, captured)
            at = end
            for table in met if _ALL not in met else [*met, *server_catalog.tables]:
                seen[table] = max(
                    (met[name] for name in (table, _ALL) if name in met),
                    key=lambda at: Position(*at).order,
                )
            if not met:
                break
        certain = {
            table: facts
            for table, facts in server_catalog.tables.items()
            if table not in met and _ALL not in met
        }
        databases = {
            name: charset
            for name, charset in server_catalog.databases.items()
            if (name, "") not in met
        }
        generated = {
            table: columns
            for table, columns in server_catalog.generated.items()
            if table in certain
        }
        return PlacedCatalog(Catalog(certain, databases, generated, server_catalog.comments), seen)


def _wait_for_ddl(server: ServerConnection, tables: Iterable[tuple[str, str]]) -> None:
    """Opening a table waits for a DDL of it that is in the log but has not ended."""
    for database, table in tables:
        if database and table:
            # Gone, renamed, or no SELECT on it: then the catalog shows that too. Or its DDL still
            # runs.
            with contextlib.suppress(StatementError):
                server.query(f"SELECT 1 FROM {quoted(database)}.{quoted(table)} LIMIT 0")  # noqa: S608


def logged_statements(
    source: Source, start: Position, end: Position, *, is_mariadb: bool
) -> Iterator[tuple[Query, Statement, tuple[str, int]]]:
    """Each with its journal and offset, in the order of the log."""
    transactions, names = TransactionPass(), source.identity.names
    with closing(source.chunks(start, end)) as chunks:
        for chunk in chunks:
            transactions.apply(chunk)
            for row in np.flatnonzero(chunk.events["role"] == Role.STATEMENT).tolist():
                query = parse_query(chunk, row)
                statement = parse_logged(query, is_mariadb=is_mariadb, names=names)
                yield query, statement, (chunk.journal, int(chunk.events["offset"][row]))


def _last_ddl(
    statements: Iterable[tuple[Query, Statement, tuple[str, int]]],
    captured: Callable[[str, str], bool],
) -> dict[tuple[str, str], tuple[str, int]]:
    last: dict[tuple[str, str], tuple[str, int]] = {}
    for _, statement, place in statements:
        if statement.kind in (StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE):
            last[statement.database, ""] = place
        if statement.kind not in TOUCHING or statement.temporary:
            continue
        if statement.kind in (StatementKind.UNKNOWN, StatementKind.DROP_DATABASE):
            last[_ALL] = place
        last.update((table, place) for table in statement.tables if captured(*table))
    return last
