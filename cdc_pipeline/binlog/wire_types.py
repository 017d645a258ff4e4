"""The type codes of a table map, and how wide the values and the metadata of each are.

Rules:
- A new code is a row of `WIRE_TYPES`; what a column of it means is a row of `column_types.TYPES`.
- Only what the code alone decides stands here. `tables/columns_wire.py` computes a column's width
  from it.

Source: MySQL `field_types.h` (codes), `Field::pack` and `Field::save_field_metadata`; MariaDB's
codes above 127.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final


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


class Width(Enum):
    """What decides how many bytes a value takes."""

    FIXED = "the code"
    FRACTION = "the fraction digits"
    DECIMAL = "precision and scale"
    BITS = "the count of bits"
    METADATA = "the metadata, which is the width"
    BY_LENGTH = "1 or 2 length bytes, by the maximal length"
    BY_METADATA = "as many length bytes as the metadata says"


@dataclass(frozen=True, slots=True)
class WireSpec:
    """One type code.

    Attributes:
        width: what decides how many bytes a value takes.
        width_bytes: of FIXED, the bytes; of FRACTION, the bytes in front of the fraction.
        metadata_bytes: bytes that a table map has for the code.
        old_fraction_bytes: of MariaDB's old temporal format, the bytes with 1 to 6 fraction digits;
            a table map does not tell the digits.
        has_sign_bit: SIGNEDNESS lists the column: YEAR too, on both flavors, although it has no
            sign.
        is_text: bytes or text, as the column's collation says.
        charset_listed_by: the flavors whose lists of charsets name the column.
        is_compressed: MariaDB's COMPRESSED.
        is_big_endian: the highest byte stands first.
    """

    width: Width
    width_bytes: int = 0
    metadata_bytes: int = 0
    old_fraction_bytes: tuple[int, ...] = ()
    has_sign_bit: bool = False
    is_text: bool = False
    charset_listed_by: frozenset[str] = frozenset()
    is_compressed: bool = False
    is_big_endian: bool = False


_W = WireType
_BOTH: Final = frozenset({"mysql", "mariadb"})


def _number(width_bytes: int, *, metadata_bytes: int = 0) -> WireSpec:
    return WireSpec(Width.FIXED, width_bytes, metadata_bytes, has_sign_bit=True)


def _text(width: Width, metadata_bytes: int, *, is_compressed: bool = False) -> WireSpec:
    return WireSpec(
        width,
        metadata_bytes=metadata_bytes,
        is_text=True,
        charset_listed_by=_BOTH,
        is_compressed=is_compressed,
    )


WIRE_TYPES: Final[dict[int, WireSpec]] = {
    _W.TINY: _number(1),
    _W.SHORT: _number(2),
    _W.LONG: _number(4),
    _W.FLOAT: _number(4, metadata_bytes=1),
    _W.DOUBLE: _number(8, metadata_bytes=1),
    # Widths of the old temporal format: verified on MariaDB 10.11.
    _W.TIMESTAMP: WireSpec(Width.FIXED, 4, old_fraction_bytes=(5, 5, 6, 6, 7, 7)),
    _W.LONGLONG: _number(8),
    _W.INT24: _number(3),
    _W.DATE: WireSpec(Width.FIXED, 3),
    _W.TIME: WireSpec(Width.FIXED, 3, old_fraction_bytes=(4, 4, 5, 5, 5, 6)),
    _W.DATETIME: WireSpec(Width.FIXED, 8, old_fraction_bytes=(6, 6, 7, 7, 7, 8)),
    _W.YEAR: _number(1),
    _W.NEWDATE: WireSpec(Width.FIXED, 3),
    _W.VARCHAR: _text(Width.BY_LENGTH, 2),
    _W.BIT: WireSpec(Width.BITS, metadata_bytes=2, is_big_endian=True),
    _W.TIMESTAMP2: WireSpec(Width.FRACTION, 4, 1, is_big_endian=True),
    _W.DATETIME2: WireSpec(Width.FRACTION, 5, 1, is_big_endian=True),
    _W.TIME2: WireSpec(Width.FRACTION, 3, 1, is_big_endian=True),
    _W.BLOB_COMPRESSED: _text(Width.BY_METADATA, 1, is_compressed=True),
    _W.VARCHAR_COMPRESSED: _text(Width.BY_LENGTH, 2, is_compressed=True),
    # MySQL lists VECTOR among the texts and MariaDB GEOMETRY, both with charset binary.
    _W.VECTOR: WireSpec(
        Width.BY_METADATA, metadata_bytes=1, charset_listed_by=frozenset({"mysql"})
    ),
    _W.JSON: WireSpec(Width.BY_METADATA, metadata_bytes=1),
    _W.NEWDECIMAL: WireSpec(Width.DECIMAL, metadata_bytes=2, has_sign_bit=True),
    _W.ENUM: WireSpec(Width.METADATA, metadata_bytes=2),
    _W.SET: WireSpec(Width.METADATA, metadata_bytes=2),
    _W.TINY_BLOB: _text(Width.BY_METADATA, 1),
    _W.MEDIUM_BLOB: _text(Width.BY_METADATA, 1),
    _W.LONG_BLOB: _text(Width.BY_METADATA, 1),
    _W.BLOB: _text(Width.BY_METADATA, 1),
    _W.VAR_STRING: _text(Width.BY_LENGTH, 2),
    _W.STRING: _text(Width.BY_LENGTH, 2),
    _W.GEOMETRY: WireSpec(
        Width.BY_METADATA, metadata_bytes=1, charset_listed_by=frozenset({"mariadb"})
    ),
}

OLD_TEMPORAL: Final = frozenset(
    code for code, wire in WIRE_TYPES.items() if wire.old_fraction_bytes
)
COMPRESSED: Final = frozenset(code for code, wire in WIRE_TYPES.items() if wire.is_compressed)


def type_name(wire_type: int) -> str:
    try:
        return f"{WireType(wire_type).name} ({wire_type})"
    except ValueError:
        return f"type {wire_type}"
