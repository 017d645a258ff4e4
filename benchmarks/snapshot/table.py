"""The table that is loaded: W1's, on a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pymysql.cursors import Cursor

from benchmarks.decode.statements import _digit_groups
from tests.servers import Flavor, Server

DATABASE = "bench"
TABLE = "bulk"
_OPTIONS: dict[str, str | int | bool | Path | None] = {
    "sync_binlog": 0,
    "innodb_flush_log_at_trx_commit": 0,
    "innodb_buffer_pool_size": "2G",
}
_FLAVOR_OPTIONS: dict[Flavor, dict[str, str | int | bool | Path | None]] = {
    "mysql": {"innodb_redo_log_capacity": "512M"},
    "mariadb": {"innodb_log_file_size": "512M"},
}
_DEPTH: dict[Flavor, str] = {
    "mysql": "cte_max_recursion_depth",
    "mariadb": "max_recursive_iterations",
}
_FIRST_ROWS = 100_000


@contextmanager
def served(rows: int, flavor: Flavor = "mysql") -> Iterator[Server]:
    """A server with the table of ids 1 to `rows`; nothing of it is in the log."""
    with Server(flavor, {**_OPTIONS, **_FLAVOR_OPTIONS[flavor]}) as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
        with server.root_connection(database=DATABASE) as connection, connection.cursor() as cursor:
            _fill(cursor, rows, _DEPTH[flavor])
        yield server


def _fill(cursor: Cursor, rows: int, depth: str) -> None:
    cursor.execute("SET SESSION sql_log_bin = 0")
    cursor.execute(
        f"CREATE TABLE {TABLE} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, "
        "pad CHAR(60) NOT NULL)"
    )
    first = min(rows, _FIRST_ROWS)
    cursor.execute(f"SET SESSION {depth} = {first}")
    cursor.execute(
        f"INSERT INTO {TABLE} WITH RECURSIVE counted AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM "
        f"counted WHERE n < {first}) SELECT n, FLOOR(RAND() * 1000000), {_digit_groups(10)}, "
        f"{_digit_groups(5)} FROM counted"
    )
    done = first
    while done < rows:
        # Other texts, made of the ones that are there: digits in another order compress no better.
        cursor.execute(
            f"INSERT INTO {TABLE} SELECT id + {done}, (k * 7 + id) % 1000000, "
            f"CONCAT(SUBSTRING(c, 1 + id % 113), LEFT(c, id % 113)), REVERSE(pad) "
            f"FROM {TABLE} WHERE id <= {rows - done}"
        )
        done = min(2 * done, rows)
    cursor.execute(f"ANALYZE TABLE {TABLE}")
