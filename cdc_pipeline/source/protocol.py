"""The contract of a source, live or archived.

Rules:
- The end of a capture is fixed before reading (`end_position`), and `chunks` stops exactly there.
  It never waits for idleness, since writers may never pause. Chunks end at event boundaries; a
  transaction may span chunks.
- Artificial events are not delivered. Chunks of one journal come in order; the next journal's first
  event is its format description at offset 4.
- Nothing is read from the log before `check` has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.position.position import Position, ServerIdentity
from cdc_pipeline.schema.catalog import Catalog
from cdc_pipeline.schema.programs import StoredPrograms


@dataclass(frozen=True, slots=True)
class JournalInfo:
    journal: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlacedCatalog:
    """`last_ddl` has journal and offset of the last DDL of each table between the requested
    place and the catalog's reading; DDL of a database is under (database, "").
    """

    catalog: Catalog
    last_ddl: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """Of a read, in a directory of journals; it goes on behind `end` if that is before its own."""

    directory: Path
    start: Position
    end: Position


class Source(Protocol):
    """A log that can be read from a position to an end fixed in advance."""

    @property
    def identity(self) -> ServerIdentity:
        """The server that wrote the journals."""

    @property
    def uses_gtids(self) -> bool:
        """Whether every new transaction of the log has a GTID."""

    @property
    def is_archive(self) -> bool:
        """Whether all is read from files: no server knows the tables or skips transactions."""

    def journal_created_s(self, journal: str) -> int:
        """Seconds since 1970. Raises JournalMissingError: purged, deleted or never there."""

    def check(self) -> None:
        """Check settings and grants, or the directory and its journals. Raises
        ServerUnreachableError, ServerSettingError, MissingGrantError, JournalMissingError.
        """

    def journals(self) -> list[JournalInfo]:
        """All that can be read, oldest first."""

    def end_position(self) -> Position:
        """With the executed GTIDs; of an archive the end of its last whole transaction."""

    def earliest_position(self) -> Position:
        """The start of the oldest journal, with the GTID set that precedes it."""

    def validate_position(self, position: Position) -> None:
        """Check that `position` is an event boundary of a journal that still exists. Raises
        JournalMissingError: purged, deleted or never there; PositionError: inside an event, or past
        the end; SourceIdentityError: the log was reset, its journal is another one.
        """

    def reasons(self, start: Position) -> tuple[str, ...]:
        """Of a plan for how `start` is read, beyond the start's own; mostly none."""

    def tables(self) -> list[str] | None:
        """``schema.table`` of the base tables that the account can see; None if not known."""

    def catalog(
        self, captured: Callable[[str, str], bool], *, since: Position
    ) -> PlacedCatalog | None:
        """The captured tables with the DDL between `since` and now; None if not known. May be
        called while `chunks` runs.
        """

    def programs(self, *, since: Position) -> StoredPrograms | None:
        """The server's triggers, views, routines and cascading foreign keys, with what changed them
        between `since` and now; None if it does not know all. May be called while `chunks` runs.
        """

    def prepared_xids(self) -> frozenset[str] | None:
        """Canonical xids of the prepared XA transactions; None if not known."""

    def warnings(self, tables: Sequence[str]) -> tuple[str, ...]:
        """Changes of the captured `tables` (``schema.table``) that the log does not show, and
        settings that would help: a sentence each.
        """

    def chunks(self, start: Position, end: Position) -> Iterator[Chunk]:
        """Yield all events from `start` up to `end`.

        With a GTID set in `start` and a live server that has GTIDs, the dump is by GTID set,
        else by journal and offset. Raises BinlogError, SourceError: with journal and offset;
        everything before was delivered.
        """

    def archived(self, start: Position, end: Position) -> ArchivedPart | None:
        """What `chunks` reads from files; None if a server sends all. Raises as `chunks`."""

    def ends_closed(self, position: Position) -> bool:
        """Whether the event that ends there, at its journal's end, is ROTATE or STOP (K5)."""

    def close(self) -> None:
        """May be called twice, and from another thread to stop `chunks`."""
