"""Columns and primary key of a plain CREATE TABLE.

Rules:
- All or nothing: if a column, key or option is uncertain from the text, so is the table, and the
  target waits for its first table map.

Source: MySQL 9.7 manual, 15.1.24 (CREATE TABLE); MariaDB 10.11, CREATE TABLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.ddl.alter import ActionKind, UniqueKey, added_key, at_key_part
from cdc_pipeline.schema.ddl.columns import ColumnDefinition, column_definition
from cdc_pipeline.schema.ddl.options import NamedCharset, table_comment, take_option
from cdc_pipeline.schema.ddl.tokens import TokenReader, certain

# What every engine's index holds of a key: InnoDB's with the old row formats.
_INDEX_BYTES_MIN: Final = 767
_CHARACTER_BYTES_MAX: Final = 4
_UNBOUNDED: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """Columns and key of a plain CREATE TABLE.

    Attributes:
        primary_key: names as they are written in the columns' own definitions.
        charset: the table's own default charset.
        row_end: the column that it declares as the end of the period.
        hash_keys: how many UNIQUE keys MariaDB may keep by a hash.
        comment: the table's own.
        omits_options: the server wrote the text in a mode in which it leaves the table's charset
            out, so that not even the database's is certain where none is named.
    """

    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    charset: NamedCharset
    omits_options: bool
    is_versioned: bool = False
    row_end: str = ""
    hash_keys: int = 0
    comment: str = ""


def created_table(tokens: TokenReader) -> CreatedTable:
    """The reader is after the table's name. Raises Uncertain."""
    modes, is_mariadb = tokens.modes, tokens.is_mariadb
    certain(tokens.at("("))
    opens = tokens.next()
    columns: list[ColumnDefinition] = []
    key: tuple[str, ...] = ()
    unique: list[UniqueKey] = []
    while True:
        if at_key_part(tokens):
            added = added_key(tokens)
            if added.kind is ActionKind.ADD_PRIMARY_KEY:
                key = added.key
            elif added.unique is not None:
                unique.append(added.unique)
        else:
            column = column_definition(tokens)
            certain(not column.first and not column.after)
            columns.append(column)
            if column.primary_key:
                key = (column.name,)
        if tokens.take(")"):
            break
        certain(tokens.take(","))
    charset, is_versioned, comment = _table_options(tokens)
    certain(not modes.unknown_bits)
    columns = [column.in_charset(charset.name, is_mariadb=is_mariadb) for column in columns]
    by_folded_name = {column.name.lower(): column.name for column in columns}
    is_ambiguous = len(by_folded_name) < len(columns)
    certain(bool(columns) and not is_ambiguous)
    certain(all(name.lower() in by_folded_name for name in key))
    row_end = next((column.name for column in columns if column.period == "END"), "")
    # The server appends the end of the period to every key itself.
    own_key = [name.lower() for name in key if name.lower() != row_end.lower()]
    return CreatedTable(
        tuple(columns),
        tuple(by_folded_name[name] for name in own_key),
        charset,
        modes.omits_options and tokens.sql.startswith("\n  ", opens.end),
        is_versioned or any(column.versioned for column in columns),
        row_end,
        hash_key_count(
            {column.name: column.column for column in columns},
            own=[column.name for column in columns if column.unique],
            keys=unique,
        )
        if is_mariadb
        else 0,
        comment,
    )


def hash_key_count(
    columns: Mapping[str, Column], *, own: Iterable[str], keys: Iterable[UniqueKey]
) -> int:
    """How many UNIQUE keys MariaDB may keep by a hash: USING HASH, or over more bytes than some
    engine's index holds. `own` are columns that are a key by themselves.
    """
    bytes_max = {name.lower(): _bytes_max(column) for name, column in columns.items()}
    sizes = [bytes_max[name.lower()] for name in own]
    for key in keys:
        size = sum(
            _CHARACTER_BYTES_MAX * chars or bytes_max.get(name.lower(), 0)
            for name, chars in key.parts
        )
        sizes.append(_UNBOUNDED if key.is_hash else size)
    return sum(size > _INDEX_BYTES_MIN for size in sizes)


def _bytes_max(column: Column) -> int:
    if column.kind not in (Kind.TEXT, Kind.BINARY):
        return 0
    length = column.char_length_max or column.pad_bytes
    return length * _CHARACTER_BYTES_MAX if length else _UNBOUNDED


def _table_options(tokens: TokenReader) -> tuple[NamedCharset, bool, str]:
    """The charset that they name, whether they give system versioning, and the comment."""
    charset, is_versioned, texts = NamedCharset(), False, {"COMMENT": "", "ENGINE": ""}
    while not tokens.at_end() and not tokens.at("PARTITION", "BY"):
        tokens.take(",")
        if tokens.take("START", "TRANSACTION"):  # MySQL: rows of its SELECT follow
            continue
        if tokens.take("WITH", "SYSTEM", "VERSIONING"):
            is_versioned = True
            continue
        option = certain(take_option(tokens))
        charset = charset.then(option.charset or NamedCharset())
        texts["ENGINE" if option.name == "TYPE" else option.name] = option.value
    return charset, is_versioned, table_comment(texts["COMMENT"], texts["ENGINE"])
