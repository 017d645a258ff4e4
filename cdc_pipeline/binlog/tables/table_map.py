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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cdc_pipeline.binlog.column_types import FIXED_WIDTHS_BYTES, KIND_BY_CODE
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.charsets import decode_label
from cdc_pipeline.binlog.tables.collations import (
    BINARY_COLLATION,
    CHARACTER_BYTES_MAX,
    CHARSET_BY_COLLATION,
)
from cdc_pipeline.binlog.tables.server_columns import may_add, split
from cdc_pipeline.binlog.tables.table_map_completion import START_AFTER, Listed, completed, finished
from cdc_pipeline.binlog.tables.table_map_metadata import ColumnCounts, Reader, TableMapMetadata
from cdc_pipeline.binlog.tables.table_map_metadata import parse as parse_metadata
from cdc_pipeline.binlog.wire_types import OLD_TEMPORAL, WIRE_TYPES, Width, WireType, type_name
from cdc_pipeline.errors import (
    CdcError,
    DamagedJournalError,
    MetadataMissingError,
    SchemaError,
    UnknownColumnTypeError,
    UnrepresentableValueError,
)
from cdc_pipeline.text import table_names
from cdc_pipeline.text.table_names import NameRule

_W = WireType
_LABELLED: Final = frozenset({_W.ENUM, _W.SET})

_SEQUENCE: Final = {
    "next_not_cached_value": _W.LONGLONG,
    "minimum_value": _W.LONGLONG,
    "maximum_value": _W.LONGLONG,
    "start_value": _W.LONGLONG,
    "increment": _W.LONGLONG,
    "cache_size": _W.LONGLONG,
    "cycle_option": _W.TINY,
    "cycle_count": _W.LONGLONG,
}

COLUMNS_MAX: Final = 4096  # of both servers


class TableName(NamedTuple):
    """Names decoded from UTF-8, and the index after them."""

    database: str
    table: str
    end: int


@dataclass(frozen=True, slots=True)
class _Wire:
    wire_type: int
    meta: int


def table_name(
    body: bytes | memoryview, *, table_id_bytes: int = 6, names: NameRule = NameRule.AS_GIVEN
) -> TableName:
    """Database and table of a table map, from its bytes between header and checksum. `names`: how
    the server compares them. Raises ValueError: the body ends too early.
    """
    reader = Reader(bytes(body[: table_id_bytes + 2 + 2 * 300]))
    reader.take(table_id_bytes + 2)
    database = reader.text().decode("utf-8")
    reader.take(1)
    table = reader.text().decode("utf-8")
    reader.take(1)
    return TableName(*names.pair(database, table), reader.at)


def parse(
    body: bytes | memoryview,
    *,
    journal: str,
    offset: int,
    is_mariadb: bool = False,
    table_id_bytes: int = 6,
    known: TableSchema | None = None,
    fill: Callable[[TableMapMetadata, ColumnCounts], None] | None = None,
    names: NameRule = NameRule.AS_GIVEN,
) -> TableSchema:
    """The schema of a table map event, from its bytes between header and checksum. Raises
    DamagedJournalError: the body ends too early; MetadataMissingError: the event has less than
    full row metadata, and `known` lacks the rest; UnknownColumnTypeError: a column type that
    cannot be decoded; SchemaError: a collation is unknown, or an event without names contradicts
    `known`. All with table, journal and offset.

    Args:
        known: the table's schema at this log position (schema history), to complete the event.
        fill: adds to the event's metadata before it is read.
        names: how the server compares names.
    """
    raw = bytes(body)
    name: TableName | None = None
    try:
        name = table_name(raw, table_id_bytes=table_id_bytes, names=names)
        return _parse(raw, name, is_mariadb, known, fill)
    except CdcError as error:
        error.journal, error.offset = journal, offset
        error.table = None if name is None else table_names.table_name(name.database, name.table)
        raise
    except ValueError as error:
        raise DamagedJournalError(
            "a table map is truncated or contradicts itself",
            at=(journal, offset),
            table=None if name is None else table_names.table_name(name.database, name.table),
            got=error,
        ) from None


