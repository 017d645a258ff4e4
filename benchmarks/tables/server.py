"""The source: a MySQL server with many small tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import Server

DATABASE = "many"
ROWS_EACH = 50
_OPTIONS: dict[str, str | int | bool | Path | None] = {
    "innodb_redo_log_capacity": "64M",
    "table_open_cache": 2000,
}


class Tables:
    """Tables of eight columns, all of them created and changed in the log."""

    def __init__(self, server: Server, number: int, *, database: str = DATABASE) -> None:
        self.server = server
        self.names = [f"{database}.t{at:05d}" for at in range(number)]
        self._round = 0

    def create(self) -> None:
        with self.server.root_connection(autocommit=True) as connection:
            cursor = connection.cursor()
            for name in self.names:
                cursor.execute(
                    f"CREATE TABLE {name} (id INT PRIMARY KEY, customer BIGINT NOT NULL, "
                    "amount DECIMAL(12,2), state VARCHAR(20), note VARCHAR(200), day DATE, "
                    "at DATETIME(3), changed TIMESTAMP NULL)"
                )
                self._insert(cursor, name, 0)

    def change(self, number: int) -> None:
        """Change the first tables: half of the rows are updated, as many are inserted."""
        self._round += 1
        with self.server.root_connection(autocommit=True) as connection:
            cursor = connection.cursor()
            for name in self.names[:number]:
                cursor.execute(f"UPDATE {name} SET amount = amount + 1 WHERE id < {ROWS_EACH // 2}")
                self._insert(cursor, name, self._round * ROWS_EACH, rows=ROWS_EACH // 2)

    @staticmethod
    def _insert(cursor: object, name: str, first: int, *, rows: int = ROWS_EACH) -> None:
        values = ", ".join(
            f"({at}, {at * 7}, {at}.25, 'open', 'note {at} of the order', '2026-01-02', "
            f"'2026-01-02 03:04:05.678', '2026-01-02 03:04:05')"
            for at in range(first, first + rows)
        )
        cursor.execute(f"INSERT INTO {name} VALUES {values}")  # type: ignore[attr-defined]


@contextmanager
def served(number: int) -> Iterator[Tables]:
    with Server("mysql", _OPTIONS) as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
        yield Tables(server, number)
