"""From a source column to its Delta column, and the names that Delta can hold.

Rules:
- `delta_type` depends only on the column, whether it comes from a table map or a DDL text: K13
  compares both.
- Every Delta column is nullable; a type is Spark DDL text in lower case without blanks:
  ``decimal(10,2)``.
- Names go to Delta as they are. One that Delta cannot hold, or that collides with another, stops
  its table by name: a renamed column would be a silent second truth.
- The column's row of `binlog.column_types.TYPES` determines the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import KeylessTableError, SchemaError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.text.table_names import split_table_name

CDC_PREFIX: Final = "_cdc_"

# Delta's own check of names, in force as long as column mapping is off (delta-spark 4.4).
_NAME_CHARACTERS_REFUSED: Final = frozenset(" ,;{}()\n\t=")
_EXCLUDE: Final = "rename the column at the source, or add the table to tables.exclude"


class TargetColumn(FrozenModel):
    name: str
    delta_type: str


def delta_type(column: Column) -> str:
    """In lower case: ``int``, ``array<float>``. Raises SchemaError: a column's size is
    impossible in MySQL and MariaDB (a damaged table map).
    """
    return column.type.delta(column)


def target_columns(schema: TableSchema) -> tuple[TargetColumn, ...]:
    """Without ``_cdc_`` ones, in the row image's order. Raises as `check_column_names`."""
    check_column_names(schema.full_name, schema.column_names)
    return tuple(
        TargetColumn(name=column.name, delta_type=delta_type(column)) for column in schema.columns
    )


def keyless(table: str) -> KeylessTableError:
    return KeylessTableError(
        "a mirror needs a primary key to identify the rows that change",
        table=table,
        expected="a primary key in the table map",
        got="none",
        next_step=f"add a primary key (ALTER TABLE {quoted_table(table)} ADD PRIMARY KEY ...), "
        "then start after that statement; or add the table to tables.exclude",
    )


def check_column_names(table: str, names: Iterable[str]) -> None:
    """Raises SchemaError: an empty name; one that starts with ``_cdc_``; two that differ in case
    only; one with a character that Delta refuses.
    """
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        if not name:
            raise SchemaError("a column has an empty name", table=table, next_step=_EXCLUDE)
        if folded.startswith(CDC_PREFIX):
            raise SchemaError(
                f"column `{name}`: names that start with {CDC_PREFIX} are reserved "
                "for the pipeline",
                table=table,
                next_step=_EXCLUDE,
            )
        refused = sorted(set(name) & _NAME_CHARACTERS_REFUSED)
        if refused:
            raise SchemaError(
                f"column `{name}` has a name that Delta cannot hold",
                table=table,
                expected="a name without blanks, tabs, line ends and any of ,;{}()=",
                got=", ".join(repr(character) for character in refused),
                next_step=_EXCLUDE,
            )
        if folded in seen:
            raise SchemaError(
                f"columns `{seen[folded]}` and `{name}` differ only in case, so they are the "
                "same name in Delta",
                table=table,
                next_step=_EXCLUDE,
            )
        seen[folded] = name


def quoted_table(full_name: str) -> str:
    return ".".join(quoted_name(part) for part in split_table_name(full_name) if part)


def quoted_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
