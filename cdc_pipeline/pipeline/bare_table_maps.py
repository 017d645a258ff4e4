"""Table maps of journals whose server writes less than full row metadata, for people who have no server to ask.

Rules:
- A table map with full metadata is read as always; one without is read by `binlog.table_map_bare`.
- Every table that is read so is noted once with what was missing: nobody must take a guess for what the server wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cdc_pipeline.binlog.chunk import EventSlice, JournalFormat
from cdc_pipeline.binlog.table_map_bare import parse_bare
from cdc_pipeline.errors import MetadataMissingError
from cdc_pipeline.transaction.table_maps import TableMaps, _KnownMap

# What is shown instead of what is missing.
MEANINGS: Final = {
    "names": "columns are @1, @2 ...",
    "signs": "integers are taken as signed",
    "charsets": "texts and bytes are not told apart; they are read in the charset of --charset, or shown as hex",
    "labels": "ENUM and SET are numbers",
}


class BareTables:
    """Tables that were read without full metadata.

    Args:
        unknown_charset: see `parse_bare`.

    Attributes:
        missing: by ``schema.table``: "names", "signs", "charsets", "labels".
        on_new: told of each table when it is met first.
    """

    def __init__(self, unknown_charset: str = "utf8mb4") -> None:
        self.unknown_charset = unknown_charset
        self.missing: dict[str, tuple[str, ...]] = {}
        self.on_new: Callable[[str, tuple[str, ...]], None] = lambda _table, _missing: None

    def note(self, table: str, missing: tuple[str, ...]) -> None:
        """Remember a table."""
        if self.missing.setdefault(table, missing) is missing:
            self.on_new(table, missing)


class BareTableMaps(TableMaps):
    """As `TableMaps`; what a table map does not tell is filled in and noted."""

    def __init__(self, captured: Callable[[str, str], bool], *, bare_tables: BareTables) -> None:
        super().__init__(captured)
        self._bare_tables = bare_tables

    def _known_map(self, piece: EventSlice, index: int, id_bytes: int, journal_format: JournalFormat) -> _KnownMap:
        try:
            return super()._known_map(piece, index, id_bytes, journal_format)
        except MetadataMissingError:
            chunk, row = piece.chunk, piece.first + index
            body = bytes(chunk.body(row))
            schema, missing = parse_bare(
                body,
                journal=chunk.journal,
                offset=int(chunk.events["offset"][row]),
                is_mariadb=journal_format.is_mariadb,
                table_id_bytes=id_bytes,
                unknown_charset=self._bare_tables.unknown_charset,
            )
        self._bare_tables.note(schema.full_name, missing)
        key = body[id_bytes:]
        known = self._known[journal_format.is_mariadb, key] = _KnownMap(key, schema.database, schema.table, schema)
        return known
