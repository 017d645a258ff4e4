"""What the server's tables held at each place of its log: its own SELECT after every transaction
and every DDL."""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.campaigns.sink.column_types import plain, shown

Place = tuple[str, int]  # journal, offset
Row = tuple[Any, ...]


@dataclass(frozen=True)
class State:
    """A table from a place on; `columns` is None where it does not exist."""

    place: Place
    columns: tuple[str, ...] | None
    rows: tuple[Row, ...] = ()


@dataclass
class Oracle:
    """States of all tables, by full name, each list ascending by place."""

    states: dict[str, list[State]] = field(default_factory=lambda: defaultdict(list))

    def note(self, cursor: Any, database: str, table: str, place: Place) -> None:
        cursor.execute(
            "SELECT COLUMN_NAME, LOWER(DATA_TYPE) FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            (database, table),
        )
        columns = cursor.fetchall()
        found = self.states[f"{database}.{table}"]
        if not columns:
            found.append(State(place, None))
            return
        listed = ", ".join(shown(name, data_type) for name, data_type in columns)
        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in (database, table))
        cursor.execute(f"SELECT {listed} FROM {quoted}")
        rows = [tuple(plain(value) for value in row) for row in cursor.fetchall()]
        found.append(
            State(place, tuple(name for name, _ in columns), tuple(sorted(rows, key=repr)))
        )

    def before(self, state: State) -> State | None:
        states = next(
            states for states in self.states.values() if any(one is state for one in states)
        )
        earlier = [one for one in states if one.place < state.place]
        return earlier[-1] if earlier else None

    def at(self, table: str, place: Place) -> State | None:
        """The table as of a place of the log; None before it was first seen."""
        states = self.states.get(table, [])
        index = bisect.bisect_right([state.place for state in states], place)
        return states[index - 1] if index else None
