"""Fill in incomplete table maps (binlog_row_metadata MINIMAL or NO_LOG) without a server.

Rules:
- What the map contains is kept; only missing fields are added to its optional metadata.
- Missing names become ``@1``, ``@2`` ..., as in mysqlbinlog. Missing signs: signed. Missing
  charsets: the one that the caller names. ENUM and SET without labels become unsigned integers: the
  label's number from 1, the members' bits.
- The result names what was missing, because none of this is what the server wrote.

Source: MySQL manual, binlog_row_metadata; `Table_map_event::Optional_metadata_field_type`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables import table_map, table_map_metadata
from cdc_pipeline.binlog.tables.collations import CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.table_map_metadata import Reader
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.text.table_names import NameRule

_CHARSETS: Final = frozenset(
    {table_map_metadata.DEFAULT_CHARSET, table_map_metadata.COLUMN_CHARSET}
)
_LABEL_CHARSETS: Final = frozenset(
    {table_map_metadata.LABEL_DEFAULT_CHARSET, table_map_metadata.LABEL_COLUMN_CHARSET}
)


class BareSchema(NamedTuple):
    """A schema, and which parts of it are filled in: "names", "signs", "charsets", "labels"."""

    schema: TableSchema
    missing: tuple[str, ...]


def parse_bare(
    body: bytes | memoryview,
    *,
    journal: str,
    offset: int,
    is_mariadb: bool,
    table_id_bytes: int,
    unknown_charset: str = "utf8mb4",
    names: NameRule = NameRule.AS_GIVEN,
) -> BareSchema:
    """Parse as `table_map.parse`, for a table map whose metadata is not full.

    `unknown_charset`: of texts whose charset is missing; ``binary`` takes them for bytes.

    Raises DamagedJournalError, UnknownColumnTypeError, SchemaError as `table_map.parse`;
    SchemaError if `unknown_charset` is none.
    """
    raw = bytes(body)
    count, metadata_at = _columns_and_metadata(raw, table_id_bytes)
    present = _kinds(raw[metadata_at:])
    added = b""
    if table_map_metadata.COLUMN_NAME not in present:
        columns_named = b"".join(_text(f"@{number}".encode()) for number in range(1, count + 1))
        added += _field(table_map_metadata.COLUMN_NAME, columns_named)
    if table_map_metadata.SIGNEDNESS not in present:
        added += _field(table_map_metadata.SIGNEDNESS, bytes((count + 7) // 8))
    if not present & _CHARSETS:
        added += _field(table_map_metadata.DEFAULT_CHARSET, _number(_collation(unknown_charset)))
    if not present & _LABEL_CHARSETS:
        added += _field(table_map_metadata.LABEL_DEFAULT_CHARSET, _number(_collation("utf8mb4")))
    name = table_map.table_name(raw, table_id_bytes=table_id_bytes)
    schema = table_map.parse(
        raw + added,
        journal=journal,
        offset=offset,
        is_mariadb=is_mariadb,
        table_id_bytes=table_id_bytes,
        known=TableSchema(name.database, name.table, ()),  # whose a column is does not matter here
        names=names,
    ).logged
    unlabelled = [
        column for column in schema.columns if column.type.has_labels and not column.labels
    ]
    missing = {
        "names": table_map_metadata.COLUMN_NAME not in present and count > 0,
        "signs": table_map_metadata.SIGNEDNESS not in present
        and any(c.type.integer_bits for c in schema.columns),
        "charsets": not present & _CHARSETS
        and any(c.kind in (Kind.TEXT, Kind.BINARY) for c in schema.columns),
        "labels": bool(unlabelled),
    }
    columns = tuple(
        _as_number(column) if column in unlabelled else column for column in schema.columns
    )
    return BareSchema(
        TableSchema(schema.database, schema.table, columns, schema.primary_key),
        tuple(what for what, is_missing in missing.items() if is_missing),
    )


def _as_number(column: Column) -> Column:
    kind = Kind.INT32 if column.kind is Kind.ENUM else Kind.INT64
    return replace(column, kind=kind, unsigned=True, charset="")


def _collation(charset: str) -> int:
    for number, name in sorted(CHARSET_BY_COLLATION.items()):
        if name == charset:
            return number
    raise SchemaError(
        "the charset is unknown",
        expected=f"one of: {', '.join(sorted(set(CHARSET_BY_COLLATION.values())))}",
        got=charset,
        next_step="name a charset of the server, or binary",
    )


def _columns_and_metadata(raw: bytes, table_id_bytes: int) -> tuple[int, int]:
    reader = Reader(raw)
    reader.take(table_map.table_name(raw, table_id_bytes=table_id_bytes).end)
    count = reader.number()
    reader.take(count)
    reader.text()
    reader.take((count + 7) // 8)
    return count, reader.at


def _kinds(fields: bytes) -> set[int]:
    reader = Reader(fields)
    found = set()
    while not reader.at_end:
        found.add(reader.take(1)[0])
        reader.text()
    return found


def _number(value: int) -> bytes:
    if value < 0xFB:
        return bytes([value])
    width, head = (2, 0xFC) if value < 1 << 16 else (3, 0xFD)
    return bytes([head]) + value.to_bytes(width, "little")


def _text(raw: bytes) -> bytes:
    return _number(len(raw)) + raw


def _field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + _text(value)
