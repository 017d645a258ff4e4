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
from cdc_pipeline.schema.ddl.options import NamedCharset, take_option
from cdc_pipeline.schema.ddl.statement import StatementKind
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes, TokenReader


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """Columns and key of a plain CREATE TABLE.

    Attributes:
        primary_key: column names as they are written in the columns' own definitions; () without a
            primary key.
        charset: the table's own default charset.
        omits_options: the server wrote the text in a mode in which it leaves the table's charset
            out, so that not even the database's is certain where none is named.
    """

    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    charset: NamedCharset
    omits_options: bool


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
    opens = tokens.next()
    columns: list[ColumnDefinition] = []
    key: tuple[str, ...] = ()
    while True:
        if at_key_part(tokens):
            added = added_key(tokens)
            if added is None:
                return None
            if added.kind is ActionKind.ADD_PRIMARY_KEY:
                key = added.key
        else:
            column = column_definition(tokens)
            if column is None or column.first or column.after:
                return None
            columns.append(column)
            if column.primary_key:
                key = (column.name,)
        if tokens.take(")"):
            break
        if not tokens.take(","):
            return None
    charset = _table_charset(tokens)
    if charset is None or modes.unknown_bits:
        return None
    columns = [column.in_charset(charset.name, is_mariadb=is_mariadb) for column in columns]
    by_folded_name = {column.name.lower(): column.name for column in columns}
    is_ambiguous = len(by_folded_name) < len(columns)
    if not columns or is_ambiguous or any(name.lower() not in by_folded_name for name in key):
        return None
    primary_key = tuple(by_folded_name[name.lower()] for name in key)
    omits_options = modes.omits_options and sql.startswith("\n  ", opens.end)
    return CreatedTable(tuple(columns), primary_key, charset, omits_options)


def _table_charset(tokens: TokenReader) -> NamedCharset | None:
    """Return what the table's options name; None if one of them cannot be read, or adds columns
    (system versioning)."""
    charset = NamedCharset()
    while not tokens.at_end() and not tokens.at("PARTITION", "BY"):
        tokens.take(",")
        if tokens.take("START", "TRANSACTION"):  # MySQL: rows of its SELECT follow
            continue
        option = take_option(tokens)
        if option is None:
            return None
        charset = charset.then(option.charset or NamedCharset())
    return charset
