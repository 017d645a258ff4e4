"""Complete table maps without full row metadata (binlog_row_metadata MINIMAL or NO_LOG), for people
who have no server to query.

Rules:
- A table map with full metadata is read as always. One without is completed from the journals' own
  statements about its table. If these are missing or contradict the map, `parse_bare` fills it in:
  what the map contains is kept, and only missing fields are added to its optional metadata.
- Missing names become ``@1``, ``@2`` ..., as in mysqlbinlog. Missing signs: signed. Missing
  charsets: the one that the caller names. ENUM and SET without labels become unsigned integers: the
  label's number from 1, the members' bits.
- Every table read in this way is noted once with what was missing, so that a guess is never taken
  for what the server wrote.

Source: MySQL manual, binlog_row_metadata; `Table_map_event::Optional_metadata_field_type`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from cdc_pipeline.binlog.chunk import EventSlice, JournalFormat
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables import table_map, table_map_metadata
from cdc_pipeline.binlog.tables.collations import CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.table_map_metadata import Reader
from cdc_pipeline.errors import MetadataMissingError, SchemaError
from cdc_pipeline.text.table_names import NameRule
from cdc_pipeline.transaction.table_maps import KnownSchemas, TableMaps, _KnownMap

# Text for each missing part.
MEANINGS: Final = {
    "names": "columns are @1, @2 ...",
    "signs": "integers are read as signed",
    "charsets": (
        "texts and bytes cannot be told apart; they are read in the charset of "
        "--charset, or shown as hex"
    ),
    "labels": "ENUM and SET values are numbers",
    "history": (
        "its CREATE and ALTER TABLE statements do not match its columns: one of them is "
        "not in the journals"
    ),
}


class BareTables:
    """Tables without full metadata: what was `missing`, by name; `on_new` is told each once."""

    def __init__(self, unknown_charset: str = "utf8mb4") -> None:
        self.unknown_charset = unknown_charset
        self.missing: dict[str, tuple[str, ...]] = {}
        self.on_new: Callable[[str, tuple[str, ...]], None] = lambda _table, _missing: None

    def note(self, table: str, missing: tuple[str, ...]) -> None:
        if self.missing.setdefault(table, missing) is missing:
            self.on_new(table, missing)


class BareTableMaps(TableMaps):
    """Fills in and notes what a table map lacks, and shows sequences as they are logged."""

    _leaves_out_sequences = False

    def __init__(
        self,
        captured: Callable[[str, str], bool],
        *,
        bare_tables: BareTables,
        schemas: KnownSchemas | None = None,
        names: NameRule = NameRule.AS_GIVEN,
    ) -> None:
        super().__init__(captured, schemas=schemas, names=names)
        self._bare_tables = bare_tables

    def _known_map(
        self, piece: EventSlice, index: int, id_bytes: int, journal_format: JournalFormat
    ) -> _KnownMap:
        try:
            return super()._known_map(piece, index, id_bytes, journal_format)
        except SchemaError as error:
            return self._filled_in(
                piece,
                piece.first + index,
                id_bytes,
                is_mariadb=journal_format.is_mariadb,
                why=error,
            )

    def _filled_in(
        self, piece: EventSlice, row: int, id_bytes: int, *, is_mariadb: bool, why: SchemaError
    ) -> _KnownMap:
        """Fill in what neither the table map at `row` nor the statements before it contain."""
        chunk = piece.chunk
        body, offset = bytes(chunk.body(row)), int(chunk.events["offset"][row])
        charset = self._bare_tables.unknown_charset
        name = table_map.table_name(body, table_id_bytes=id_bytes, names=self._names)
        known_schema = self._known_schema(name.database, name.table, chunk.journal, offset)
        parse = partial(
            table_map.parse,
            journal=chunk.journal,
            offset=offset,
            is_mariadb=is_mariadb,
            table_id_bytes=id_bytes,
            names=self._names,
        )
        schema: TableSchema | None = None
        missing: tuple[str, ...] = ("charsets",)
        if (
            known_schema is not None
            and isinstance(why, MetadataMissingError)
            and charset != "binary"
        ):
            columns = tuple(
                replace(column, charset=column.charset or charset)
                if column.kind is Kind.TEXT
                else column
                for column in known_schema.columns
            )
            with suppress(SchemaError):
                schema = parse(body, known=replace(known_schema, columns=columns))
        if schema is None:
            schema, missing = parse_bare(body, parse, id_bytes, unknown_charset=charset)
            missing += ("history",) * (
                known_schema is not None and not isinstance(why, MetadataMissingError)
            )
        self._bare_tables.note(schema.full_name, missing)
        key = body[id_bytes:]
        # Tried again at its next place: a statement before that may contain more.
        known = _KnownMap(
            key, schema.database, schema.table, schema, needs_schema=True, known_schema=known_schema
        )
        self._known[is_mariadb, key] = known
        return known


_CHARSETS: Final = frozenset(
    {table_map_metadata.DEFAULT_CHARSET, table_map_metadata.COLUMN_CHARSET}
)
_LABEL_CHARSETS: Final = frozenset(
    {table_map_metadata.LABEL_DEFAULT_CHARSET, table_map_metadata.LABEL_COLUMN_CHARSET}
)


class _BareSchema(NamedTuple):
    """A schema, and which parts of it are filled in: "names", "signs", "charsets", "labels"."""

    schema: TableSchema
    missing: tuple[str, ...]


def parse_bare(
    body: bytes | memoryview,
    parse: Callable[..., TableSchema],
    table_id_bytes: int,
    *,
    unknown_charset: str = "utf8mb4",
) -> _BareSchema:
    """By `parse` (`table_map.parse` and its place), for a table map whose metadata is not full.

    `unknown_charset`: of texts without a charset; ``binary`` takes them for bytes.
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
    # whose a column is does not matter here
    schema = parse(raw + added, known=TableSchema(name.database, name.table, ())).logged
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
    return _BareSchema(
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
    kinds = set()
    while not reader.at_end:
        kinds.add(reader.take(1)[0])
        reader.text()
    return kinds


def _number(value: int) -> bytes:
    if value < 0xFB:
        return bytes([value])
    width, head = (2, 0xFC) if value < 1 << 16 else (3, 0xFD)
    return bytes([head]) + value.to_bytes(width, "little")


def _text(raw: bytes) -> bytes:
    return _number(len(raw)) + raw


def _field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + _text(value)
