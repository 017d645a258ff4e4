"""A scripted source: journals of random transactions, made event by event, and what the tables hold
after each of them.

Three tables with a key and a value in one schema; transactions insert, update, delete and move keys
in several of them. DDL adds a column, a truncation empties a table. The log is MySQL's, with GTIDs;
each journal but the last ends with ROTATE. A replica that takes over has the same transactions in
journals of its own.

Source: MySQL's event formats: TABLE_MAP, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS of version 2, GTID,
PREVIOUS_GTIDS, QUERY, XID, ROTATE.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.support.event_builder import gtid_body, query_body
from tests.support.journal_builder import JournalBuilder

TABLES: Final = ("a", "b", "c")
_QUERY, _ROTATE, _XID, _TABLE_MAP, _GTID, _PREVIOUS_GTIDS = 2, 4, 16, 19, 33, 35
_WRITE, _UPDATE, _DELETE = 30, 31, 32
_LONG = 3
_FIRST_SERVER = 7

Row = tuple[int | None, ...]


@dataclass(frozen=True)
class State:
    """What the database holds behind a place of the log.

    Attributes:
        place: number of the journal, and offset in it.
        rows: by table and key.
        changes: how many rows were changed so far, by table; a truncation counts as one.
    """

    place: tuple[int, int]
    rows: dict[str, dict[int, Row]]
    changes: dict[str, int]


@dataclass(frozen=True)
class _Transaction:
    """A transaction of the log: the server that executed it first, and type and body of its
    events."""

    server_id: int
    events: tuple[tuple[int, bytes], ...]


@dataclass
class World:
    """The database and its log.

    Attributes:
        states: after each transaction, in the order of the log; the first is before all.
        states_on: the same by server, with the places of its log.
    """

    folder: Path
    chance: random.Random
    states: list[State] = field(default_factory=list)
    states_on: dict[int, list[State]] = field(default_factory=dict)
    _server_id: int = _FIRST_SERVER
    _journals: list[JournalBuilder] = field(default_factory=list)
    _transactions: list[_Transaction] = field(default_factory=list)
    _open: list[tuple[int, bytes]] = field(default_factory=list)  # events so far
    _gno: int = 0
    _columns: dict[str, int] = field(default_factory=dict)
    _tables: int = 70  # ids of table maps

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self._begin_log()
        for table in TABLES:
            self._ddl(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", {table: {}})
            self._columns[table] = 2
        self._write()

    @property
    def _log(self) -> JournalBuilder:
        return self._journals[-1]

    def advance(self, transactions: int) -> None:
        """Let the database go on by so many transactions."""
        for _ in range(transactions):
            what = self.chance.random()
            if what < 0.03:
                self._rotate()
            elif what < 0.07:
                self._add_column(self.chance.choice(TABLES))
            elif what < 0.09:
                table = self.chance.choice(TABLES)
                self._ddl(f"TRUNCATE TABLE {table}", {table: {}})
            else:
                self._transaction()
        self._write()

    def fail_over(self, chance: random.Random) -> None:
        """Let a replica take over that has all transactions, in journals as `chance` has them."""
        for number in range(1, len(self._journals) + 1):
            self._file(number).unlink(missing_ok=True)
        self._server_id += 1
        transactions, states = self._transactions, self.states
        self._journals, self._transactions = [], []
        self._begin_log()
        for transaction, state in zip(transactions, states[1:], strict=True):
            if chance.random() < 0.05:
                self._rotate()
            self._open = list(transaction.events)
            self._log_open(transaction.server_id)
            self.states.append(replace(state, place=self._place()))
        self._write()

    def _transaction(self) -> None:
        rows = dict(self.states[-1].rows)
        changes = dict(self.states[-1].changes)
        self._gtid()
        self._event(_QUERY, query_body("BEGIN"))
        for _ in range(self.chance.randint(1, 4)):
            table = self.chance.choice(TABLES)
            content, count = self._statement(table, rows[table])
            rows[table] = content
            changes[table] = changes.get(table, 0) + count
        self._event(_XID, struct.pack("<Q", self._gno))
        self._is_at(rows, changes)

    def _statement(self, table: str, held: dict[int, Row]) -> tuple[dict[int, Row], int]:
        """Write a statement of some rows; what the table holds then, and how many it changed."""
        content, chance = dict(held), self.chance
        width = self._columns[table]
        kind = chance.choice((_WRITE, _UPDATE, _UPDATE, _DELETE)) if content else _WRITE
        images: list[bytes] = []
        count = chance.randint(1, 3)
        for _ in range(count if kind == _WRITE else min(count, len(content))):
            unused = [key for key in range(1, 40) if key not in content]
            free = chance.choice(unused or [max(content) + 1])
            new = (free, *(chance.choice((None, chance.randrange(100))) for _ in range(width - 1)))
            if kind == _WRITE:
                images.append(_image(new))
                content[free] = new
                continue
            key = chance.choice(sorted(content))
            old = content.pop(key)
            images.append(_image(old))
            if kind == _UPDATE:
                if chance.random() < 0.7:
                    new = (key, *new[1:])
                images.append(_image(new))
                content[new[0]] = new  # type: ignore[index]
        self._rows(table, kind, images, width)
        return content, len(images) // (2 if kind == _UPDATE else 1)

    def _rows(self, table: str, kind: int, images: Sequence[bytes], width: int) -> None:
        number = self._tables + TABLES.index(table)
        name = table.encode()
        head = number.to_bytes(6, "little") + struct.pack("<H", 1)
        self._event(
            _TABLE_MAP,
            head
            + b"\x04shop\0"
            + bytes([len(name)])
            + name
            + b"\0"
            + bytes([width])
            + bytes([_LONG] * width)
            + b"\0"
            + bytes([(1 << width) - 2]),
        )
        used = bytes([(1 << width) - 1]) * (2 if kind == _UPDATE else 1)
        self._event(kind, head + struct.pack("<H", 2) + bytes([width]) + used + b"".join(images))

    def _add_column(self, table: str) -> None:
        width = self._columns[table]
        if width == 6:
            return
        default = self.chance.randrange(10)
        rows = {key: (*row, default) for key, row in self.states[-1].rows[table].items()}
        self._ddl(f"ALTER TABLE {table} ADD COLUMN c{width} INT DEFAULT {default}", {table: rows})
        self._columns[table] = width + 1

    def _ddl(self, sql: str, rows: dict[str, dict[int, Row]]) -> None:
        self._gtid()
        self._event(_QUERY, query_body(sql))
        self._tables += len(TABLES)  # a server gives tables new ids after DDL
        changes = dict(self.states[-1].changes)
        if sql.startswith("TRUNCATE"):
            changes.update({table: changes.get(table, 0) + 1 for table in rows})
        self._is_at({**self.states[-1].rows, **rows}, changes)

    def _gtid(self) -> None:
        self._gno += 1
        self._event(_GTID, gtid_body(self._gno, 1_700_000_000_000_000 + self._gno * 1_000_000))

    def _event(self, event_type: int, body: bytes) -> None:
        self._open.append((event_type, body))

    def _log_open(self, server_id: int) -> None:
        """Write the open transaction, which a server of this id has executed first."""
        for event_type, body in self._open:
            self._log.event(event_type, body, server_id=server_id)
        self._transactions.append(_Transaction(server_id, tuple(self._open)))
        self._open = []

    def _is_at(self, rows: dict[str, dict[int, Row]], changes: dict[str, int]) -> None:
        self._log_open(self._server_id)
        self.states.append(State(self._place(), rows, changes))

    def _place(self) -> tuple[int, int]:
        return len(self._journals), self._log.offset

    def _rotate(self) -> None:
        name = self._file(len(self._journals) + 1).name.encode()
        self._log.event(_ROTATE, struct.pack("<Q", 4) + name)
        self._begin_journal()

    def _begin_log(self) -> None:
        self._begin_journal()
        self.states = self.states_on[self._server_id] = [State(self._place(), {}, {})]

    def _begin_journal(self) -> None:
        created_s = 1_700_000_000 + 60 * len(self._journals) + self._server_id
        log = JournalBuilder(timestamp_s=created_s, server_id=self._server_id)
        log.format_description()
        count = len(self._transactions)
        executed = bytes(range(16)) + struct.pack("<Qqq", 1, 1, count + 1)
        log.event(_PREVIOUS_GTIDS, struct.pack("<Q", bool(count)) + executed * bool(count))
        self._journals.append(log)

    def _file(self, number: int) -> Path:
        return self.folder / f"binlog.{number:06d}"

    def _write(self) -> None:
        """Put what is in the log into its files."""
        for number, log in enumerate(self._journals, start=1):
            self._file(number).write_bytes(log.data)


def _image(row: Row) -> bytes:
    nulls = sum(1 << at for at, value in enumerate(row) if value is None)
    values = b"".join(struct.pack("<i", value) for value in row if value is not None)
    return bytes([nulls]) + values
