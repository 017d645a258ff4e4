"""The size of a column's value on the wire, by type code and metadata.

Source: MySQL `field_types.h` (codes) and `Field::pack`; MariaDB's codes above 127.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.numbers import DIGIT_BYTES, GROUP_DIGITS
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import UnknownColumnTypeError


class WireType(IntEnum):
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_W = WireType

_FIXED: Final = {
    _W.TINY: 1, _W.SHORT: 2, _W.LONG: 4, _W.FLOAT: 4, _W.DOUBLE: 8, _W.TIMESTAMP: 4, _W.LONGLONG: 8, _W.INT24: 3,
    _W.DATE: 3, _W.TIME: 3, _W.DATETIME: 8, _W.YEAR: 1, _W.NEWDATE: 3,
}  # fmt: skip
_FRACTIONAL: Final = {_W.TIMESTAMP2: 4, _W.DATETIME2: 5, _W.TIME2: 3}
_LENGTH_BYTES_IN_META: Final = frozenset(
    {_W.VECTOR, _W.JSON, _W.TINY_BLOB, _W.MEDIUM_BLOB, _W.LONG_BLOB, _W.BLOB, _W.GEOMETRY, _W.BLOB_COMPRESSED}
)
DATE_BYTES: Final = _FIXED[_W.DATE]
OLD_TEMPORAL: Final = frozenset({_W.TIMESTAMP, _W.TIME, _W.DATETIME})
# MariaDB's old format with fraction digits 1 to 6 (verified on 10.11); the table map lacks the
# digits.
_OLD_FRACTIONAL: Final = {
    _W.TIMESTAMP: (5, 5, 6, 6, 7, 7), _W.DATETIME: (6, 6, 7, 7, 7, 8), _W.TIME: (4, 4, 5, 5, 5, 6),
}  # fmt: skip
COMPRESSED: Final = frozenset({_W.BLOB_COMPRESSED, _W.VARCHAR_COMPRESSED})
_BIG_ENDIAN: Final = frozenset({_W.BIT, _W.TIMESTAMP2, _W.DATETIME2, _W.TIME2})


def type_name(wire_type: int) -> str:
    """Return the name of a type code for people."""
    try:
        return f"{WireType(wire_type).name} ({wire_type})"
    except ValueError:
        return f"type {wire_type}"


def is_big_endian(column: Column) -> bool:
    """Return whether the column's numbers are big-endian."""
    wire = column.wire_type
    return wire in _BIG_ENDIAN or (wire in OLD_TEMPORAL and column.fraction_digits > 0)


def fraction_bytes(digits: int) -> int:
    """Return the size of a fraction of 0 to 6 digits."""
    return (digits + 1) // 2


def decimal_bytes(precision: int, scale: int) -> int:
    """Return the size of a NEWDECIMAL."""
    whole = precision - scale
    groups = whole // GROUP_DIGITS + scale // GROUP_DIGITS
    return 4 * groups + int(DIGIT_BYTES[whole % GROUP_DIGITS] + DIGIT_BYTES[scale % GROUP_DIGITS])


def width_rule(column: Column) -> int:
    """Return n >= 0 for values of n bytes, or -n for n length bytes (little-endian) before the
    value.

    Raises:
        UnknownColumnTypeError: the type is unknown, or the table map lacks its width.
    """
    wire, meta = column.wire_type, column.wire_meta
    if wire in OLD_TEMPORAL and not 0 <= column.fraction_digits <= 6:
        raise _unknown(
            column,
            "a temporal column in MariaDB's old format, whose fraction digits are not in the table map",
            "SET GLOBAL mysql56_temporal_format = ON and rebuild the table (ALTER TABLE ... FORCE), or take the "
            "column's fraction digits from the catalog",
        )
    if wire in OLD_TEMPORAL and column.fraction_digits:
        return _OLD_FRACTIONAL[_W(wire)][column.fraction_digits - 1]
    if wire in _FIXED:
        return _FIXED[_W(wire)]
    if wire in _FRACTIONAL and 0 <= column.fraction_digits <= 6:
        return _FRACTIONAL[_W(wire)] + fraction_bytes(column.fraction_digits)
    if wire == _W.NEWDECIMAL and 0 < column.precision <= 65 and 0 <= column.scale <= min(column.precision, 38):
        return decimal_bytes(column.precision, column.scale)
    if wire == _W.BIT and 1 <= column.bits <= 64:
        return (column.bits + 7) // 8
    if wire in (_W.ENUM, _W.SET) and 1 <= meta <= 8:
        return meta
    if wire in (_W.VARCHAR, _W.VAR_STRING, _W.STRING, _W.VARCHAR_COMPRESSED):
        return -1 if meta < 256 else -2
    if wire in _LENGTH_BYTES_IN_META and 1 <= meta <= 4:
        return -meta
    raise _unknown(column, "of an unknown type", "exclude the table from the capture")


@lru_cache(maxsize=1024)
def width_rules(schema: TableSchema) -> NDArray[np.int32]:
    """Return the width rules of all columns, int32 (columns,); shared, so do not write to them.

    Raises:
        UnknownColumnTypeError: see `width_rule`; it names the table.
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
        expected="a type of docs/types.md",
        got=f"{type_name(column.wire_type)}, metadata {column.wire_meta}, fraction digits {column.fraction_digits}",
        next_step=next_step,
    )