def needs_schema(
    body: bytes | memoryview, *, is_mariadb: bool = False, table_id_bytes: int = 6
) -> bool:
    """Return whether a table map needs the schema history to describe all of its columns.

    True without column names, and on MariaDB with a column that may be UUID, INET4 or INET6, that
    the server may have added, or in the old temporal format, and for what may be a sequence. False
    if the event cannot be read: `parse` raises the reason.
    """
    raw = bytes(body)
    try:
        wires, nulls, counts, reader = _columns_of(
            raw, table_name(raw, table_id_bytes=table_id_bytes).end, is_mariadb
        )
        metadata = parse_metadata(raw[reader.at :], counts)
        if counts.all and metadata.names is None:
            return True
        if not is_mariadb:
            return False
        _require_full(metadata, counts)
        if may_add(_columns(wires, nulls, metadata, is_mariadb)):
            return True
    except (ValueError, CdcError):
        return False
    if may_be_sequence(raw, table_id_bytes=table_id_bytes):
        return True
    texts = [wire for wire in wires if _lists_charset(wire.wire_type, is_mariadb)]
    return any(wire.wire_type in OLD_TEMPORAL for wire in wires) or any(
        wire.wire_type == _W.STRING
        and wire.meta in FIXED_WIDTHS_BYTES
        and charset == BINARY_COLLATION
        for wire, charset in zip(texts, metadata.charsets or (), strict=False)
    )


def may_be_sequence(body: bytes | memoryview, *, table_id_bytes: int = 6) -> bool:
    """Return whether a table map of MariaDB may be one of a sequence, which is logged as a table
    of one row: it is, unless the table is known."""
    raw = bytes(body)
    try:
        wires, nulls, counts, reader = _columns_of(
            raw, table_name(raw, table_id_bytes=table_id_bytes).end, True
        )
        metadata = parse_metadata(raw[reader.at :], counts)
    except (ValueError, CdcError):
        return False
    return (
        tuple(wire.wire_type for wire in wires) == tuple(_SEQUENCE.values())
        and not any(nulls)
        and (metadata.names is None or metadata.names == [name.encode() for name in _SEQUENCE])
    )


def _columns_of(
    raw: bytes, at: int, is_mariadb: bool
) -> tuple[list[_Wire], bytes, ColumnCounts, Reader]:
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
        numeric=sum(WIRE_TYPES[wire.wire_type].has_sign_bit for wire in wires),
        text=sum(_lists_charset(wire.wire_type, is_mariadb) for wire in wires),
        labelled=sum(wire.wire_type in _LABELLED for wire in wires),
    )
    return wires, nulls, counts, reader


def _parse(
    raw: bytes,
    name: TableName,
    is_mariadb: bool,
    known: TableSchema | None,
    fill: Callable[[TableMapMetadata, ColumnCounts], None] | None,
) -> TableSchema:
    wires, nulls, counts, reader = _columns_of(raw, name.end, is_mariadb)
    metadata = parse_metadata(raw[reader.at :], counts)
    if fill is not None:
        fill(metadata, counts)
    is_full = metadata.names is not None
    if known is not None and not is_full:
        metadata = completed(metadata, _listed(wires, is_mariadb), count=counts.all, known=known)
    _require_full(metadata, counts)
    columns = _columns(wires, nulls, metadata, is_mariadb)
    key = tuple(metadata.primary_key)
    schema = (
        split(name.database, name.table, columns, key, known=known, has_names=is_full)
        if is_mariadb
        else TableSchema(name.database, name.table, columns, key)
    )
    return schema if known is None else finished(schema, known=known, is_full=is_full)


