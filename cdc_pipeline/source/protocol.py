"""The contract of a source, live or archived.

Rules:
- The end of a capture is fixed before reading (`end_position`), and `chunks` stops exactly there.
  It never waits for idleness, since writers may never pause. Chunks end at event boundaries; a
  transaction may span chunks.
- Artificial events are not delivered. Chunks of one journal come in order; the next journal's first
  event is its format description at offset 4.
- Nothing is read from the log before `check` has passed.
- What a source does not know it inherits from here: an archive's tables and columns are what CREATE
  TABLE in its journals says, and it does not know what has happened since.
"""

# Arguments are for those that know more.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cdc_pipeline.position.position import Position
from cdc_pipeline.position.start.context import Log
from cdc_pipeline.schema.catalog import Catalog
from cdc_pipeline.schema.programs import StoredPrograms


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


class Source(Log, Protocol):
    """A log that can be read from a position to an end fixed in advance."""

    def check(self) -> None:
        """Check settings and grants, or the directory and its journals. Raises
        ServerUnreachableError, ServerSettingError, MissingGrantError, JournalMissingError.
        """

    def reasons(self, start: Position) -> tuple[str, ...]:
        """Of a plan for how `start` is read, beyond the start's own; mostly none."""
        return ()

    def tables(self) -> list[str] | None:
        """``schema.table`` of the base tables that the account can see; None if not known."""
        return None

    def catalog(
        self, captured: Callable[[str, str], bool], *, since: Position
    ) -> PlacedCatalog | None:
        """The captured tables with the DDL between `since` and now; None if not known. May be
        called while `chunks` runs.
        """
        return None

    def programs(self, *, since: Position) -> StoredPrograms | None:
        """The server's triggers, views, routines and cascading foreign keys, with what changed them
        between `since` and now; None if it does not know all. May be called while `chunks` runs.
        """
        return None

    def prepared_xids(self) -> frozenset[str] | None:
        """Canonical xids of the prepared XA transactions; None if not known."""
        return None

    def warnings(self, tables: Sequence[str]) -> tuple[str, ...]:
        """Changes of the captured `tables` (``schema.table``) that the log does not show, and
        settings that would help: a sentence each.
        """
        return ()

    def archived(self, start: Position, end: Position) -> ArchivedPart | None:
        """What `chunks` reads from files; None if a server sends all. Raises as `chunks`."""
        return None

    def ends_closed(self, position: Position) -> bool:
        """Whether the event that ends there, at its journal's end, is ROTATE or STOP (K5)."""

    def close(self) -> None:
        """May be called twice, and from another thread to stop `chunks`."""
