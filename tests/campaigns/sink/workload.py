"""Packs: a seed's tables, transactions and DDL, run on a real server step by step, with what the
server then holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql

from tests.campaigns.sink.alterations import Altered, AlteringSql
from tests.campaigns.sink.capabilities import FEATURES, KINDS, MAY_STOP, MODES
from tests.campaigns.sink.ddl import random_change
from tests.campaigns.sink.oracle import Oracle, Place
from tests.campaigns.sink.statements import random_transaction
from tests.campaigns.sink.tables import Table, quoted, random_table
from tests.servers import Server

SQL_MODE: Final = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO"


@dataclass(frozen=True)
class Size:
    tables_max: int = 2
    steps: int = 1
    transactions_max: int = 6  # between two DDL of a step
    statements_max: int = 6
    changes_max: int = 2  # DDL in a step


@dataclass
class Executor:
    """Runs SQL on one connection, keeps what the server took, and notes the tables afterwards.
    `script`: every statement that succeeded, in order, by pack; `places`: ends of transactions
    and of DDL, in order; `altered`: what DDL did to rows without row events, in order.
    """

    server: Server
    oracle: Oracle = field(default_factory=Oracle)
    script: list[tuple[int, str]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    altered: list[Altered] = field(default_factory=list)
    refused: int = 0
    taken: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self._connection = self.server.root_connection(autocommit=True, charset="utf8mb4")
        self._cursor: Any = self._connection.cursor()
        self._cursor.execute(f"SET SESSION sql_mode = '{SQL_MODE}'")
        self._cursor.execute("SET SESSION foreign_key_checks = 1, innodb_lock_wait_timeout = 5")

    def close(self) -> None:
        self._connection.close()

    def try_sql(self, sql: str) -> bool:
        try:
            self._cursor.execute(sql)
        except (pymysql.err.MySQLError, pymysql.err.Error):
            self.refused += 1
            return False
        self.taken += 1
        self.script.append((self.seed, sql))
        return True

    def note(self, *tables: tuple[str, str]) -> None:
        """Remember what tables (database, name) hold at the end of the log."""
        place = self.server.end_position()
        self.places.append(place)
        for database, table in tables:
            self.oracle.note(self._cursor, database, table, place)

    def names_in(self, database: str) -> list[str]:
        self._cursor.execute(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (database,)
        )
        return [name for (name,) in self._cursor.fetchall()]


class Pack:
    """What one seed does. Deterministic: the same seed on the same server flavor runs the same
    SQL."""

    def __init__(
        self, seed: int, executor: Executor, *, size: Size, kinds: frozenset[str] = KINDS
    ) -> None:
        self.seed = seed
        self.database = f"pack{seed}"
        self._choose = random.Random(seed)
        self._executor = executor
        self._size = size
        # A draw of its own, so that a mode that is switched on changes no pack's SQL.
        self.modes = (
            random.Random(f"modes {seed}").choice(MODES) if "modes" in FEATURES else ("mirror",)
        )
        self._kinds = kinds
        self.tables: list[Table] = []
        self.changes: list[str] = []  # kinds of the DDL that was done
        self.may_stand: list[Table] = []  # changed by a DDL of a kind that may stop its table

    def create(self) -> None:
        self._executor.seed = self.seed
        assert self._executor.try_sql(f"CREATE DATABASE {quoted(self.database)}")
        wanted = self._choose.choice((1, 1, self._size.tables_max))
        while len(self.tables) < wanted:
            flavor, keyless = (
                self._executor.server.flavor,
                not {"soft_delete", "history"} & set(self.modes),
            )
            table = random_table(
                self._choose, database=self.database, flavor=flavor, keyless=keyless
            )
            if table.name in {known.name for known in self.tables}:
                continue
            if self._executor.try_sql(table.create_sql()):
                self.tables.append(table)
                self._note(table)

    def step(self) -> None:
        self._executor.seed = self.seed
        self.transact()
        for _ in range(self._choose.randint(0, self._size.changes_max)):
            self.change()
            self.transact()

    def _note(self, *tables: Table) -> None:
        self._executor.note(*((table.database, table.name) for table in tables))

    def transact(self) -> None:
        executor, flavor = self._executor, self._executor.server.flavor
        for _ in range(self._choose.randint(1, self._size.transactions_max)):
            transaction = random_transaction(
                self._choose, self.tables, flavor=flavor, statements_max=self._size.statements_max
            )
            for sql in transaction.session:
                executor.try_sql(sql)
            executor.try_sql("BEGIN")
            for sql in transaction.statements:
                executor.try_sql(sql)
            executor.try_sql("COMMIT" if transaction.commits else "ROLLBACK")
            self._note(*transaction.tables)

    def change(self) -> None:
        going_on = [table for table in self.tables if table not in self.may_stand]
        if not going_on:
            return
        table = self._choose.choice(going_on)
        kinds = self._kinds - {"drop_table"} if len(self.tables) == 1 else self._kinds
        change = random_change(
            self._choose, table, flavor=self._executor.server.flavor, kinds=kinds
        )
        name = table.full_name
        before = set(self._executor.names_in(self.database))
        done = 0
        for sql in change.statements:
            if not self._executor.try_sql(sql):
                break
            done += 1
            if change.kind in MAY_STOP and table not in self.may_stand:
                self.may_stand.append(table)
            there = before | set(self._executor.names_in(self.database))
            self._executor.note(*((self.database, one) for one in sorted(there)))
            if isinstance(sql, AlteringSql):
                self._executor.altered.append(
                    Altered(name, self._executor.places[-1], sql.alteration)
                )
        if done == len(change.statements):
            change.after()
            left = self._executor.names_in(self.database)
            self.tables = [known for known in self.tables if known.name in left]
            self.changes.append(change.kind)
        elif done:
            self._settle(table)

    def _settle(self, table: Table) -> None:
        """A change of several statements that the server refused halfway: go on with the table if
        it is whole."""
        if table.name not in self._executor.names_in(self.database):
            self.tables.remove(table)