def _columns(
    wires: list[_Wire], nulls: bytes, metadata: TableMapMetadata, is_mariadb: bool
) -> tuple[Column, ...]:
    builder = _ColumnBuilder(metadata, is_mariadb)
    return tuple(
        builder.column(index, wire, nullable=bool(nulls[index // 8] >> index % 8 & 1))
        for index, wire in enumerate(wires)
    )


def _lists_charset(code: int, is_mariadb: bool) -> bool:
    return ("mariadb" if is_mariadb else "mysql") in WIRE_TYPES[code].charset_listed_by


def _listed(wires: list[_Wire], is_mariadb: bool) -> Listed:
    codes = [wire.wire_type for wire in wires]
    return Listed(
        numeric=tuple(index for index, code in enumerate(codes) if WIRE_TYPES[code].has_sign_bit),
        text=tuple(index for index, code in enumerate(codes) if _lists_charset(code, is_mariadb)),
        enums=tuple(index for index, code in enumerate(codes) if code == _W.ENUM),
        sets=tuple(index for index, code in enumerate(codes) if code == _W.SET),
    )


def _wire(code: int, meta: Reader) -> _Wire:
    spec = WIRE_TYPES.get(code)
    if spec is None:
        raise UnknownColumnTypeError(
            "an unknown column type",
            expected="a type that this version knows",
            got=type_name(code),
            next_step="exclude the table from the capture",
        )
    if spec.metadata_bytes < 2:
        return _Wire(code, meta.take(1)[0] if spec.metadata_bytes else 0)
    first, second = meta.take(2)
    if code in (_W.STRING, *_LABELLED):
        # The two high bits of a CHAR's length above 255 are stored inverted in bits 4 and 5 of its
        # type byte.
        if first | 0x30 not in WIRE_TYPES:
            raise ValueError(f"a string of type {first}")
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
            "the table map does not have full metadata",
            setting="binlog_row_metadata",
            expected="FULL",
            got=f"no {', no '.join(missing)}",
            next_step=START_AFTER,
        )


class _ColumnBuilder:
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
        spec = WIRE_TYPES[code]
        if spec.is_text:
            return self._text(name, code, meta, nullable=nullable, visible=visible)
        if code in _LABELLED:
            charset = self._charset(name, next(self._label_charsets, None))
            labels = tuple(
                self._label(name, raw, charset) for raw in next(self._labels[_W(code)], ())
            )
            kind = KIND_BY_CODE[code]
            return Column(
                name, kind, code, meta, nullable, charset=charset, labels=labels, visible=visible
            )
        if _lists_charset(code, self._is_mariadb):
            next(self._charsets)
        unsigned = spec.has_sign_bit and next(self._unsigned)
        column = Column(name, KIND_BY_CODE[code], code, meta, nullable, visible=visible)
        digits = (
            meta
            if spec.width is Width.FRACTION
            else -1
            if code in OLD_TEMPORAL and self._is_mariadb
            else 0
        )
        return replace(
            column,
            unsigned=unsigned and column.type.has_sign,
            precision=meta >> 8 if spec.width is Width.DECIMAL else 0,
            scale=meta & 0xFF if spec.width is Width.DECIMAL else 0,
            fraction_digits=digits,
            bits=meta if spec.width is Width.BITS else 0,
        )

    def _text(self, name: str, code: int, meta: int, *, nullable: bool, visible: bool) -> Column:
        collation = next(self._charsets)
        # The metadata of a compressed VARCHAR counts the byte in front of each value, too.
        spec = WIRE_TYPES[code]
        declared = meta - spec.is_compressed if spec.width is Width.BY_LENGTH else 0
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

    def _label(self, column: str, raw: bytes, charset: str) -> str:
        try:
            return decode_label(raw, charset, is_mariadb=self._is_mariadb)
        except UnrepresentableValueError:
            raise SchemaError(
                f"a label of column {column!r} is no text",
                expected=f"text in {'UTF-8' if charset == 'binary' else charset}",
                got=f"{len(raw)} bytes that are none",
                next_step="change the label at the source, or exclude the table from the capture",
            ) from None

    @staticmethod
    def _charset(column: str, collation: int | None) -> str:
        if collation is None:
            raise MetadataMissingError(
                f"the table map lacks the charset of column {column!r}",
                setting="binlog_row_metadata",
                expected="FULL",
                next_step=START_AFTER,
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
