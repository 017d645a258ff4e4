"""Complete table maps without full row metadata, for people who have no server to query.

Rules:
- A table map with full metadata is read as always. One without is completed from the journals' own
  statements about its table. If these are missing or contradict the map, `binlog.table_map_bare`
  reads it.
- Every table read in this way is noted once with what was missing, so that a guess is never taken
  for what the server wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.chunk import EventSlice, JournalFormat
from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.errors import MetadataMissingError, SchemaError
from cdc_pipeline.pipeline.inspect.table_map_bare import parse_bare
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
    """Tables that were read without full metadata; `unknown_charset`: see `parse_bare`.

    Attributes:
        missing: by ``schema.table``: "names", "signs", "charsets", "labels", "history".
        on_new: called for each table when it is met first.
    """

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
                schema = table_map.parse(
                    body,
                    journal=chunk.journal,
                    offset=offset,
                    is_mariadb=is_mariadb,
                    table_id_bytes=id_bytes,
                    known=replace(known_schema, columns=columns),
                    names=self._names,
                )
        if schema is None:
            schema, missing = parse_bare(
                body,
                journal=chunk.journal,
                offset=offset,
                is_mariadb=is_mariadb,
                table_id_bytes=id_bytes,
                unknown_charset=charset,
                names=self._names,
            )
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
