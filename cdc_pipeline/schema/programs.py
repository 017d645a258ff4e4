"""What of a server writes when a statement does: triggers, views, routines, cascading foreign keys.

Rules:
- Names are compared as words, without their databases and in any case, and every table that a body
  names counts as written: one table too many is a snapshot, one too few a lost change.
- A body that cannot be read may write every table, and so may one that prepares statements.
- A catalog holds for an earlier place of the log unless programs were dropped or changed in
  between. A table that was dropped or renamed since has taken its triggers along.

Source: MySQL 9.7 and MariaDB 10.11 manuals, information_schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.text.table_names import NameRule

TableName = tuple[str, str]

_WORD: Final = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_DYNAMIC: Final = frozenset({"prepare", "execute"})


def words(text: str) -> frozenset[str]:
    """Whoever names a table has all words of its name."""
    return frozenset(_WORD.findall(NameRule.LOWER.fold(text)))


class ProgramKind(Enum):
    TRIGGER = auto()  # its table is written
    VIEW = auto()  # it is written, or read
    ROUTINE = auto()  # it is named anywhere


@dataclass(frozen=True, slots=True)
class Program:
    """A trigger, a view, a routine, or a cascading foreign key (a trigger of its parent).

    `name` has the words of its own, of a trigger its table's, without the database; `body` those
    that name what it writes, None if it may be any table.
    """

    kind: ProgramKind
    name: frozenset[str]
    body: frozenset[str] | None

    @classmethod
    def of(cls, kind: ProgramKind, name: str, body: str | None) -> Program:
        """From texts; `body` is None if it cannot be read."""
        named = None if body is None else words(body)
        if named is not None and kind is ProgramKind.ROUTINE and named & _DYNAMIC:
            named = None
        return cls(kind, words(name), named)

    def takes_part(self, named: set[str], writes: set[str]) -> bool:
        return self.name <= writes or (self.kind is not ProgramKind.TRIGGER and self.name <= named)

    def may_write(self, writes: set[str]) -> bool:
        """Given that it takes part: a view that is only read does not."""
        return self.kind is ProgramKind.ROUTINE or self.name <= writes


@dataclass(frozen=True, slots=True)
class Disturbance:
    """After such a statement the catalog no longer shows what there was before: `table` was
    dropped or renamed; "" if any program may have changed.
    """

    journal: str
    offset: int
    table: str


class StoredPrograms:
    """All programs of a server, with what disturbed them in the log that is read."""

    def __init__(
        self, programs: Iterable[Program], disturbances: Iterable[Disturbance] = ()
    ) -> None:
        self._by_word: dict[str, list[Program]] = {}
        for program in programs:
            self._by_word.setdefault(min(program.name, default=""), []).append(program)
        self._disturbances = [
            (journal_number(disturbance.journal), disturbance.offset, words(disturbance.table))
            for disturbance in disturbances
        ]

    def reached(
        self,
        among: Collection[TableName],
        *,
        sql: str,
        written: Collection[TableName] | None,
        journal: str,
        offset: int,
    ) -> tuple[TableName, ...]:
        """Those that a statement at a place of the log may write through programs. `written` are
        tables that it writes itself; None if its text does not show them.
        """
        writes = self._written(sql, written)
        if writes is None:
            return tuple(among)
        place = journal_number(journal), offset
        if any(
            (number, at) > place and (not table or table <= writes)
            for number, at, table in self._disturbances
        ):
            return tuple(among)
        return tuple(table for table in among if words(table[1]) <= writes)

    def _written(self, sql: str, written: Collection[TableName] | None) -> set[str] | None:
        """The words of all tables that may be written; None for any table."""
        named = set(words(sql))
        writes = set(named)
        if written is not None:
            writes = {word for _, table in written for word in words(table)}
        size = -1
        while size != (size := len(named) + len(writes)):
            for word in ("", *named, *writes):
                for program in self._by_word.get(word, ()):
                    if not program.takes_part(named, writes):
                        continue
                    if program.body is None:
                        return None
                    named |= program.body
                    if program.may_write(writes):
                        writes |= program.body
        return writes
