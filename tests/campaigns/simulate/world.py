"""A scripted source: journals of random transactions, made event by event, and what the tables hold
after each of them.

Three tables with a key and a value in one schema; transactions insert, update, delete and move keys
in several of them. DDL adds a column, a truncation empties a table. XA transactions are prepared
and end later, in whatever run, journal or server that is, or in one phase; an xid is used again as
soon as it is free. What a prepared one has touched is locked. Transactions have savepoints and roll
back to them, some are rolled back whole, and statements concern other tables. The log is MySQL's,
with GTIDs; each journal but the last ends with ROTATE. A replica that takes over has the same
transactions in journals of its own.

Source: MySQL's event formats: TABLE_MAP, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS of version 2, GTID,
PREVIOUS_GTIDS, QUERY, XID, XA_PREPARE, ROTATE.
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
_XA_PREPARE = 38
_XIDS: Final = (b"a", b"b", b"c")
_LONG = 3
_FIRST_SERVER = 7

Row = tuple[int | None, ...]


@dataclass(frozen=True)
class State:
    """What the database holds behind a place of the log. `place`: number of the journal, and offset
    in it; `rows`: by table and key; `changes`: how many rows were changed so far, by table; a
    truncation counts as one.
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


@dataclass(frozen=True)
class _Prepared:
    """A prepared XA transaction. `touched`: keys that it holds locks on, by table; `rows`: what its
    tables hold if it is committed; `changes`: how many rows it changes, by table.
    """

    touched: dict[str, set[int]]
    rows: dict[str, dict[int, Row]]
    changes: dict[str, int]


