"""What a DDL does to the rows of a table without row events, for the slow twins: the default
policies (docs/tables/ddl.md).

Rules:
- A renamed column has the new name in every image that there ever was; a dropped one is in none:
  the target keeps its old values, which nothing at the source speaks of any more.
- A type that grows keeps the values; of FLOAT to DOUBLE they are written with more digits.
- TRUNCATE takes all rows, in one place of the log's order. A renamed table goes on under its new
  name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.campaigns.sink.changes import Change, Values
from tests.campaigns.sink.oracle import Place


@dataclass(frozen=True)
class Alteration:
    """One DDL. `columns`: the new name of a column, None where it is dropped; `doubled`: a FLOAT
    column that becomes DOUBLE; `truncates`: all rows go; `moves_to`: the table's full name from
    now on; `keys`: the key before and after.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    doubled: str = ""
    truncates: bool = False
    moves_to: str = ""
    keys: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def row(self, row: Values) -> Values:
        """A row, or an image of one, as it stands afterwards."""
        renamed = {name: self.columns.get(name, name) for name in row}
        found = {new: row[old] for old, new in renamed.items() if new is not None}
        if found.get(self.doubled) is not None:
            found[self.doubled] = repr(float(np.float32(found[self.doubled])))
        return found

    def names(self, names: Sequence[str]) -> list[str]:
        return [new for new in (self.columns.get(name, name) for name in names) if new is not None]

    def key(self, key: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.names(key)) if self.keys is None else self.keys[1]


class AlteringSql(str):
    alteration: Alteration

    def __new__(cls, sql: str, alteration: Alteration) -> AlteringSql:
        made = super().__new__(cls, sql)
        made.alteration = alteration
        return made


@dataclass(frozen=True)
class Altered:
    """An alteration that the server took. `table`: full name, before the statement; `place`: end of
    the statement's event.
    """

    table: str
    place: Place
    alteration: Alteration


Item = Change | Altered


def items_of(
    table: str, place: Place, changes: Mapping[str, Sequence[Change]], altered: Sequence[Altered]
) -> list[Item]:
    """Changes and alterations of a table before a place, in the log's order, under all names that
    it has had."""
    moves = [one for one in altered if one.alteration.moves_to == table and one.place <= place]
    begin = moves[-1].place if moves else ("", 0)
    items: list[Item] = [
        change for change in changes.get(table, ()) if begin <= change.place < place
    ]
    items += [
        one
        for one in altered
        if one.table == table and begin < one.place <= place and not one.alteration.moves_to
    ]
    items.sort(key=lambda item: item.place)  # the sort keeps the order of the rows of one event
    return (items_of(moves[-1].table, begin, changes, altered) if moves else []) + items


def first_key(items: Sequence[Item], key: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as they were called before all items, from those that they have after
    them."""
    for item in reversed(items):
        if isinstance(item, Altered):
            if item.alteration.keys is not None:
                key = item.alteration.keys[0]
            old = {new: name for name, new in item.alteration.columns.items()}
            key = [old.get(name) or name for name in key]
    return tuple(key)
