"""Table maps of transactions (SPEC C1-C3): the table and schema of each rows event of a slice.

Rules:
- Table ids are valid inside one transaction only and are forgotten at its end (C2). A cache by
  content, the exact bytes of a table map without its table id, outlives it, so that a repeated map
  is not parsed again.
- A transaction that continues in later slices keeps its maps.
- Of the map of a table that is not captured, only the name is parsed. A sequence, which MariaDB
  logs as a table, is never captured.
- A map that does not describe all of its columns is completed from the schema history at its log
  position, because the same content may mean another schema after a DDL. (A slice never spans a DDL
  of a captured table.)
- Rows without a table map are an error that names where to start again (C3); nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import EventSlice, JournalFormat, Role
from cdc_pipeline.binlog.event_types import EventType, event_name
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.binlog.tables.table_map import TableName
from cdc_pipeline.binlog.tables.table_map_resolution import CARRIED, resolve_maps
from cdc_pipeline.errors import (
    DamagedJournalError,
    MetadataMissingError,
    SchemaError,
    TableIdNotFoundError,
)
from cdc_pipeline.text.table_names import NameRule

_CACHED_MAPS_MAX: Final = 4096
_NO_TRANSACTION: Final = -2


@dataclass(frozen=True, slots=True)
class RowsGroup:
    """Of a slice, of one form of one table. `schema`: None if it is not captured; `key`: the table
    map without its id: equal keys mean equal schemas; `rows`: int64, into ``piece.chunk.events``,
    in order.
    """

    database: str
    table: str
    schema: TableSchema | None
    key: bytes
    rows: NDArray[np.int64]


class KnownSchemas(Protocol):
    """Lookup of tables in the schema history."""

    def known(self, database: str, table: str, journal: str, offset: int) -> TableSchema | None:
        """The table's schema at a log position; None if it is not known."""

    def why_unknown(self, database: str, table: str, journal: str, offset: int) -> str:
        """Why the schema is not known."""

    def observed(self, schema: TableSchema, journal: str, offset: int) -> None:
        """Take the schema of a captured table's map when its content appears for the first time."""


@dataclass(frozen=True, slots=True)
class _KnownMap:
    """A parsed table map; `schema` is None if the table was not captured when it was parsed.
    `known_schema` is the answer of the schema history if `needs_schema`.
    """

    key: bytes
    database: str
    table: str
    schema: TableSchema | None
    needs_schema: bool = False
    known_schema: TableSchema | None = None


MapsMark: TypeAlias = tuple[str, int, int, dict[int, _KnownMap]]