@dataclass
class World:
    """The database and its log. `control`: decides on XA, savepoints and statements; None: there
    are none of them. `states`: after each transaction, in the order of the log; the first is
    before all. `states_on`: the same by server, with the places of its log.
    """

    folder: Path
    chance: random.Random
    control: random.Random | None = None
    states: list[State] = field(default_factory=list)
    states_on: dict[int, list[State]] = field(default_factory=dict)
    _server_id: int = _FIRST_SERVER
    _journals: list[JournalBuilder] = field(default_factory=list)
    _transactions: list[_Transaction] = field(default_factory=list)
    _open: list[tuple[int, bytes]] = field(default_factory=list)  # events so far
    _gno: int = 0
    _columns: dict[str, int] = field(default_factory=dict)
    _tables: int = 70  # ids of table maps
    _prepared: dict[bytes, _Prepared] = field(default_factory=dict)
    _touched: dict[str, set[int]] = field(default_factory=dict)  # by the open transaction

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
        for _ in range(transactions):
            if self.control is not None and self.control.random() < 0.5:
                self._control(self.control)
                continue
            what = self.chance.random()
            if what < 0.03:
                self._rotate()
                continue
            table = self.chance.choice(TABLES) if what < 0.09 else ""
            if not table or self._locked(table):
                self._transaction()
            elif what < 0.07:
                self._add_column(table)
            else:
                self._ddl(f"TRUNCATE TABLE {table}", {table: {}})
        self._write()

    def end_prepared(self) -> None:
        for xid in list(self._prepared):
            self._end_xa(xid, is_commit=bool(xid[0] % 2))
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

    def _control(self, control: random.Random) -> None:
        what, free = control.random(), [xid for xid in _XIDS if xid not in self._prepared]
        if self._prepared and what < 0.5:
            self._end_xa(control.choice(list(self._prepared)), is_commit=control.random() < 0.7)
        elif free and what < 0.85:
            self._xa(control.choice(free), one_phase=control.random() < 0.25)
        elif what < 0.95:
            self._transaction(is_rolled_back=True)
        else:
            self._gtid()
            self._event(_QUERY, query_body(f"CREATE TABLE other.t{self._gno} (id INT)"))
            self._is_at(self.states[-1].rows, self.states[-1].changes)

    def _transaction(self, *, is_rolled_back: bool = False) -> None:
        self._gtid()
        self._event(_QUERY, query_body("BEGIN"))
        rows, changes = self._body()
        if is_rolled_back:
            self._event(_QUERY, query_body("ROLLBACK"))
            self._is_at(self.states[-1].rows, self.states[-1].changes)
            return
        self._event(_XID, struct.pack("<Q", self._gno))
        self._is_at(rows, changes)

    def _xa(self, xid: bytes, *, one_phase: bool) -> None:
        self._gtid()
        self._event(_QUERY, query_body(f"XA START {_text(xid)}"))
        rows, changes = self._body()
        self._event(_QUERY, query_body(f"XA END {_text(xid)}"))
        self._event(_XA_PREPARE, struct.pack("<Biii", one_phase, 1, len(xid), 0) + xid)
        if one_phase:
            self._is_at(rows, changes)
            return
        before = self.states[-1]
        counts = {table: count - before.changes.get(table, 0) for table, count in changes.items()}
        self._prepared[xid] = _Prepared(self._touched, rows, counts)
        self._is_at(before.rows, before.changes)

    def _end_xa(self, xid: bytes, *, is_commit: bool) -> None:
        done, before = self._prepared.pop(xid), self.states[-1]
        self._gtid()
        self._event(_QUERY, query_body(f"XA {'COMMIT' if is_commit else 'ROLLBACK'} {_text(xid)}"))
        rows, changes = dict(before.rows), dict(before.changes)
        for table, keys in done.touched.items() if is_commit else ():
            others = {key: row for key, row in rows[table].items() if key not in keys}
            own = {key: row for key, row in done.rows[table].items() if key in keys}
            rows[table] = others | own
            changes[table] = changes.get(table, 0) + done.changes.get(table, 0)
        self._is_at(rows, changes)

    def _locked(self, table: str) -> set[int]:
        return {key for one in self._prepared.values() for key in one.touched.get(table, ())}

    def _body(self) -> tuple[dict[str, dict[int, Row]], dict[str, int]]:
        rows = dict(self.states[-1].rows)
        changes = dict(self.states[-1].changes)
        self._touched = {}
        for _ in range(self.chance.randint(1, 4)):
            table = self.chance.choice(TABLES)
            content, count = self._statement(table, rows[table])
            rows[table] = content
            changes[table] = changes.get(table, 0) + count
            if self.control is not None and self.control.random() < 0.2:
                self._undone(self.control, rows)
        return rows, changes

    def _undone(self, control: random.Random, rows: dict[str, dict[int, Row]]) -> None:
        """Write a savepoint, statements behind it, and that they are undone, if so."""
        self._event(_QUERY, query_body("SAVEPOINT `s`"))
        what = control.random()
        if what < 0.7:
            for _ in range(control.randint(1, 3)):
                table = control.choice(TABLES)
                self._statement(table, rows[table])
            self._event(_QUERY, query_body("ROLLBACK TO `s`"))
        if what > 0.5:
            self._event(_QUERY, query_body("RELEASE SAVEPOINT `s`"))

    def _statement(self, table: str, held: dict[int, Row]) -> tuple[dict[int, Row], int]:
        content, chance, locked = dict(held), self.chance, self._locked(table)
        width = self._columns[table]
        touched = self._touched.setdefault(table, set())
        mine = sorted(content.keys() - locked)
        kind = chance.choice((_WRITE, _UPDATE, _UPDATE, _DELETE)) if mine else _WRITE
        images: list[bytes] = []
        count = chance.randint(1, 3)
        for _ in range(count if kind == _WRITE else min(count, len(mine))):
            unused = [key for key in range(1, 40) if key not in content and key not in locked]
            free = chance.choice(unused or [max(content.keys() | locked) + 1])
            new = (free, *(chance.choice((None, chance.randrange(100))) for _ in range(width - 1)))
            if kind == _WRITE:
                images.append(_image(new))
                content[free] = new
                touched.add(free)
                continue
            key = chance.choice(sorted(content.keys() - locked))
            old = content.pop(key)
            images.append(_image(old))
            touched.add(key)
            if kind == _UPDATE:
                if chance.random() < 0.7:
                    new = (key, *new[1:])
                images.append(_image(new))
                content[new[0]] = new  # type: ignore[index]
                touched.add(new[0])  # type: ignore[arg-type]
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
        for number, log in enumerate(self._journals, start=1):
            self._file(number).write_bytes(log.data)


def _image(row: Row) -> bytes:
    nulls = sum(1 << at for at, value in enumerate(row) if value is None)
    values = b"".join(struct.pack("<i", value) for value in row if value is not None)
    return bytes([nulls]) + values


def _text(xid: bytes) -> str:
    return f"X'{xid.hex()}',X'',1"
