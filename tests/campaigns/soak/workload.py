"""Changes and DDL of random tables on one server, at a steady pace, until it is told to stop.

Rules:
- What is done is the seed's choice; when it is done is not: two soaks of one seed have the same
  tables, and the same kinds of changes in the same order.
- A table stays small: rows beyond `ROWS_MAX` are deleted. What grows over hours is then the
  pipeline's, and not the data.
- The counters are rows whose number grows by one with each update, so that a record of all changes
  shows by itself whether one is missing or there twice.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from cdc_pipeline.text.table_names import table_name
from tests.campaigns.sink.column_types import types_for
from tests.campaigns.sink.ddl import random_change
from tests.campaigns.sink.statements import random_transaction
from tests.campaigns.sink.tables import TABLE_NAMES, Column, Table, quoted, random_table
from tests.servers import Server

ROWS_MAX = 60
# Written at a time: a batch has the changes of a few tables, as usual.
HOT_PLAIN, HOT_OTHERS = 4, 2
HOT_TRANSACTIONS = 200
# A database for each. Half of the tables are plain: small changes of theirs need no JVM.
PLAIN_DATABASES = 4
MODES = (
    *[("mirror",)] * PLAIN_DATABASES,
    ("mirror", "soft_delete"),
    ("mirror", "history"),
    ("mirror", "changelog"),
    ("soft_delete", "history"),
)
CHANGELOGS = MODES.index(("mirror", "changelog"))
PLAIN_TYPES = ("INT", "BIGINT", "VARCHAR(40)", "DOUBLE", "DECIMAL(10,2)", "DATE", "DATETIME")
PLAIN_KINDS = frozenset({"add_index", "drop_index", "comment", "widen", "truncate"})
COUNTERS = 5
COUNTER_DATABASE = "soak_counters"
COUNTER_MODES = ("mirror", "soft_delete", "history", "changelog")
# DDL after which a table has the same name as before. Those after which one goes or changes its
# name are `make campaign NAME=sink`'s.
KINDS = frozenset(
    {
        "add_column", "add_columns", "add_index", "drop_index", "comment", "default", "uncaptured",
        "drop_column", "rename_column", "drop_add", "swap_columns", "widen", "move_column",
        "truncate", "gh_ost", "pt_osc", "modify", "convert_charset", "change_key", "partition",
    }
)  # fmt: skip


def rules() -> list[dict[str, Any]]:
    """The targets of all tables: a database for each combination of modes."""
    own: dict[str, dict[str, Any]] = {
        "mirror": {"keyless": "row_hash"},
        "soft_delete": {"name": "{schema}.{table}_soft"},
    }
    databases = [(database_of(number), modes) for number, modes in enumerate(MODES)]
    return [
        {"tables": [f"{database}.*"], "mode": mode, **own.get(mode, {})}
        for database, modes in [*databases, (COUNTER_DATABASE, COUNTER_MODES)]
        for mode in modes
    ]


def database_of(number: int) -> str:
    return f"soak{number}"


def _is_plain(table: Table) -> bool:
    return table.database in map(database_of, range(PLAIN_DATABASES))


class Workload:
    """A thread that writes to a server. `server`: where it begins; `go_to` names another one.
    `tables`: how many; `seed`: of all that is chosen; `pause_s`: between transactions;
    `ddl_every`: a DDL comes after so many transactions. `done`: transactions, DDL and refused
    statements so far; `error`: what ended the thread; None while it goes on.
    """

    def __init__(
        self, server: Server, *, tables: int, seed: int, pause_s: float, ddl_every: int
    ) -> None:
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._choose = random.Random(f"workload {server.flavor} {seed}")
        self._pause_s, self._ddl_every = pause_s, ddl_every
        self._flavor = server.flavor
        self._turn, self._ends = threading.Lock(), threading.Event()
        self._tables: list[Table] = []
        self._hot: list[Table] = []
        self._thread = threading.Thread(target=self._run, name=f"workload {server.flavor}")
        self.go_to(server)
        self._create(tables)

    @property
    def names(self) -> list[str]:
        with self._turn:
            return [table_name(table.database, table.name) for table in self._tables]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its transaction."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is written in the context."""
        with self._turn:
            yield

    def go_to(self, server: Server) -> None:
        """Write to `server` from now on. Called before the start, or within `paused`."""
        self._connection = server.root_connection(autocommit=True, charset="utf8mb4")
        self._cursor: Any = self._connection.cursor()
        self._cursor.execute(
            "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO', "
            "innodb_lock_wait_timeout = 5"
        )

    # -- what is written ---------------------------------------------------------------------------

    def _create(self, tables: int) -> None:
        for number in range(len(MODES)):
            self._cursor.execute(f"CREATE DATABASE {quoted(database_of(number))}")
        self._cursor.execute(f"CREATE DATABASE {COUNTER_DATABASE}")
        self._cursor.execute(
            f"CREATE TABLE {COUNTER_DATABASE}.counter (id INT PRIMARY KEY, n BIGINT NOT NULL)"
        )
        rows = ", ".join(f"({number}, 0)" for number in range(COUNTERS))
        self._cursor.execute(f"INSERT INTO {COUNTER_DATABASE}.counter VALUES {rows}")
        number = 0
        while len(self._tables) < tables - 1:
            series, database = divmod(number, len(MODES))
            name = TABLE_NAMES[series % len(TABLE_NAMES)] + str(series)
            table = self._plain(name) if database < PLAIN_DATABASES else self._random(database)
            table.database, table.name = database_of(database), name
            if self._try(table.create_sql()):
                self._tables.append(table)
                number += 1

    def _random(self, database: int) -> Table:
        return random_table(
            self._choose,
            database=database_of(database),
            flavor=self._flavor,
            keyless=not {"soft_delete", "history"} & set(MODES[database]),
        )

    def _plain(self, name: str) -> Table:
        """A table as most are: a number as key, and columns of common types."""
        known = {known.declared: known for known in types_for(self._flavor)}
        chosen = [
            known[self._choose.choice(PLAIN_TYPES)] for _ in range(self._choose.randint(2, 9))
        ]
        columns = [Column(f"n{number}", declared) for number, declared in enumerate(chosen)]
        return Table("", name, [Column("id", known["INT"], nullable=False), *columns], ("id",))

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._pause_s):
                with self._turn:
                    self._step()
        except BaseException as error:
            self.error = error

    def _step(self) -> None:
        self._cursor.execute(
            f"UPDATE {COUNTER_DATABASE}.counter SET n = n + 1 WHERE id = %s",
            (self._choose.randrange(COUNTERS),),
        )
        if self.done["transactions"] % HOT_TRANSACTIONS == 0:
            self._hot = self._warm_up()
        tables = self._choose.sample(self._hot, min(3, len(self._hot)))
        transaction = random_transaction(
            self._choose, tables, flavor=self._flavor, statements_max=6
        )
        for sql in transaction.session:
            self._try(sql)
        self._try("BEGIN")
        for sql in transaction.statements:
            self._try(sql)
        self._try("COMMIT" if transaction.commits else "ROLLBACK")
        self.done["transactions"] += 1
        if self.done["transactions"] % 5 == 0:
            self._trim(self._choose.choice(self._hot))
        if self.done["transactions"] % self._ddl_every == 0:
            self._change(self._choose.choice(self._hot))

    def _warm_up(self) -> list[Table]:
        """The tables that are written next: two of three are plain, as in most databases."""
        plain = [table for table in self._tables if _is_plain(table)]
        others = [table for table in self._tables if not _is_plain(table)]
        return [
            *self._choose.sample(plain, min(HOT_PLAIN, len(plain))),
            *self._choose.sample(others, min(HOT_OTHERS, len(others))),
        ]

    def _trim(self, table: Table) -> None:
        self._cursor.execute(f"SELECT COUNT(*) FROM {table.sql_name}")
        ((rows,),) = self._cursor.fetchall()
        if rows > ROWS_MAX:
            order = table.key or tuple(column.name for column in table.columns)
            listed = ", ".join(map(quoted, order))
            self._try("SET SESSION binlog_row_image = 'FULL'")
            self._try(
                f"DELETE FROM {table.sql_name} ORDER BY {listed} LIMIT {rows - ROWS_MAX // 2}"
            )

    def _change(self, table: Table) -> None:
        """One DDL; of one that the server refuses halfway, what was done stays."""
        kinds = KINDS - {"add_column", "add_columns"} if len(table.columns) > 11 else KINDS
        if _is_plain(table):
            kinds = PLAIN_KINDS
        change = random_change(self._choose, table, flavor=self._flavor, kinds=kinds)
        if all(self._try(sql) for sql in change.statements):
            change.after()
            self.done["DDL"] += 1
            return
        trigger = f"{quoted(table.database)}.{quoted(f'pt_osc_{table.name}_del')}"
        self._try(f"DROP TRIGGER IF EXISTS {trigger}")
        for end in ("_gho", "_ghc", "_new"):  # nothing of an online change stays
            left = f"{quoted(table.database)}.{quoted(f'_{table.name}{end}')}"
            self._try(f"DROP TABLE IF EXISTS {left}")
        self._cursor.execute(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
            "AND TABLE_NAME = %s",
            (table.database, table.name),
        )
        there = {name for (name,) in self._cursor.fetchall()}
        table.columns[:] = [column for column in table.columns if column.name in there]

    def _try(self, sql: str) -> bool:
        try:
            self._cursor.execute(sql)
        except pymysql.err.MySQLError as error:
            if not self._connection.open:
                raise
            self.done["refused"] += 1
            self.last_refusal = (sql[:300], str(error)[:300])
            return False
        return True
