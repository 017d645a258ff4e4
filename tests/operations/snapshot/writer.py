"""Somebody who writes to the tables of a load all the time."""

from __future__ import annotations

import random
import threading
from typing import Any

from tests.servers import Server

KEYS = 400


class Writer:
    """Inserts, updates, deletes and moves rows, each transaction in all of its tables, until the
    context ends.

    Args:
        tables: of ``a`` and ``h`` (by key) and ``k`` (without a key).
        pause_s: between two transactions.
    """

    def __init__(
        self, server: Server, database: str, tables: str, *, seed: int, pause_s: float = 0.05
    ) -> None:
        self._tables = tables
        self._connection: Any = server.root_connection(database=database)
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._step = threading.Condition()
        self._failure: BaseException | None = None
        self.transactions = 0
        self.statements = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._connection.close()

    def wait_for(self, more: int) -> None:
        """Until so many more transactions were written. Raises what stopped the writer."""
        with self._step:
            until = self.transactions + more
            assert self._step.wait_for(
                lambda: self.transactions >= until or self._failure, timeout=60
            )
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        try:
            while not self._stop.is_set():
                with self._connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    for sql in self._transaction():
                        cursor.execute(sql)
                        self.statements += 1
                    cursor.execute("COMMIT" if self._random.random() < 0.9 else "ROLLBACK")
                with self._step:
                    self.transactions += 1
                    self._step.notify_all()
                self._stop.wait(self._pause_s)
        except BaseException as error:
            self._connection.close()  # an open transaction would hold DDL up
            with self._step:
                self._failure = error
                self._step.notify_all()

    def _transaction(self) -> list[str]:
        number, key = self._random.randrange, self._random.randrange
        statements = {
            "a": self._random.choice(
                [
                    f"INSERT INTO a (id, v, n) VALUES ({key(KEYS, 2 * KEYS)}, 'in{number(99)}', 1) "
                    f"ON DUPLICATE KEY UPDATE n = n + 1",
                    f"UPDATE a SET v = 'up{number(99)}', n = n + 1 WHERE id = {key(2 * KEYS)}",
                    f"DELETE FROM a WHERE id = {key(2 * KEYS)}",
                    f"UPDATE IGNORE a SET id = {key(2 * KEYS)} WHERE id = {key(2 * KEYS)}",
                ]
            ),
            "h": self._random.choice(
                [
                    f"INSERT INTO h (id, v) VALUES ({key(60)}, {number(9)}) ON DUPLICATE KEY "
                    "UPDATE v = v + 1",
                    f"DELETE FROM h WHERE id = {key(60)}",
                ]
            ),
            "k": self._random.choice(
                [
                    f"INSERT INTO k (v, w) VALUES ({key(5)}, 'x')",
                    f"DELETE FROM k WHERE v = {key(5)} LIMIT 1",
                    f"UPDATE k SET w = 'y{number(3)}' WHERE v = {key(5)} LIMIT 1",
                ]
            ),
        }
        return [statements[table] for table in self._tables]
