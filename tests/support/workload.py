"""A seeded stream of transactions on three tables, with everything that a mirror must survive."""

from __future__ import annotations

import random

from tests.servers import Server

COLUMNS = {
    "account": ["id", "name", "balance", "opened_at", "flag"],
    "transfer": ["account_id", "number", "amount", "note"],
    "label": ["code", "text", "kind"],
}


def create_tables(server: Server, database: str) -> None:
    server.execute_all(
        f"USE `{database}`",
        """CREATE TABLE account (id INT UNSIGNED NOT NULL PRIMARY KEY, name VARCHAR(40) CHARACTER SET utf8mb4,
           balance DECIMAL(12,2) NOT NULL, opened_at DATETIME(3) NULL, flag BIT(1) NULL)""",  # noqa: E501
        """CREATE TABLE transfer (account_id INT UNSIGNED NOT NULL, number BIGINT NOT NULL, amount DOUBLE,
           note VARCHAR(200), PRIMARY KEY (account_id, number))""",  # noqa: E501
        """CREATE TABLE label (code VARCHAR(20) NOT NULL PRIMARY KEY, text TEXT, kind ENUM('a','b','ü'))""",  # noqa: E501
        "CREATE TABLE elsewhere (id INT PRIMARY KEY)",
    )


class Workload:
    def __init__(self, server: Server, database: str, *, seed: int) -> None:
        self._random = random.Random(seed)
        self._connection = server.root_connection(database=database, autocommit=False)
        self._next = seed * 100_000
        self._keys: list[int] = []

    def run(self, transactions: int) -> None:
        for _ in range(transactions):
            self._transaction()

    def large_transaction(self, statements: int) -> None:
        with self._connection.cursor() as cursor:
            first = self._take(statements)
            for key in range(first, first + statements):
                cursor.execute(
                    "INSERT INTO transfer VALUES (%s, %s, %s, %s)", (1, key, key / 7, "large")
                )
            cursor.execute(
                "UPDATE transfer SET note = 'seen' WHERE number %% 3 = 0 AND note = %s", ("large",)
            )
        self._connection.commit()

    def rolled_back_transaction(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO account (id, name, balance) VALUES (%s, 'ghost', 0)", (self._take(1),)
            )
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def _take(self, count: int) -> int:
        self._next += count
        return self._next - count

    def _transaction(self) -> None:
        choose = self._random
        with self._connection.cursor() as cursor:
            key = self._take(1)
            cursor.execute(
                "INSERT INTO account (id, name, balance, opened_at, flag) VALUES "
                "(%s, %s, %s, %s, %s)",
                (
                    key,
                    choose.choice(["Ada", "Grace 🙂", None, "Zoë", ""]),
                    f"{choose.uniform(-1e6, 1e6):.2f}",
                    choose.choice([None, "2026-02-28 23:59:59.123", "1999-12-31 00:00:00"]),
                    choose.choice([None, 0, 1]),
                ),
            )
            label = (f"L{key % 40}", "é" * choose.randrange(60), "ü")
            cursor.execute("REPLACE INTO label (code, text, kind) VALUES (%s, %s, %s)", label)
            rows = [
                (key, n, choose.random(), choose.choice([None, "x"]))
                for n in range(choose.randrange(1, 4))
            ]
            cursor.executemany("INSERT INTO transfer VALUES (%s, %s, %s, %s)", rows)
            self._keys.append(key)
            old = choose.choice(self._keys)
            action = choose.randrange(6)
            if action == 0:
                cursor.execute("DELETE FROM account WHERE id = %s", (old,))
            elif action == 1:
                moved = self._take(1)
                cursor.execute("UPDATE account SET id = %s WHERE id = %s", (moved, old))
                self._keys.append(moved)
            elif action == 2 and len(self._keys) > 1:
                self._swap(cursor, old, choose.choice(self._keys))
            elif action == 3:
                cursor.execute(
                    "UPDATE label SET code = UPPER(code), text = NULL WHERE code = %s",
                    (f"L{old % 40}",),
                )
            else:
                cursor.execute(
                    "UPDATE account SET balance = balance + 1, name = NULL WHERE id = %s", (old,)
                )
                cursor.execute("DELETE FROM transfer WHERE account_id = %s AND number = 0", (old,))
        self._connection.commit()

    def _swap(self, cursor: object, one: int, other: int) -> None:
        """Two keys change places within one transaction."""
        spare = self._take(1)
        for old, new in ((one, spare), (other, one), (spare, other)):
            cursor.execute("UPDATE account SET id = %s WHERE id = %s", (new, old))  # type: ignore[attr-defined]
