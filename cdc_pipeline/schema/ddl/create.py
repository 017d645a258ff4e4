"""Columns and primary key of a plain CREATE TABLE.

Rules:
- All or nothing: if a column, key or option is uncertain from the text, the result is None, and the
  target waits for its first table map.

Source: MySQL 9.7 manual, 15.1.24 (CREATE TABLE); MariaDB 10.11, CREATE TABLE.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.schema.ddl.alter import ActionKind, added_key, at_key_part
from cdc_pipeline.schema.ddl.columns import ColumnDefinition, column_definition
from cdc_pipeline.schema.ddl.ddl import classify_tokens
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes, TokenKind, TokenReader
from cdc_pipeline.schema.ddl.types import charset_of_collation


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """Columns and key of a plain CREATE TABLE.

    Attributes:
        primary_key: column names as they are written in the columns' own definitions; () without a
            primary key.
        charset: the table's own default charset; "" if none is written.
    """

    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    charset: str = ""


def create_columns(
    sql: str,
    default_database: str = "",
    *,
    is_mariadb: bool = False,
    modes: SqlModes = UNKNOWN_MODES,
) -> CreatedTable | None:
    """Return columns and primary key of a plain CREATE TABLE; None if its text leaves them
    uncertain."""
    tokens = TokenReader(sql, modes=modes, is_mariadb=is_mariadb)
    if classify_tokens(
        tokens, default_database
    ).kind is not StatementKind.CREATE_TABLE or not tokens.at("("):
        return None
    charset = _table_charset(tokens)
    if charset is None:
        return None
    tokens.next()
    columns: list[ColumnDefinition] = []
    key: tuple[str, ...] = ()
    while True:
        if at_key_part(tokens):
            added = added_key(tokens)
            if added is None:
                return None
            if added.kind is ActionKind.ADD_PRIMARY_KEY:
                key = key_columns(added.text, modes=tokens.modes, is_mariadb=tokens.is_mariadb)
                if not key:
                    return None
        else:
            column = column_definition(tokens, table_charset=charset)
            if column is None or column.first or column.after:
                return None
            columns.append(column)
            if column.primary_key:
                key = (column.name,)
        if tokens.take(")"):
            break
        if not tokens.take(","):
            return None
    by_folded_name = {column.name.lower(): column.name for column in columns}
    is_ambiguous = len(by_folded_name) < len(columns)
    if not columns or is_ambiguous or any(name.lower() not in by_folded_name for name in key):
        return None
    return CreatedTable(
        tuple(columns), tuple(by_folded_name[name.lower()] for name in key), charset
    )


def _table_charset(tokens: TokenReader) -> str | None:
    """Return the table's own charset, "" if none is written; None if an option adds columns (system
    versioning)."""
    here = tokens.index
    if not tokens.skip_group():
        return None
    charset = table_charset(tokens)
    tokens.index = here
    return charset


def table_charset(tokens: TokenReader) -> str | None:
    """Return the charset among the options up to the end, "" if there is none; None if an option
    adds columns."""
    charset = ""
    while not tokens.at_end():
        if tokens.at("WITH", "SYSTEM", "VERSIONING"):
            return None
        if tokens.take("CHARSET") or tokens.take("CHARACTER", "SET"):
            tokens.take("=")
            charset = (tokens.name_or_string() or "").lower()
        elif tokens.take("COLLATE"):
            tokens.take("=")
            collation = tokens.name_or_string() or ""
            charset = charset or charset_of_collation(collation)
        elif not tokens.skip_group() and tokens.next().kind is TokenKind.BAD:
            return None
    return "" if charset == "default" else charset


def key_columns(text: str, *, modes: SqlModes, is_mariadb: bool) -> tuple[str, ...]:
    """Columns of ``[ADD] PRIMARY KEY [name] [USING ..] (a, b(10) DESC)``; () if one is not a
    column."""
    reader = TokenReader(text, modes=modes, is_mariadb=is_mariadb)
    while not reader.at_end() and not reader.at("("):
        reader.next()
    names: list[str] = []
    reader.take("(")
    while (name := reader.name()) is not None:
        names.append(name)
        reader.skip_group()
        reader.take_any("ASC", "DESC")
        if reader.take("WITHOUT", "OVERLAPS"):
            return ()
        if not reader.take(","):
            break
    return tuple(names) if reader.at(")") else ()
