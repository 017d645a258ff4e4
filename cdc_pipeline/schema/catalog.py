"""A server's catalog as table schemas: columns, keys and default charsets from information_schema.

Rules:
- Plain rows in, plain values out; the source reads them.
- A table with a column of unknown type is left out: only its table maps can describe it.
- What the server adds to a table's columns has marks of its own: the table's type, the expressions
  of period columns, the type of an index.

Source: MySQL 9.7 manual, 28.3 (COLUMNS, STATISTICS, TABLES, SCHEMATA); MariaDB 10.11 marks its old
temporal format with a comment behind COLUMN_TYPE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.tables.server_columns import with_server_columns
from cdc_pipeline.schema.ddl.options import server_charset, table_comment
from cdc_pipeline.schema.ddl.tokens import SqlModes, TokenReader, Uncertain
from cdc_pipeline.schema.ddl.types import are_known, in_charset, read_type
from cdc_pipeline.schema.generated import GeneratedColumn, generated_column
from cdc_pipeline.schema.source_table import Comments, comments_of

SYSTEM_VERSIONED: Final = "SYSTEM VERSIONED"
TABLE_TYPES: Final = ("BASE TABLE", SYSTEM_VERSIONED)  # of what has rows of its own
_MODES: Final = SqlModes(ansi_quotes=False)
_COMMENT_AT_END: Final = re.compile(r"\s*/\*[^']*\*/\s*$")


@dataclass(frozen=True, slots=True)
class Catalog:
    """By (database, table): schema and default charset, generated columns, and comments."""

    tables: dict[tuple[str, str], tuple[TableSchema, str]] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)
    generated: dict[tuple[str, str], tuple[GeneratedColumn, ...]] = field(default_factory=dict)
    comments: dict[tuple[str, str], Comments] = field(default_factory=dict)


def catalog(
    *,
    columns: Iterable[Mapping[str, Any]],
    keys: Iterable[Mapping[str, Any]],
    tables: Iterable[Mapping[str, Any]],
    databases: Mapping[str, str],
    is_mariadb: bool,
) -> Catalog:
    """From rows with names in lower case.

    Args:
        columns: of information_schema.COLUMNS, by table in the order of ORDINAL_POSITION.
        keys: of information_schema.STATISTICS, of unique keys, in the order of SEQ_IN_INDEX.
        databases: default charset of each database.
    """
    columns_by_table: dict[tuple[str, str], list[Column | None]] = {}
    texts: dict[tuple[str, str], dict[str, str]] = {}
    computed: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in columns:
        table = str(row["table_schema"]), str(row["table_name"])
        columns_by_table.setdefault(table, []).append(column_of(row, is_mariadb=is_mariadb))
        texts.setdefault(table, {})[str(row["column_name"])] = _text(row, "column_comment")
        if _is_generated(row):
            computed.setdefault(table, []).append(row)
    keyed, hashed = _keys(keys)
    found_tables, generated, comments = {}, {}, {}
    for facts in tables:
        table = str(facts["table_schema"]), str(facts["table_name"])
        listed = columns_by_table.get(table, [])
        known = [column for column in listed if column is not None]
        names = [column.name for column in known]
        key = keyed.get(table, [])
        if not known or len(known) < len(listed) or any(name not in names for name in key):
            continue
        schema = with_server_columns(
            TableSchema(*table, tuple(known), tuple(names.index(name) for name in key)),
            is_versioned=str(facts["table_type"]).upper() == SYSTEM_VERSIONED,
            row_end=next(
                (row for row in computed.get(table, ()) if _period(row) == "ROW END"), {}
            ).get("column_name", ""),
            # an index of these engines is a hash itself
            hash_keys=0
            if str(facts["engine"]).upper() in ("MEMORY", "HEAP")
            else len(hashed.get(table, ())),
        )
        charset = str(facts["collation"] or "").split("_", 1)[0]
        found_tables[table] = schema, server_charset(charset)
        text = table_comment(_text(facts, "table_comment"), str(facts["engine"]))
        comments[table] = comments_of({**texts[table], "": text})
        generated[table] = tuple(
            _generated(row, known) for row in computed.get(table, ()) if not _period(row)
        )
    return Catalog(
        found_tables,
        {name: server_charset(charset) for name, charset in databases.items()},
        generated,
        comments,
    )


def _keys(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[dict[tuple[str, str], list[str]], dict[tuple[str, str], set[str]]]:
    """By table: columns of the primary key, and names of unique keys that are hashes."""
    keyed: dict[tuple[str, str], list[str]] = {}
    hashed: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        table = str(row["table_schema"]), str(row["table_name"])
        if str(row["index_name"]) == "PRIMARY":
            keyed.setdefault(table, []).append(str(row["column_name"]))
        elif str(row["index_type"]).upper() == "HASH":
            hashed.setdefault(table, set()).add(str(row["index_name"]))
    return keyed, hashed


def _text(row: Mapping[str, Any], name: str) -> str:
    """Of a comment; "" if it is no text."""
    text = row.get(name)
    return text if isinstance(text, str) else ""


def _period(row: Mapping[str, Any]) -> str:
    """``ROW START`` or ``ROW END`` of a period column of system versioning; else ""."""
    expression = str(row["expression"] or "").upper()
    return expression if expression in ("ROW START", "ROW END") else ""


def _is_generated(row: Mapping[str, Any]) -> bool:
    """MySQL's ``DEFAULT_GENERATED`` is only a default."""
    return "GENERATED" in str(row["extra"] or "").upper().replace(",", " ").split()


def _generated(row: Mapping[str, Any], columns: list[Column]) -> GeneratedColumn:
    return generated_column(
        str(row["column_name"]),
        str(row["expression"] or ""),
        columns,
        is_stored="VIRTUAL" not in str(row["extra"]).upper(),
    )


def column_of(row: Mapping[str, Any], *, is_mariadb: bool) -> Column | None:
    """Of information_schema.COLUMNS; None if its type is unknown, or a label is no text."""
    tokens = TokenReader(
        _COMMENT_AT_END.sub("", str(row["column_type"])), modes=_MODES, is_mariadb=is_mariadb
    )
    try:
        declared = read_type(tokens)
    except Uncertain:
        return None
    if not tokens.at_end():
        return None
    charset = server_charset(str(row["character_set_name"] or "binary"))
    column = in_charset(
        replace(declared.column, charset=""),
        charset,
        is_char=declared.is_char,
        is_mariadb=is_mariadb,
    )
    if not are_known(column.labels):
        return None
    return replace(
        column,
        name=str(row["column_name"]),
        nullable=str(row["is_nullable"]).upper() == "YES",
        visible="INVISIBLE" not in str(row["extra"] or "").upper().split(),
    )