class TableMaps:
    """Of consecutive slices of one source. `schemas` completes maps that do not describe
    everything (row metadata below FULL; MariaDB's UUID, INET4, INET6); `completes` those that it
    does not, from name, parser, known schema and error. With it, sequences are shown as logged.
    """

    def __init__(
        self,
        captured: Callable[[str, str], bool],
        *,
        schemas: KnownSchemas | None = None,
        completes: Callable[
            [TableName, Callable[..., TableSchema], TableSchema | None, SchemaError], TableSchema
        ]
        | None = None,
        names: NameRule = NameRule.AS_GIVEN,
    ) -> None:
        self._captured = captured
        self._completes = completes
        self._names = names
        self._schemas = schemas
        self._known: dict[tuple[bool, bytes], _KnownMap] = {}
        self.reset()

    def reset(self) -> None:
        """Forget the open transaction, because the next slice begins elsewhere."""
        self._journal = ""
        self._tx_offset = _NO_TRANSACTION
        self._safe_offset = -1
        self._carried: dict[int, _KnownMap] = {}

    def mark(self) -> MapsMark:
        return self._journal, self._tx_offset, self._safe_offset, dict(self._carried)

    def rewind(self, mark: MapsMark) -> None:
        """Restore the state of `mark`, so that the slices since then can be resolved again."""
        self._journal, self._tx_offset, self._safe_offset, carried = mark
        self._carried = dict(carried)

    @property
    def safe_offset(self) -> int:
        """The offset of the first table map of the open transaction (C2); -1 if there is none."""
        return self._safe_offset

    def resolve(self, piece: EventSlice) -> list[RowsGroup]:
        """By table and schema, in order of first appearance. TableIdNotFoundError: no table map in
        the transaction; DamagedJournalError, MetadataMissingError, UnknownColumnTypeError,
        SchemaError: that of a captured table cannot be used.
        """
        chunk, events = piece.chunk, piece.events
        if not len(events):
            return []
        if chunk.journal != self._journal:
            self.reset()
            self._journal = chunk.journal
        id_bytes = chunk.journal_format.table_id_bytes
        carried = list(self._carried.items())
        map_of, same_as, missing = resolve_maps(
            chunk.data,
            events,
            chunk.journal_format.checksum_bytes,
            id_bytes,
            np.array([table_id for table_id, _ in carried], dtype=np.int64),
            self._tx_offset,
        )
        if missing >= 0:
            raise self._not_found(piece, missing)
        by_first = {
            first: self._known_map(piece, first, id_bytes, chunk.journal_format)
            for first in np.unique(same_as[same_as >= 0]).tolist()
        }
        groups = self._groups(piece, map_of, same_as, by_first, [known for _, known in carried])
        self._carry(events, same_as, by_first)
        return groups

    def _groups(
        self,
        piece: EventSlice,
        map_of: NDArray[np.int64],
        same_as: NDArray[np.int64],
        by_first: dict[int, _KnownMap],
        carried: list[_KnownMap],
    ) -> list[RowsGroup]:
        rows = np.flatnonzero((map_of >= 0) | (map_of <= CARRIED))
        if not len(rows):
            return []
        sources = map_of[rows]
        inside = sources >= 0
        sources[inside] = same_as[sources[inside]]
        # One group per content: a map from an earlier slice and one of this slice may be equal.
        found: dict[bytes, tuple[_KnownMap, list[NDArray[np.int64]]]] = {}
        distinct, first_at = np.unique(sources, return_index=True)
        for source in distinct[np.argsort(first_at)].tolist():
            known = by_first[source] if source >= 0 else carried[CARRIED - source]
            found.setdefault(known.key, (known, []))[1].append(rows[sources == source])
        return [
            RowsGroup(
                database=known.database,
                table=known.table,
                schema=known.schema,
                key=known.key,
                rows=(parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts)))
                + piece.first,
            )
            for known, parts in found.values()
        ]

    def _known_map(
        self, piece: EventSlice, index: int, id_bytes: int, journal_format: JournalFormat
    ) -> _KnownMap:
        chunk, row = piece.chunk, piece.first + index
        body = bytes(chunk.body(row))
        key = body[id_bytes:]
        cache_key = (journal_format.is_mariadb, key)
        known = self._known.get(cache_key)
        offset = int(chunk.events["offset"][row])
        if known is not None and self._is_current(known, chunk.journal, offset):
            return known
        try:
            name = table_map.table_name(body, table_id_bytes=id_bytes, names=self._names)
        except ValueError as error:
            raise DamagedJournalError(
                "a table map is truncated",
                at=(chunk.journal, offset),
                got=error,
            ) from None
        schema = known_schema = None
        needs_schema = False
        is_mariadb = journal_format.is_mariadb
        if self._captured(name.database, name.table):
            if self._schemas is not None:
                needs_schema = table_map.needs_schema(
                    body, is_mariadb=is_mariadb, table_id_bytes=id_bytes
                )
            if needs_schema:
                known_schema = self._known_schema(name.database, name.table, chunk.journal, offset)
            is_sequence = (
                self._completes is None
                and needs_schema
                and known_schema is None
                and is_mariadb
                and table_map.may_be_sequence(body, table_id_bytes=id_bytes)
            )
            if not is_sequence:
                parse = partial(
                    table_map.parse,
                    body,
                    journal=chunk.journal,
                    offset=offset,
                    is_mariadb=is_mariadb,
                    table_id_bytes=id_bytes,
                    names=self._names,
                )
                schema, again = self._parsed(parse, name, known_schema, chunk.journal, offset)
                needs_schema |= again
        if len(self._known) >= _CACHED_MAPS_MAX:
            self._known.clear()
        known = self._known[cache_key] = _KnownMap(
            key, name.database, name.table, schema, needs_schema, known_schema
        )
        return known

    def _parsed(
        self,
        parse: Callable[..., TableSchema],
        name: TableName,
        known: TableSchema | None,
        journal: str,
        offset: int,
    ) -> tuple[TableSchema, bool]:
        """Whether it is to be parsed again at its next place: a statement before may tell more."""
        try:
            schema = parse(known=known)
            if self._schemas is not None:
                self._schemas.observed(schema, journal, offset)
        except SchemaError as error:
            if self._completes is not None:
                return self._completes(name, parse, known, error), True
            is_bare = isinstance(error, MetadataMissingError) and known is None
            if is_bare and self._schemas is not None:
                why = self._schemas.why_unknown(name.database, name.table, journal, offset)
                error.got = (
                    f"{error.got}; the schema history does not know the table at this "
                    f"position: {why}"
                )
            raise
        return schema, False

    def _is_current(self, known: _KnownMap, journal: str, offset: int) -> bool:
        """A table that was passed by may be captured since, and what the history says may have
        changed."""
        if known.needs_schema:
            return known.known_schema == self._known_schema(
                known.database, known.table, journal, offset
            )
        return known.schema is not None or not self._captured(known.database, known.table)

    def _known_schema(
        self, database: str, table: str, journal: str, offset: int
    ) -> TableSchema | None:
        return (
            None if self._schemas is None else self._schemas.known(database, table, journal, offset)
        )

    def _carry(
        self, events: np.ndarray, same_as: NDArray[np.int64], by_first: dict[int, _KnownMap]
    ) -> None:
        """Those of the transaction that may continue after this slice."""
        last = events[-1]
        tx_offset = int(last["tx_offset"])
        if tx_offset < 0 or last["role"] in (Role.TRANSACTIONEND, Role.ROLLBACK, Role.XA_PREPARE):
            journal = self._journal
            self.reset()
            self._journal = journal
            return
        if tx_offset != self._tx_offset:
            self._tx_offset, self._safe_offset, self._carried = tx_offset, -1, {}
        maps = np.flatnonzero((same_as >= 0) & (events["tx_offset"] == tx_offset))
        if not len(maps):
            return
        if self._safe_offset < 0:
            self._safe_offset = int(events["offset"][maps[0]])
        # Find the latest map of each table id without a loop over events: the first of each id in
        # reverse order.
        ids, from_behind = np.unique(events["table_id"][maps[::-1]], return_index=True)
        for table_id, row in zip(ids.tolist(), maps[::-1][from_behind].tolist(), strict=True):
            self._carried[table_id] = by_first[int(same_as[row])]

    def _not_found(self, piece: EventSlice, index: int) -> TableIdNotFoundError:
        events = piece.events
        event = events[index]
        tx_offset = int(event["tx_offset"])
        before = events[:index]
        maps = before[
            (before["event_type"] == EventType.TABLE_MAP) & (before["tx_offset"] == tx_offset)
        ]
        safe_offset = self._safe_offset if tx_offset == self._tx_offset else -1
        if safe_offset < 0 and len(maps):
            safe_offset = int(maps["offset"][0])
        known = sorted(
            {*maps["table_id"].tolist(), *(self._carried if tx_offset == self._tx_offset else ())}
        )
        first_map = f", its first table map at offset {safe_offset}" if safe_offset >= 0 else ""
        return TableIdNotFoundError(
            f"rows refer to table id {int(event['table_id'])}, which has no table map in "
            "their transaction",
            at=(piece.chunk.journal, int(event["offset"])),
            expected=f"one of the table ids {known}" if known else "a table map before the rows",
            got=f"{event_name(int(event['event_type']))}; the transaction begins at offset "
            f"{tx_offset}{first_map}",
            next_step=f"read again from {piece.chunk.journal} at offset {tx_offset}, the "
            "transaction's beginning",
        )
