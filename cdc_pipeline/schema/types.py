"""From a source column to its Delta column, and the names that Delta can hold.

Rules:
- `delta_type` depends only on the column, whether it comes from a table map or a DDL text: K13
  compares both.
- Every Delta column is nullable; a type is Spark DDL text in lower case without blanks:
  ``decimal(10,2)``.
- Names go to Delta as they are. One that Delta cannot hold, or that collides with another, stops
  its table by name: a renamed column would be a silent second truth.
- The column's row of `binlog.column_types.TYPES` determines the type.

Source: Delta 4.4, type widening.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from cdc_pipeline.binlog.column_types import DECIMAL_DIGITS_MAX
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import KeylessTableError, SchemaError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.text.table_names import quoted_table

CDC_PREFIX: Final = "_cdc_"

# Delta's own check of names, in force as long as column mapping is off (delta-spark 4.4).
_NAME_CHARACTERS_REFUSED: Final = frozenset(" ,;{}()\n\t=")
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")  # from narrow to wide
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
# What Delta requires of a decimal that an integer column is widened to.
_DIGITS_TO_WIDEN: Final = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
# Largest range of whole numbers that a float type holds without a loss.
_EXACT_DIGITS: Final = {"float": 7, "double": 15}
_OTHERS: Final = {
    ("float", "double"),
    ("date", "timestamp_ntz"),
    ("string", "binary"),
    *(
        (kind, "string")
        for kind in ("float", "double", "date", "timestamp_ntz", "timestamp", "boolean")
    ),
    *(("boolean", kind) for kind in INTEGERS),
}
_EXCLUDE: Final = "rename the column at the source, or add the table to tables.exclude"


class TargetColumn(FrozenModel):
    name: str
    delta_type: str


def delta_type(column: Column) -> str:
    """In lower case: ``int``, ``array<float>``. Raises SchemaError: a column's size is
    impossible in MySQL and MariaDB (a damaged table map).
    """
    return column.type.delta(column)


def features_of_type(delta_type: str) -> tuple[str, ...]:
    """Of Delta, that it needs of readers."""
    text = delta_type.lower()
    features = {"timestampNtz": "timestamp_ntz", "variantType": "variant"}
    return tuple(feature for feature, part in features.items() if part in text)


def whole_range(column: Column) -> tuple[int, int] | None:
    """The smallest and largest value of an integer or BIT column; None of other types."""
    if column.type.change != "whole":
        return None
    bits = column.type.integer_bits or column.bits
    if column.unsigned or not column.type.has_sign:
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


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


# -- Delta's types ---------------------------------------------------------------------------------


def common_type(target: str, new: str) -> str | None:
    """To which `target` can be widened for `new` too; itself if it holds all its values."""
    pair = {target, new}
    if target == new:
        return target
    if pair <= set(INTEGERS):
        return max(target, new, key=INTEGERS.index)
    if "double" in pair and pair <= {"double", "float", "tinyint", "smallint", "int"}:
        return "double"
    if target == "date" and new == "timestamp_ntz":
        return "timestamp_ntz"
    had, wants = _digits(target, _DIGITS_TO_WIDEN), _digits(new, _DIGITS_TO_WIDEN)
    if had is None or wants is None:
        return None
    whole, scale = max(had[0], wants[0]), max(had[1], wants[1])
    if whole + scale > DECIMAL_DIGITS_MAX:
        return None
    return f"decimal({whole + scale},{scale})"


def is_lossless(before: str, after: str) -> bool:
    """Whether a Delta type has a distinct value for every value of another."""
    if before == after or (before, after) in _OTHERS:
        return True
    digits = _digits(before)
    if digits is None:
        return False
    whole, scale = digits
    if after == "string":
        return True
    wider = _digits(after)
    if wider is not None:
        if before in INTEGERS and after in INTEGERS:
            return INTEGERS.index(after) >= INTEGERS.index(before)
        # An integer type holds one digit less than its largest number has.
        room = wider[0] - (after in INTEGERS)
        return room >= whole and wider[1] >= scale
    return after in _EXACT_DIGITS and scale == 0 and whole <= _EXACT_DIGITS[after]


def decimal_scale(delta_type: str) -> int | None:
    """Digits after the point: 0 of integers; None of what is neither these nor DECIMAL."""
    digits = _digits(delta_type)
    return None if digits is None else digits[1]


def _digits(delta_type: str, of_integers: Mapping[str, int] = _DIGITS) -> tuple[int, int] | None:
    """Before and after the decimal point; None of other types."""
    if delta_type in of_integers:
        return of_integers[delta_type], 0
    match = _DECIMAL.fullmatch(delta_type)
    return (int(match[1]) - int(match[2]), int(match[2])) if match else None
