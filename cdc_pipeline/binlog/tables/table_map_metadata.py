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
from functools import partial
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
        field_type = reader.take(1)[0]
        value = Reader(reader.text())
        if field_type in _FIELDS:
            attribute, read, listed = _FIELDS[field_type]
            setattr(metadata, attribute, read(value, getattr(counts, listed)))
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


def _texts(reader: Reader, count: int) -> list[bytes]:
    return [reader.text() for _ in range(count)]


def _labels(reader: Reader, count: int) -> list[list[bytes]]:
    columns: list[list[bytes]] = []
    while not reader.at_end:
        labels = reader.number()
        if len(columns) == count or labels > _LABELS_MAX:
            raise ValueError(f"{labels} labels of column {len(columns) + 1} of {count}")
        columns.append(_texts(reader, labels))
    return columns


def _key(reader: Reader, count: int, *, step: int = 1) -> list[int]:
    """The columns of a key. With `step` 2 each is followed by the length of its prefix: whole
    values are unique if their prefixes are."""
    indexes = _numbers(reader, step * count)[::step]
    if any(index >= count for index in indexes):
        raise ValueError(f"key columns {indexes} of {count}")
    return indexes


# By type: the attribute, what reads it, and which columns it lists.
_FIELDS: Final[dict[int, tuple[str, Callable[[Reader, int], object], str]]] = {
    SIGNEDNESS: ("unsigned", _bits, "numeric"),
    DEFAULT_CHARSET: ("charsets", _default_and_exceptions, "text"),
    COLUMN_CHARSET: ("charsets", _each, "text"),
    COLUMN_NAME: ("names", _texts, "all"),
    SET_LABELS: ("set_labels", _labels, "labelled"),
    ENUM_LABELS: ("enum_labels", _labels, "labelled"),
    SIMPLE_PRIMARY_KEY: ("primary_key", _key, "all"),
    PRIMARY_KEY_WITH_PREFIX: ("primary_key", partial(_key, step=2), "all"),
    LABEL_DEFAULT_CHARSET: ("label_charsets", _default_and_exceptions, "labelled"),
    LABEL_COLUMN_CHARSET: ("label_charsets", _each, "labelled"),
    COLUMN_VISIBILITY: ("visible", _bits, "all"),
    VECTOR_DIMENSIONALITY: ("vector_dimensions", _numbers, "all"),
}
