"""Parse table map events: names and columns of a table, as a TableSchema.

Rules:
- The event decides, never the server's current variables. Full row metadata suffices; with less
  (MINIMAL, NO_LOG) the rest comes from a known schema (`table_map_completion`), otherwise an error
  names the table.
- The wire type STRING is unwrapped: it encodes ENUM, SET, and CHAR longer than 255 bytes.
- Charset 63 (binary) turns text types into bytes; only the fixed-length BINARY(n) is padded.
- An unknown column type, or one whose width is not in the event, is an error that names the column.

Source: MySQL `Table_map_event`; `Field::save_field_metadata` for the metadata of each type; MariaDB
writes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.charsets import decode_text
from cdc_pipeline.binlog.tables.collations import BINARY_COLLATION, CHARACTER_BYTES_MAX, CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.columns_wire import COMPRESSED, OLD_TEMPORAL, WireType, type_name
from cdc_pipeline.binlog.tables.table_map_completion import FIXED_KIND_BYTES, START_AFTER, Listed, completed, finished
from cdc_pipeline.binlog.tables.table_map_metadata import ColumnCounts, Reader, TableMapMetadata
from cdc_pipeline.binlog.tables.table_map_metadata import parse as parse_metadata
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    MetadataMissingError,
    SchemaError,
    UnknownColumnTypeError,
)
from cdc_pipeline.text import table_names

_W = WireType

_PLAIN_KINDS: Final = {
    _W.TINY: Kind.INT8, _W.SHORT: Kind.INT16, _W.INT24: Kind.INT24, _W.LONG: Kind.INT32, _W.LONGLONG: Kind.INT64,
    _W.FLOAT: Kind.FLOAT, _W.DOUBLE: Kind.DOUBLE, _W.NEWDECIMAL: Kind.DECIMAL, _W.YEAR: Kind.YEAR, _W.DATE: Kind.DATE,
    _W.NEWDATE: Kind.DATE, _W.TIMESTAMP: Kind.TIMESTAMP, _W.DATETIME: Kind.DATETIME, _W.TIME: Kind.TIME,
    _W.TIMESTAMP2: Kind.TIMESTAMP, _W.DATETIME2: Kind.DATETIME, _W.TIME2: Kind.TIME, _W.BIT: Kind.BIT,
    _W.JSON: Kind.JSON, _W.GEOMETRY: Kind.GEOMETRY, _W.VECTOR: Kind.VECTOR, _W.ENUM: Kind.ENUM, _W.SET: Kind.SET,
}  # fmt: skip
# The types that SIGNEDNESS lists: YEAR too, on both flavors, although it has no sign.
_SIGN_BITS: Final = frozenset(
    {_W.TINY, _W.SHORT, _W.INT24, _W.LONG, _W.LONGLONG, _W.FLOAT, _W.DOUBLE, _W.NEWDECIMAL, _W.YEAR}
)
_BLOBS: Final = frozenset({_W.TINY_BLOB, _W.MEDIUM_BLOB, _W.LONG_BLOB, _W.BLOB})
_STRINGS: Final = frozenset({_W.STRING, _W.VARCHAR, _W.VAR_STRING})
_TEXT: Final = _STRINGS | _BLOBS | COMPRESSED
# The types in the lists of charsets: MySQL lists VECTOR among the texts and MariaDB GEOMETRY, both
# with charset binary.
_CHARSET_TYPES: Final = {False: _TEXT | {_W.VECTOR}, True: _TEXT | {_W.GEOMETRY}}  # by is_mariadb
_LABELLED: Final = frozenset({_W.ENUM, _W.SET})
_FRACTIONAL: Final = frozenset({_W.TIMESTAMP2, _W.DATETIME2, _W.TIME2})

_META_BYTES: Final[dict[WireType, int]] = (
    dict.fromkeys(_STRINGS | _LABELLED | {_W.BIT, _W.NEWDECIMAL, _W.VARCHAR_COMPRESSED}, 2)
    | dict.fromkeys(
        _BLOBS | _FRACTIONAL | {_W.FLOAT, _W.DOUBLE, _W.JSON, _W.GEOMETRY, _W.VECTOR, _W.BLOB_COMPRESSED}, 1
    )
    | dict.fromkeys(
        {
            _W.TINY, _W.SHORT, _W.INT24, _W.LONG, _W.LONGLONG, _W.YEAR, _W.DATE, _W.NEWDATE, _W.TIMESTAMP, _W.DATETIME,
            _W.TIME,
        },
        0,
    )
)  # fmt: skip

COLUMNS_MAX: Final = 4096  # of both servers
_STORED_BEFORE: Final = START_AFTER
_FIXED_KIND_WIDTHS: Final = frozenset(FIXED_KIND_BYTES.values())


class TableName(NamedTuple):
    """Names decoded from UTF-8, and the index after them."""

    database: str
    table: str
    end: int


@dataclass(frozen=True, slots=True)
class _Wire:
    """Type code and metadata of one column after unwrapping."""

    wire_type: int
    meta: int


def table_name(body: bytes | memoryview, *, table_id_bytes: int = 6) -> TableName:
    """Return database and table of a table map, from its bytes between header and checksum.

    Raises:
        ValueError: the body ends too early.
    """
    reader = Reader(bytes(body[: table_id_bytes + 2 + 2 * 300]))
    reader.take(table_id_bytes + 2)
    database = reader.text().decode("utf-8")
    reader.take(1)
    table = reader.text().decode("utf-8")
    reader.take(1)
    return TableName(database, table, reader.at)


def parse(
    body: bytes | memoryview,
    *,
    journal: str,
    offset: int,
    is_mariadb: bool = False,
    table_id_bytes: int = 6,
    known: TableSchema | None = None,
) -> TableSchema:
    """Return the schema of a table map event, from its bytes between header and checksum.

    Args:
        known: the table's schema at this log position (schema history), to complete the event.

    Raises:
        DamagedJournalError: the body ends too early.
        MetadataMissingError: the event has less than full row metadata, and `known` lacks the rest.
        UnknownColumnTypeError: a column type that cannot be decoded.
        SchemaError: a collation is unknown, or an event without names contradicts `known`.
        All with table, journal and offset.
    """
    raw = bytes(body)
    name: TableName | None = None
    try:
        name = table_name(raw, table_id_bytes=table_id_bytes)
        return _parse(raw, name, is_mariadb, known)
    except CdcError as error:
        error.journal, error.offset = journal, offset
        error.table = None if name is None else table_names.table_name(name.database, name.table)
        raise
    except ValueError as error:
        raise DamagedJournalError(
            "a table map is truncated or contradicts itself",
            journal=journal,
            offset=offset,
            table=None if name is None else table_names.table_name(name.database, name.table),
            got=error,
            next_step="fetch the journal again from its server",
        ) from None


def needs_schema(body: bytes | memoryview, *, is_mariadb: bool = False, table_id_bytes: int = 6) -> bool:
    """Return whether a table map needs the schema history to describe all of its columns.

    True without column names, and on MariaDB with a column that may be UUID, INET4 or INET6, or is
    in the old temporal format. False if the event cannot be read: `parse` raises the reason.
    """
    raw = bytes(body)
    try:
        wires, _, counts, reader = _columns_of(raw, table_name(raw, table_id_bytes=table_id_bytes).end, is_mariadb)
        metadata = parse_metadata(raw[reader.at :], counts)
    except (ValueError, CdcError):
        return False
    if counts.all and metadata.names is None:
        return True
    if not is_mariadb:
        return False
    texts = [wire for wire in wires if wire.wire_type in _CHARSET_TYPES[is_mariadb]]
    return any(wire.wire_type in OLD_TEMPORAL for wire in wires) or any(
        wire.wire_type == _W.STRING and wire.meta in _FIXED_KIND_WIDTHS and charset == BINARY_COLLATION
        for wire, charset in zip(texts, metadata.charsets or (), strict=False)
    )


def _columns_of(raw: bytes, at: int, is_mariadb: bool) -> tuple[list[_Wire], bytes, ColumnCounts, Reader]:
    """Parse types, null bits and counts of the columns;
    the reader is then at the optional metadata.
    """
    reader = Reader(raw)
    reader.take(at)
    count = reader.number()
    if not 1 <= count <= COLUMNS_MAX:
        raise ValueError(f"a table of {count} columns")
    types = reader.take(count)
    meta_reader = Reader(reader.text())
    wires = [_wire(code, meta_reader) for code in types]
    nulls = reader.take((count + 7) // 8)
    counts = ColumnCounts(
        all=count,
        numeric=sum(wire.wire_type in _SIGN_BITS for wire in wires),
        text=sum(wire.wire_type in _CHARSET_TYPES[is_mariadb] for wire in wires),
        labelled=sum(wire.wire_type in _LABELLED for wire in wires),
    )
    return wires, nulls, counts, reader


def _parse(raw: bytes, name: TableName, is_mariadb: bool, known: TableSchema | None) -> TableSchema:
    wires, nulls, counts, reader = _columns_of(raw, name.end, is_mariadb)
    metadata = parse_metadata(raw[reader.at :], counts)
    is_full = metadata.names is not None
    if known is not None and not is_full:
        metadata = completed(metadata, _listed(wires, is_mariadb), count=counts.all, known=known)
    _require_full(metadata, counts)
    builder = _ColumnBuilder(metadata, is_mariadb)
    columns = tuple(
        builder.column(index, wire, nullable=bool(nulls[index // 8] >> index % 8 & 1))
        for index, wire in enumerate(wires)
    )
    if known is not None:
        columns = finished(columns, known=known, is_full=is_full)
    return TableSchema(name.database, name.table, columns, tuple(metadata.primary_key))


def _listed(wires: list[_Wire], is_mariadb: bool) -> Listed:
    def of(types: frozenset[_W]) -> tuple[int, ...]:
        return tuple(index for index, wire in enumerate(wires) if wire.wire_type in types)

    return Listed(of(_SIGN_BITS), of(_CHARSET_TYPES[is_mariadb]), of(frozenset({_W.ENUM})), of(frozenset({_W.SET})))


def _wire(code: int, meta: Reader) -> _Wire:
    width = _META_BYTES.get(code)  # type: ignore[call-overload]
    if width is None:
        raise UnknownColumnTypeError(
            "an unknown column type",
            expected="a type of docs/types.md",
            got=type_name(code),
            next_step="leave the table out of the capture",
        )
    if width < 2:
        return _Wire(code, meta.take(1)[0] if width else 0)
    first, second = meta.take(2)
    if code in (_W.STRING, *_LABELLED):
        # The two high bits of a CHAR's length above 255 are stored inverted in bits 4 and 5 of its
        # type byte.
        if first & 0x30 != 0x30:
            return _Wire(first | 0x30, second | ((first & 0x30) ^ 0x30) << 4)
        return _Wire(first, second)
    if code == _W.BIT:
        return _Wire(code, first + 8 * second)
    if code == _W.NEWDECIMAL:
        return _Wire(code, first << 8 | second)
    return _Wire(code, first | second << 8)


def _require_full(metadata: TableMapMetadata, counts: ColumnCounts) -> None:
    missing = [
        what
        for what, is_missing in (
            ("column names", metadata.names is None and counts.all > 0),
            ("signs", metadata.unsigned is None and counts.numeric > 0),
            ("charsets", metadata.charsets is None and counts.text > 0),
        )
        if is_missing
    ]
    if missing:
        raise MetadataMissingError(
            "the table map carries no full metadata",
            setting="binlog_row_metadata",
            expected="FULL",
            got=f"no {', no '.join(missing)}",
            next_step=_STORED_BEFORE,
        )


class _ColumnBuilder:
    """Builds columns in order, consuming the metadata lists of each kind of column."""

    def __init__(self, metadata: TableMapMetadata, is_mariadb: bool) -> None:
        self._names = metadata.names or []
        self._visible = metadata.visible
        self._unsigned = iter(metadata.unsigned or ())
        self._charsets = iter(metadata.charsets or ())
        self._label_charsets = iter(metadata.label_charsets or ())
        self._labels = {_W.ENUM: iter(metadata.enum_labels), _W.SET: iter(metadata.set_labels)}
        self._is_mariadb = is_mariadb

    def column(self, index: int, wire: _Wire, *, nullable: bool) -> Column:
        name = self._names[index].decode("utf-8")
        visible = self._visible is None or self._visible[index]
        code, meta = wire.wire_type, wire.meta
        if code in _TEXT:
            return self._text(name, code, meta, nullable=nullable, visible=visible)
        if code in _LABELLED:
            charset = self._charset(name, next(self._label_charsets, None))
            labels = tuple(self._label(raw, charset) for raw in next(self._labels[_W(code)], ()))
            return Column(
                name, _PLAIN_KINDS[_W(code)], code, meta, nullable, charset=charset, labels=labels, visible=visible
            )
        if code in _CHARSET_TYPES[self._is_mariadb]:
            next(self._charsets)
        unsigned = code in _SIGN_BITS and next(self._unsigned)
        return Column(
            name,
            _PLAIN_KINDS[_W(code)],
            code,
            meta,
            nullable,
            unsigned=unsigned and code != _W.YEAR,
            precision=meta >> 8 if code == _W.NEWDECIMAL else 0,
            scale=meta & 0xFF if code == _W.NEWDECIMAL else 0,
            fraction_digits=meta if code in _FRACTIONAL else -1 if code in OLD_TEMPORAL and self._is_mariadb else 0,
            bits=meta if code == _W.BIT else 0,
            visible=visible,
        )

    def _text(self, name: str, code: int, meta: int, *, nullable: bool, visible: bool) -> Column:
        collation = next(self._charsets)
        # The metadata of a compressed VARCHAR also counts the byte before each value.
        declared = meta if code in _STRINGS else meta - 1 if code == _W.VARCHAR_COMPRESSED else 0
        if collation == BINARY_COLLATION:
            return Column(
                name,
                Kind.BINARY,
                code,
                meta,
                nullable,
                pad_bytes=meta if code == _W.STRING else 0,
                char_length_max=declared,
                visible=visible,
            )
        charset = self._charset(name, collation)
        return Column(
            name,
            Kind.TEXT,
            code,
            meta,
            nullable,
            charset=charset,
            char_length_max=declared // CHARACTER_BYTES_MAX[charset],
            visible=visible,
        )

    def _label(self, raw: bytes, charset: str) -> str:
        # Labels of a binary column were typed by a client: nearly always UTF-8; others are an
        # error.
        return decode_text(raw, "utf8mb4" if charset == "binary" else charset, is_mariadb=self._is_mariadb)

    @staticmethod
    def _charset(column: str, collation: int | None) -> str:
        if collation is None:
            raise MetadataMissingError(
                f"the table map lacks the charset of column {column!r}",
                setting="binlog_row_metadata",
                expected="FULL",
                next_step=_STORED_BEFORE,
            )
        charset = CHARSET_BY_COLLATION.get(collation)
        if charset is None:
            raise SchemaError(
                f"the collation of column {column!r} is unknown",
                expected="a collation of MySQL 9.7 or MariaDB 10.11",
                got=f"collation id {collation}",
                next_step="change the column's collation, or exclude the table from the capture",
            )
        return charset
