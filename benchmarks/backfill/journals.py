"""An archive of journals: one table of two, made in the first journal and changed in all of them,
by a real MySQL."""

from __future__ import annotations

from pathlib import Path

from benchmarks.decode.statements import _digit_groups
from tests.servers import Server

DATABASE = "bench"
TABLE = f"{DATABASE}.bulk"
JOURNALS = 8
_OPTIONS: dict[str, str | int | bool | Path | None] = {
    "sync_binlog": 0,
    "innodb_flush_log_at_trx_commit": 0,
}
_STATEMENT_ROWS = 5_000


def write_archive(folder: Path, changes: int) -> None:
    """`JOURNALS` journals with about so many changes in all: of ten, eight are inserts, one is an
    update, one a delete."""
    with Server("mysql", _OPTIONS) as server:
        server.execute_all(
            f"CREATE DATABASE {DATABASE}",
            f"USE {DATABASE}",
            f"SET cte_max_recursion_depth = {_STATEMENT_ROWS}",
            "CREATE TABLE numbers (n INT NOT NULL PRIMARY KEY)",
            "INSERT INTO numbers WITH RECURSIVE counted AS (SELECT 1 AS n UNION ALL SELECT n + 1 "
            f"FROM counted WHERE n < {_STATEMENT_ROWS}) SELECT n FROM counted",
            "CREATE TABLE bulk (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, "
            "pad CHAR(60) NOT NULL)",
        )
        first = 0
        for journal in range(JOURNALS):
            while first < changes * 8 // 10 * (journal + 1) // JOURNALS:
                server.execute(
                    f"INSERT INTO bulk SELECT {first} + n, FLOOR(RAND() * 1000000), "
                    f"{_digit_groups(10)}, {_digit_groups(5)} FROM numbers"
                )
                first += _STATEMENT_ROWS
                # keys of this statement: all journals have them
                some = f"id > {first - _STATEMENT_ROWS} AND id"
                server.execute(f"UPDATE bulk SET k = k + 1 WHERE {some} % 8 = 0")
                server.execute(f"DELETE FROM bulk WHERE {some} % 8 = 1")
            server.flush_journal()
        server.copy_journals(folder)
        (folder / server.journals()[-1].name).unlink()  # nothing is in it
