"""The schema history of one source: which columns a table has at which place of its log.

Rules:
- A version holds from its place (epoch, journal number, offset) up to the table's next one. Lookups
  are by place, so later versions never change an answer.
- It records its origin: a table map with full metadata, a DDL, or the server's catalog. A version
  without a schema says why nothing is known from there on; it is never skipped over.
- Places of two servers' logs cannot be compared, so a version never answers for another epoch. What
  goes on in another server's log at the same transaction restates the versions there (`restate`);
  otherwise that log starts empty.
- A schema from DDL or catalog has no wire types: what the wire holds comes from each table map.
- It consists of plain values: `to_json` and `from_json` are inverse; the sink stores it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from cdc_pipeline.binlog.seq import epoch_of
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.schema.generated import GeneratedColumn

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Origin(StrEnum):
    TABLE_MAP = "table_map"
    DDL = "ddl"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class Version:
    """A table from one place on.

    Attributes:
        place: a seq (`binlog.seq`).
        schema: its columns and key; None if they are unknown (`why`) or there is no table.
        charset: default charset of the table's text columns; "" if unknown.
        why: why there is no schema; of a database `CREATED` or "".
        time_us: commit time of its origin at the source, microseconds since 1970; -1 if unknown.
        generated: its generated columns, which no table map shows; None if unknown.
        renamed_from: the table's name before, ``schema.table``, where a RENAME begins the version.
        columns_from: names that are not of the columns that had them before: each with the one
            that its column had, "" of a new column.
    """

    place: int
    origin: Origin
    schema: TableSchema | None
    charset: str = ""
    why: str = ""
    time_us: int = -1
    generated: tuple[GeneratedColumn, ...] | None = None
    renamed_from: str = ""
    columns_from: tuple[tuple[str, str], ...] = ()

    @property
    def is_renaming(self) -> bool:
        return bool(self.renamed_from or self.columns_from)

    def restated(self, place: int) -> Version:
        """That holds at a later place, too, and renames nothing there."""
        if place == self.place:
            return self
        return replace(self, place=place, renamed_from="", columns_from=())

    def names_before(self, names: Sequence[str]) -> tuple[str, ...]:
        """Of columns by their names from here on; "" of a new one."""
        before = {name.lower(): of for name, of in self.columns_from}
        return tuple(before.get(name.lower(), name) for name in names)

    def names_after(self, names: Sequence[str]) -> tuple[str, ...]:
        """Of columns by their names before; "" of one whose name another one has now."""
        after = {of.lower(): name for name, of in self.columns_from}
        taken = {name.lower(): "" for name, _ in self.columns_from}
        return tuple((taken | after).get(name.lower(), name) for name in names)


TableKey = tuple[str, str]  # database, table; ("db", "") holds a database's default charset


@dataclass
class SchemaHistory:
    """Each table's in the order of their places; `changed` since it was read or saved."""

    changed: bool = False
    _versions: dict[TableKey, list[Version]] = field(default_factory=dict)

    def at(self, database: str, table: str, place: int) -> Version | None:
        versions = self._versions.get((database, table), ())
        index = bisect_right(versions, place, key=lambda version: version.place)
        if not index or epoch_of(versions[index - 1].place) != epoch_of(place):
            return None
        return versions[index - 1]

    def add(self, database: str, table: str, version: Version) -> None:
        """Replaces one for the same place."""
        versions = self._versions.setdefault((database, table), [])
        index = bisect_right(versions, version.place, key=lambda known: known.place)
        if index and versions[index - 1].place == version.place:
            if versions[index - 1] == version:
                return
            versions[index - 1] = version
        else:
            versions.insert(index, version)
        self.changed = True

    def know_generated(
        self, database: str, table: str, place: int, generated: tuple[GeneratedColumn, ...]
    ) -> None:
        """From `place` on, unless a later DDL of the table is known."""
        in_force = self.at(database, table, place)
        later = [version for version in self.versions(database, table) if version.place > place]
        for version in (() if in_force is None else (in_force,)) + tuple(later):
            if version.schema is not None and version.generated is None:
                self.add(
                    database,
                    table,
                    replace(version.restated(max(place, version.place)), generated=generated),
                )

    def versions(self, database: str, table: str) -> tuple[Version, ...]:
        return tuple(self._versions.get((database, table), ()))

    def tables(self) -> Iterator[TableKey]:
        return (key for key in self._versions if key[1])

    def restate(self, left: int, place: int) -> None:
        """Let what holds at `left` hold at `place` too, where another log goes on from there. A
        table that is known from just there keeps what is known.
        """
        for key, known in list(self._versions.items()):
            version = self.at(*key, left)
            if version is not None and all(restated.place != place for restated in known):
                self.add(*key, version.restated(place))

    def up_to(self, place: int) -> SchemaHistory:
        """Without versions after `place`; reading will add them again."""
        return self._rebuilt(
            {key: [v for v in known if v.place <= place] for key, known in self._versions.items()}
        )

    def compacted(self, oldest: int, *, keep_since_us: int) -> SchemaHistory:
        """Without versions that are no longer needed: of each table the one that holds at `oldest`,
        the earliest place that is read again (cursor, suspended targets, open XA transactions),
        stays, and so does all that is later or was committed since `keep_since_us`. Of a table that
        stays the last names, of it and its columns, are kept, without columns.
        """
        kept = {}
        for key, known in self._versions.items():
            first = bisect_right(known, oldest, key=lambda version: version.place) - 1
            while first > 0 and known[first].time_us >= keep_since_us >= 0:
                first -= 1
            rest = known[max(first, 0) :]
            # A table that was dropped before all of that is forgotten.
            gone = (
                len(rest) == 1
                and rest[0].schema is None
                and rest[0].place <= oldest
                and rest[0].why == DROPPED
            )
            kept[key] = [] if gone else [*_renames(known[: max(first, 0)]), *rest]
        return self._rebuilt(kept)

    def _rebuilt(self, versions: dict[TableKey, list[Version]]) -> SchemaHistory:
        kept = {key: known for key, known in versions.items() if known}
        lost = sum(map(len, self._versions.values())) - sum(map(len, kept.values()))
        return SchemaHistory(self.changed or lost > 0, kept)

    def to_json(self) -> str:
        tables = [
            _Table(database, table, tuple(versions))
            for (database, table), versions in sorted(self._versions.items())
        ]
        return _adapter().dump_json(_File(tables)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> SchemaHistory:
        """Raises ValueError on any text but that of `to_json`."""
        file = _adapter().validate_json(text)
        return cls(
            _versions={(known.database, known.table): list(known.versions) for known in file.tables}
        )


def _renames(versions: Sequence[Version]) -> list[Version]:
    """And where it was not known, since names before say nothing of those after; the first one
    tells since when all of them are known.
    """
    first = versions[:1]
    renamed = [one for one in versions[1:] if one.is_renaming or one.schema is None]
    renamed = [*first, *renamed]
    return [
        replace(one, schema=None, generated=None, why=one.why or KEPT_FOR_ITS_NAME)
        for one in renamed[-_RENAMES_MAX:]
    ]


@dataclass(frozen=True, slots=True)
class _Table:
    database: str
    table: str
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class _File:
    tables: list[_Table]
    format: Literal[2] = 2


@cache
def _adapter() -> TypeAdapter[_File]:
    from pydantic import TypeAdapter  # late: `cdc-pipeline binlog` stores no history

    return TypeAdapter(_File)


DROPPED: Final = "the table was dropped"
KEPT_FOR_ITS_NAME: Final = "its columns then were forgotten"
_RENAMES_MAX: Final = 16  # of a table; a nightly swap adds one a day
# Of a database: all of its tables are known.
CREATED: Final = "the database was created"
