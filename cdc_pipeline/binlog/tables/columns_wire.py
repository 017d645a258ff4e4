"""The size of a column's value on the wire, by type code and metadata.

What the code alone decides is in `binlog/wire_types.py`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.numbers import DIGIT_BYTES, GROUP_DIGITS
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.wire_types import OLD_TEMPORAL, WIRE_TYPES, Width, type_name
from cdc_pipeline.errors import UnknownColumnTypeError


def is_big_endian(column: Column) -> bool:
    wire = WIRE_TYPES.get(column.wire_type)
    return wire is not None and (
        wire.is_big_endian or (bool(wire.old_fraction_bytes) and column.fraction_digits > 0)
    )


def fraction_bytes(digits: int) -> int:
    return (digits + 1) // 2


def decimal_bytes(precision: int, scale: int) -> int:
    whole = precision - scale
    groups = whole // GROUP_DIGITS + scale // GROUP_DIGITS
    return 4 * groups + int(DIGIT_BYTES[whole % GROUP_DIGITS] + DIGIT_BYTES[scale % GROUP_DIGITS])


def width_rule(column: Column) -> int:
    """n >= 0 for values of n bytes, or -n for n length bytes (little-endian) before the value.
    Raises UnknownColumnTypeError: the type is unknown, or the table map lacks its width.
    """
    wire, meta = WIRE_TYPES.get(column.wire_type), column.wire_meta
    digits = column.fraction_digits
    if column.wire_type in OLD_TEMPORAL and not 0 <= digits <= 6:
        raise _unknown(
            column,
            "a temporal column in MariaDB's old format, whose fraction digits are not "
            "in the table map",
            "SET GLOBAL mysql56_temporal_format = ON and rebuild the table (ALTER TABLE ... "
            "FORCE), or take the column's fraction digits from the catalog",
        )
    width = None if wire is None else wire.width
    if wire is not None and width is Width.FIXED:
        return (
            wire.old_fraction_bytes[digits - 1]
            if wire.old_fraction_bytes and digits
            else wire.width_bytes
        )
    if wire is not None and width is Width.FRACTION and 0 <= digits <= 6:
        return wire.width_bytes + fraction_bytes(digits)
    if (
        width is Width.DECIMAL
        and 0 < column.precision <= 65
        and 0 <= column.scale <= min(column.precision, 38)
    ):
        return decimal_bytes(column.precision, column.scale)
    if width is Width.BITS and 1 <= column.bits <= 64:
        return (column.bits + 7) // 8
    if width is Width.METADATA and 1 <= meta <= 8:
        return meta
    if width is Width.BY_LENGTH:
        return -1 if meta < 256 else -2
    if width is Width.BY_METADATA and 1 <= meta <= 4:
        return -meta
    raise _unknown(column, "of an unknown type", "exclude the table from the capture")


@lru_cache(maxsize=1024)
def width_rules(schema: TableSchema) -> NDArray[np.int32]:
    """Return the width rules of all columns, int32 (columns,); shared, so do not write to them.

    Raises UnknownColumnTypeError: see `width_rule`; it names the table.
    """
    rules = np.empty(len(schema.columns), np.int32)
    for index, column in enumerate(schema.columns):
        try:
            rules[index] = width_rule(column)
        except UnknownColumnTypeError as error:
            error.table = schema.full_name
            raise
    return rules


def _unknown(column: Column, what: str, next_step: str) -> UnknownColumnTypeError:
    return UnknownColumnTypeError(
        f"column {column.name!r} is {what}",
        expected="a type that this version knows",
        got=f"{type_name(column.wire_type)}, metadata {column.wire_meta}, fraction digits "
        f"{column.fraction_digits}",
        next_step=next_step,
    )
