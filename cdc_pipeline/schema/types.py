"""From a source column to its Delta column: the one conversion table (docs/types.md) on the Delta side.

Rules:
- `delta_type` depends on nothing but the column, whether a table map or a DDL text told it: K13 compares both.
- Every Delta column is nullable; a type is Spark DDL text in lower case without blanks: ``decimal(10,2)``.
- Names go to Delta as they are. One that Delta cannot hold, or that collides with another, stops its table by name:
  a renamed column would be a silent second truth.
- The Arrow side of the same table is `cdc_pipeline.binlog.arrow_types`; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ConfigDict

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import KeylessTableError, SchemaError
from cdc_pipeline.text.table_names import split_table_name

CDC_PREFIX: Final = "_cdc_"
DECIMAL_PRECISION_MAX: Final = 38
GEOMETRY_TYPE: Final = "struct<srid:int,wkb:binary>"

# Delta's own check of names, in force as long as column mapping is off (delta-spark 4.4).
_NAME_CHARACTERS_REFUSED: Final = frozenset(" ,;{}()\n\t=")
_EXCLUDE: Final = "rename the column at the source, or add the table to tables.exclude"

_FIXED: Final[dict[Kind, str]] = {
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.YEAR: "smallint",
    Kind.DATE: "date",
    Kind.DATETIME: "timestamp_ntz",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIME: "string",
    Kind.BINARY: "binary",
    Kind.ENUM: "string",
    Kind.SET: "string",
    Kind.JSON: "string",
    Kind.GEOMETRY: GEOMETRY_TYPE,
    Kind.VECTOR: "array<float>",
    Kind.UUID: "string",
    Kind.INET4: "string",
    Kind.INET6: "string",
}
_SIGNED: Final[dict[Kind, str]] = {
    Kind.INT8: "tinyint",
    Kind.INT16: "smallint",
    Kind.INT24: "int",
    Kind.INT32: "int",
    Kind.INT64: "bigint",
}
_UNSIGNED: Final[dict[Kind, str]] = {
    Kind.INT8: "smallint",
    Kind.INT16: "int",
    Kind.INT24: "int",
    Kind.INT32: "bigint",
    Kind.INT64: "decimal(20,0)",
}


class TargetColumn(BaseModel):
    """One column of a target as it is recorded: Delta type as DDL text, such as ``decimal(10,2)``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    delta_type: str


def delta_type(column: Column) -> str:
    """Delta (Spark DDL) type of a source column, in lower case: ``int``, ``decimal(20,0)``, ``array<float>``.

    Raises:
        SchemaError: a column whose size lies outside of what MySQL and MariaDB have (a damaged table map).
    """
    kind = column.kind
    if kind in _SIGNED:
        return (_UNSIGNED if column.unsigned else _SIGNED)[kind]
    if kind is Kind.TEXT:
        return "binary" if column.charset == "binary" else "string"
    if kind is Kind.DECIMAL:
        if not (1 <= column.precision <= 65 and 0 <= column.scale <= column.precision):
            raise SchemaError(
                f"column `{column.name}` has an impossible precision",
                expected="decimal(1..65, 0..precision)",
                got=f"decimal({column.precision},{column.scale})",
                next_step="check the journal for damage with `cdc-pipeline binlog JOURNAL`",
            )
        if column.precision > DECIMAL_PRECISION_MAX:
            return "string"
        return f"decimal({column.precision},{column.scale})"
    if kind is Kind.BIT:
        if not 1 <= column.bits <= 64:
            raise SchemaError(
                f"column `{column.name}` has an impossible width",
                expected="bit(1) to bit(64)",
                got=f"bit({column.bits})",
                next_step="check the journal for damage with `cdc-pipeline binlog JOURNAL`",
            )
        if column.bits == 1:
            return "boolean"
        return "bigint" if column.bits < 64 else "decimal(20,0)"
    return _FIXED[kind]


def target_columns(schema: TableSchema) -> tuple[TargetColumn, ...]:
    """The target's source columns (without ``_cdc_`` columns), in the order of the row image.

    Raises:
        SchemaError: a column name that Delta cannot hold as it is (see `check_column_names`).
    """
    check_column_names(schema.full_name, schema.column_names)
    return tuple(TargetColumn(name=column.name, delta_type=delta_type(column)) for column in schema.columns)


def keyless(table: str) -> KeylessTableError:
    """The error for a captured table without a primary key."""
    return KeylessTableError(
        "a mirror needs a primary key to find the rows that change",
        table=table,
        expected="a primary key in the table map",
        got="none",
        next_step=f"add a primary key (ALTER TABLE {quoted_table(table)} ADD PRIMARY KEY ...), then start after that "
        "statement; or add the table to tables.exclude",
    )


def check_column_names(table: str, names: Iterable[str]) -> None:
    """Stop a table whose column names Delta cannot hold unchanged.

    Raises:
        SchemaError: an empty name; one that starts with ``_cdc_``; two that differ in case only; one with a character
            that Delta refuses.
    """
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        if not name:
            raise SchemaError("a column has an empty name", table=table, next_step=_EXCLUDE)
        if folded.startswith(CDC_PREFIX):
            raise SchemaError(
                f"column `{name}`: names that start with {CDC_PREFIX} belong to the pipeline",
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
                f"columns `{seen[folded]}` and `{name}` differ in case only, which is one name to Delta",
                table=table,
                next_step=_EXCLUDE,
            )
        seen[folded] = name


def quoted_table(full_name: str) -> str:
    """The name of a table, or of a schema alone, quoted for SQL (see `table_names`)."""
    return ".".join(quoted_name(part) for part in split_table_name(full_name) if part)


def quoted_name(name: str) -> str:
    """One name, quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"
