"""Complete table maps without full row metadata (binlog_row_metadata MINIMAL or NO_LOG), for people
who have no server to query.

Rules:
- A table map without full metadata is completed from the journals' own statements about its table.
  If these are missing or contradict the map, only its missing parts are filled in.
- Missing names become ``@1``, ``@2`` ..., as in mysqlbinlog. Missing signs: signed. Missing
  charsets: the one that the caller names. ENUM and SET without labels become unsigned integers: the
  label's number from 1, the members' bits.
- Every such table is noted once with what was missing.

Source: MySQL manual, binlog_row_metadata; `Table_map_event::Optional_metadata_field_type`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.collations import CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.table_map import TableName
from cdc_pipeline.binlog.tables.table_map_metadata import ColumnCounts, TableMapMetadata
from cdc_pipeline.errors import MetadataMissingError, SchemaError

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
    """What was `missing`, by name; `on_new` is told each once; `schemas`, as completed: what was
    missing for each. `unknown_charset`: ``binary`` takes such texts for bytes.
    """

    def __init__(self, unknown_charset: str = "utf8mb4") -> None:
        self.unknown_charset = unknown_charset
        self.missing: dict[str, tuple[str, ...]] = {}
        self.schemas: dict[TableSchema, tuple[str, ...]] = {}
        self.on_new: Callable[[str, tuple[str, ...]], None] = lambda _table, _missing: None

    def completed(
        self,
        name: TableName,
        parse: Callable[..., TableSchema],
        known: TableSchema | None,
        error: SchemaError,
    ) -> TableSchema:
        """For a map that its own metadata and the statements before it (`known`) cannot explain."""
        schema: TableSchema | None = None
        missing: tuple[str, ...] = ("charsets",)
        is_contradiction = not isinstance(error, MetadataMissingError)
        if known is not None and not is_contradiction and self.unknown_charset != "binary":
            columns = tuple(
                replace(column, charset=column.charset or self.unknown_charset)
                if column.kind is Kind.TEXT
                else column
                for column in known.columns
            )
            with suppress(SchemaError):
                schema = parse(known=replace(known, columns=columns))
        if schema is None:
            schema, missing = parse_bare(name, parse, unknown_charset=self.unknown_charset)
            missing += ("history",) * (known is not None and is_contradiction)
        self.schemas[schema] = missing
        if self.missing.setdefault(schema.full_name, missing) is missing:
            self.on_new(schema.full_name, missing)
        return schema


def parse_bare(
    name: TableName, parse: Callable[..., TableSchema], *, unknown_charset: str = "utf8mb4"
) -> tuple[TableSchema, tuple[str, ...]]:
    """The schema, and which parts of it are filled in: "names", "signs", "charsets", "labels"."""
    lacks: dict[str, bool] = {}

    def fill(metadata: TableMapMetadata, counts: ColumnCounts) -> None:
        lacks["names"] = metadata.names is None
        lacks["signs"] = metadata.unsigned is None
        lacks["charsets"] = metadata.charsets is None
        if metadata.names is None:
            metadata.names = [f"@{number}".encode() for number in range(1, counts.all + 1)]
        if metadata.unsigned is None:
            metadata.unsigned = [False] * counts.numeric
        if metadata.charsets is None:
            metadata.charsets = [_collation(unknown_charset)] * counts.text
        if metadata.label_charsets is None:
            metadata.label_charsets = [_collation("utf8mb4")] * counts.labelled

    # Whether a column is the server's own does not matter here.
    schema = parse(known=TableSchema(name.database, name.table, ()), fill=fill).logged
    unlabelled = [c for c in schema.columns if c.type.has_labels and not c.labels]
    matters = {
        "names": True,
        "signs": any(c.type.integer_bits for c in schema.columns),
        "charsets": any(c.kind in (Kind.TEXT, Kind.BINARY) for c in schema.columns),
        "labels": bool(unlabelled),
    }
    columns = tuple(_as_number(c) if c in unlabelled else c for c in schema.columns)
    return (
        TableSchema(schema.database, schema.table, columns, schema.primary_key),
        tuple(what for what, is_asked in matters.items() if is_asked and lacks.get(what, True)),
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
