"""Parse the optional metadata of a table map: signs, charsets, names, labels, keys.

Rules:
- It is a sequence of (type, length, value) fields. Unknown types are skipped: all are optional, and
  none changes how rows are stored.
- Bits go from the highest to the lowest in each byte. Lists have one entry per column of the kind,
  in order.
- Impossible counts are refused before lists are built (K25: no input may exhaust memory).

Source: MySQL `Table_map_event::Optional_metadata_field_type`; MariaDB writes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SIGNEDNESS: Final = 1
DEFAULT_CHARSET: Final = 2
COLUMN_CHARSET: Final = 3
COLUMN_NAME: Final = 4
SET_LABELS: Final = 5
ENUM_LABELS: Final = 6
SIMPLE_PRIMARY_KEY: Final = 8
PRIMARY_KEY_WITH_PREFIX: Final = 9
LABEL_DEFAULT_CHARSET: Final = 10
LABEL_COLUMN_CHARSET: Final = 11
COLUMN_VISIBILITY: Final = 12
VECTOR_DIMENSIONALITY: Final = 13
_LABELS_MAX: Final = 65_535  # of an ENUM, on both servers


class Reader:
    """Reads bytes in order; every read checks its bounds.

    Raises (all methods): ValueError if the bytes end too early.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.data)

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise ValueError(f"{count} bytes at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """Read a length-encoded integer."""
        first = self.take(1)[0]
        if first < 0xFB:
            return first
        width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        if width is None:
            raise ValueError(f"length byte {first:#04x} at {self.at - 1}")
        return int.from_bytes(self.take(width), "little")

    def text(self) -> bytes:
        return self.take(self.number())


@dataclass(slots=True)
class TableMapMetadata:
    """The parsed fields; each list has one entry per column of its kind.

    Attributes:
        unsigned: of the numeric columns.
        charsets: collation ids of the text columns.
        label_charsets: collation ids of the ENUM and SET columns.
        names: of all columns; None if the server wrote none.
        set_labels, enum_labels: raw bytes of the labels of each SET, each ENUM column.
        primary_key: column indexes in key order.
        visible: of all columns.
        vector_dimensions: of the VECTOR columns.
    """

    unsigned: list[bool] | None = None
    charsets: list[int] | None = None
    label_charsets: list[int] | None = None
    names: list[bytes] | None = None
    set_labels: list[list[bytes]] = field(default_factory=list)
    enum_labels: list[list[bytes]] = field(default_factory=list)
    primary_key: list[int] = field(default_factory=list)
    visible: list[bool] | None = None
    vector_dimensions: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    all: int
    numeric: int
    text: int
    labelled: int


def parse(data: bytes, counts: ColumnCounts) -> TableMapMetadata:
    """Parse the fields of the optional metadata block. Raises ValueError: a field ends too early,
    or refers to a missing column.
    """
    metadata = TableMapMetadata()
    reader = Reader(data)
    while not reader.at_end:
        kind = reader.take(1)[0]
        value = Reader(reader.text())
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(metadata, value, counts)
    return metadata


def _bits(reader: Reader, count: int) -> list[bool]:
    raw = reader.take((count + 7) // 8)
    return [bool(raw[index // 8] >> (7 - index % 8) & 1) for index in range(count)]


def _numbers(reader: Reader, count_max: int) -> list[int]:
    numbers: list[int] = []
    while not reader.at_end:
        if len(numbers) == count_max:
            raise ValueError(f"more than {count_max} numbers")
        numbers.append(reader.number())
    return numbers


def _default_and_exceptions(reader: Reader, count: int) -> list[int]:
    charsets = [reader.number()] * count
    while not reader.at_end:
        index, collation = reader.number(), reader.number()
        if index >= count:
            raise ValueError(f"charset of text column {index} of {count}")
        charsets[index] = collation
    return charsets


def _each(reader: Reader, count: int) -> list[int]:
    return [reader.number() for _ in range(count)]


def _labels(reader: Reader, count: int) -> list[list[bytes]]:
    columns: list[list[bytes]] = []
    while not reader.at_end:
        labels = reader.number()
        if len(columns) == count or labels > _LABELS_MAX:
            raise ValueError(f"{labels} labels of column {len(columns) + 1} of {count}")
        columns.append([reader.text() for _ in range(labels)])
    return columns


def _signedness(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.unsigned = _bits(value, counts.numeric)


def _default_charset(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.charsets = _default_and_exceptions(value, counts.text)


def _column_charset(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.charsets = _each(value, counts.text)


def _label_default_charset(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.label_charsets = _default_and_exceptions(value, counts.labelled)


def _label_column_charset(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.label_charsets = _each(value, counts.labelled)


def _names(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.names = [value.text() for _ in range(counts.all)]


def _set_labels(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.set_labels = _labels(value, counts.labelled)


def _enum_labels(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.enum_labels = _labels(value, counts.labelled)


def _primary_key(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.primary_key = _key(_numbers(value, counts.all), counts)


def _primary_key_with_prefix(
    metadata: TableMapMetadata, value: Reader, counts: ColumnCounts
) -> None:
    # Whole values are unique if their prefixes are.
    metadata.primary_key = _key(_numbers(value, 2 * counts.all)[::2], counts)


def _key(indexes: list[int], counts: ColumnCounts) -> list[int]:
    if any(index >= counts.all for index in indexes):
        raise ValueError(f"key columns {indexes} of {counts.all}")
    return indexes


def _visibility(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.visible = _bits(value, counts.all)


def _vector(metadata: TableMapMetadata, value: Reader, counts: ColumnCounts) -> None:
    metadata.vector_dimensions = _numbers(value, counts.all)


_HANDLERS: Final[dict[int, Callable[[TableMapMetadata, Reader, ColumnCounts], None]]] = {
    SIGNEDNESS: _signedness,
    DEFAULT_CHARSET: _default_charset,
    COLUMN_CHARSET: _column_charset,
    COLUMN_NAME: _names,
    SET_LABELS: _set_labels,
    ENUM_LABELS: _enum_labels,
    SIMPLE_PRIMARY_KEY: _primary_key,
    PRIMARY_KEY_WITH_PREFIX: _primary_key_with_prefix,
    LABEL_DEFAULT_CHARSET: _label_default_charset,
    LABEL_COLUMN_CHARSET: _label_column_charset,
    COLUMN_VISIBILITY: _visibility,
    VECTOR_DIMENSIONALITY: _vector,
}
