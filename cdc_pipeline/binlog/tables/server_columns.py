"""Split the columns of a row image into the table's own and those that the server adds (K32).

Rules:
- Only MariaDB adds any, always behind the table's own columns, in this order: ``row_start`` and
  ``row_end`` of a table WITH SYSTEM VERSIONING that declares no period columns itself; then one
  ``DB_ROW_HASH_<n>`` for each UNIQUE key that it keeps by a hash. MySQL logs none of the columns
  behind functional indexes.
- It also appends the end of the period to every unique key. Among current rows, which are the rows
  that SELECT returns, a key is unique without it.
- The marks: type, place and name of a column in a table map with names; otherwise what the catalog
  or a statement says (`with_server_columns`). A column that the table is known to have is its own,
  whatever its name.
- Declared period columns are the table's own; only their meaning is the server's.

Source: tests/servers, tables of both servers in every row metadata mode; MariaDB manual,
"System-Versioned Tables".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import MetadataMissingError

_ROW_START: Final = "row_start"
_ROW_END: Final = "row_end"
_FRACTION_DIGITS: Final = 6
_HASH: Final = re.compile(r"DB_ROW_HASH_\d+")
_NO_WIRE: Final = 0
_PERIOD: Final = tuple(
    Column(
        name, Kind.TIMESTAMP, _NO_WIRE, 0, nullable=False, fraction_digits=_FRACTION_DIGITS,
        visible=False,
    )
    for name in (_ROW_START, _ROW_END)
)  # fmt: skip


def with_server_columns(
    schema: TableSchema, *, is_versioned: bool = False, row_end: str = "", hash_keys: int = 0
) -> TableSchema:
    """Return a table with what its server adds to its own columns.

    Args:
        is_versioned: whether it has system versioning.
        row_end: its own column that ends the period; "" if it declares none.
        hash_keys: how many UNIQUE keys the server keeps, or may keep, by a hash.
    """
    hidden = list(_PERIOD) if is_versioned and not row_end else []
    taken = {column.name.lower() for column in schema.columns}
    number = 0
    for _ in range(hash_keys):
        number += 1
        while f"db_row_hash_{number}" in taken:
            number += 1
        hidden.append(
            Column(
                f"DB_ROW_HASH_{number}", Kind.INT64, _NO_WIRE, 0, nullable=True, unsigned=True,
                visible=False,
            )
        )  # fmt: skip
    end = row_end if not is_versioned else row_end or _ROW_END
    return replace(
        schema,
        primary_key=own_key(schema.columns, schema.primary_key, end),
        hidden=tuple(hidden),
        row_end=end,
    )


def hash_key_count(schema: TableSchema) -> int:
    return sum(_HASH.fullmatch(column.name) is not None for column in schema.hidden)


def is_implicitly_versioned(schema: TableSchema) -> bool:
    return any(column.name == _ROW_END for column in schema.hidden)


def own_key(columns: Sequence[Column], key: Iterable[int], row_end: str) -> tuple[int, ...]:
    """A unique key without the end of the period: indexes into `columns`, the own ones."""
    return tuple(
        index
        for index in key
        if index < len(columns) and columns[index].name.lower() != row_end.lower()
    )


def logged_columns(known: TableSchema, count: int) -> tuple[Column, ...] | None:
    """Return the known columns of a row image with `count` of them; None if it cannot have so many.

    Fewer UNIQUE keys may be kept by a hash than a statement's text allows.
    """
    columns = (*known.columns, *known.hidden)
    least = len(columns) - hash_key_count(known)
    return columns[:count] if least <= count <= len(columns) else None


def may_add(columns: Sequence[Column]) -> bool:
    """Whether a table map of MariaDB with names needs to be compared with what is known."""
    if not columns:
        return False
    ends = sum(map(_may_end_period, columns))
    return _may_be_hash(columns[-1]) or ends >= len(_PERIOD)


def split(
    database: str,
    table: str,
    columns: Sequence[Column],
    key: Sequence[int],
    *,
    known: TableSchema | None,
    has_names: bool,
) -> TableSchema:
    """A table of MariaDB from all columns of its row images. Raises MetadataMissingError: nothing
    says whether the last columns are the server's.

    Args:
        columns: named by the table map, or (not `has_names`) by `logged_columns`.
        key: indexes into `columns`.
        known: the table as statements or the catalog describe it at this place.
    """
    own_names = () if known is None else tuple(name.lower() for name in known.column_names)
    count = len(columns)
    if not has_names and known is not None:
        own, row_end = len(known.columns), known.row_end
        hidden = columns[own:]
    else:
        own = count
        while own > 1 and _may_be_hash(columns[own - 1], own_names):
            own -= 1
        period = columns[max(0, own - len(_PERIOD)) : own]
        row_end = ""
        if _is_period(period, own_names) and _has_added_period(
            own - 1, key, is_known=known is not None
        ):
            own -= len(_PERIOD)
            row_end = _ROW_END
        elif known is not None and known.row_end.lower() in {
            column.name.lower() for column in columns[:own] if _may_end_period(column)
        }:
            row_end = known.row_end
        # A map in the old temporal format lacks the digits.
        hidden = [
            replace(column, fraction_digits=_FRACTION_DIGITS, visible=False)
            if column.kind is Kind.TIMESTAMP
            else replace(column, visible=False)
            for column in columns[own:]
        ]
    return TableSchema(
        database,
        table,
        tuple(columns[:own]),
        own_key(columns[:own], key, row_end),
        tuple(hidden),
        row_end,
    )


def _may_be_hash(column: Column, own_names: Collection[str] = ()) -> bool:
    return (
        column.kind is Kind.INT64
        and column.unsigned
        and _HASH.fullmatch(column.name) is not None
        and column.name.lower() not in own_names
    )


def _may_end_period(column: Column) -> bool:
    return (
        column.kind is Kind.TIMESTAMP
        and not column.nullable
        and column.fraction_digits in (_FRACTION_DIGITS, -1)
    )


def _is_period(columns: Sequence[Column], own_names: Collection[str]) -> bool:
    return [column.name for column in columns] == [_ROW_START, _ROW_END] and all(
        _may_end_period(column) and column.name not in own_names for column in columns
    )


def _has_added_period(row_end: int, key: Sequence[int], *, is_known: bool) -> bool:
    """Whether the last columns, which look like it, are the server's period columns."""
    if is_known or key:  # the server appends the end of the period to every key, a user hardly does
        return is_known or row_end in key
    raise MetadataMissingError(
        f"nothing says whether the columns `{_ROW_START}` and `{_ROW_END}` are the table's own or "
        "those of system versioning",
        expected="a CREATE TABLE in the log, a catalog, or a key of the table",
        next_step="start where the log has the table's CREATE TABLE, read from the server itself, "
        "or add the table to tables.exclude",
    )
