"""The journals that are decoded: written once by a real server, then kept in the cache folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import Server

_INSERT_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A table, what is done to it, and what its journal must hold.

    Attributes:
        name: part of the cached journal's name; a change of the statements needs a new one.
        title: what a person reads.
        create: columns and keys of the table.
        select: one row as expressions of `n`, the row's number.
        rows: rows that are inserted.
        update: SET clause that is applied to all rows afterwards, or "".
        target_s: at most so many CPU-seconds per million changes; None where nothing is promised.
    """

    name: str
    title: str
    create: str
    select: str
    rows: int
    update: str
    target_s: float | None

    @property
    def changes(self) -> int:
        return self.rows * (2 if self.update else 1)


def _digit_groups(count: int) -> str:
    groups = ", ".join(["LPAD(FLOOR(RAND() * 99999999999), 11, '0')"] * count)
    return f"CONCAT_WS('-', {groups})"


SYSBENCH = Workload(
    name="sysbench-1",
    title="sysbench: int, int, char(120), char(60); inserts",
    create="id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL",
    select=f"n, FLOOR(RAND() * 1000000), {_digit_groups(10)}, {_digit_groups(5)}",
    rows=500_000,
    update="",
    target_s=1.0,
)

MIXED = Workload(
    name="mixed-1",
    title="12 mixed columns with JSON; inserts and updates",
    create=(
        "id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(80), amount DECIMAL(12,2), made DATETIME(6), seen TIMESTAMP NULL,"
        " flag TINYINT, state ENUM('new','paid','sent','gone'), doc JSON, ratio DOUBLE, day DATE, note TEXT,"
        " code VARCHAR(20)"
    ),
    select=(
        "n, CONCAT('customer ', n), n * 0.37, '2024-01-01' + INTERVAL n * 1234567 MICROSECOND,"
        " FROM_UNIXTIME(1700000000 + n),"
        " n % 100, 1 + n % 4, JSON_OBJECT('a', n, 'b', JSON_ARRAY(n % 7, 'x'), 'price', n / 8, 'ok', n % 2 = 0), n / 7,"
        " '2000-01-01' + INTERVAL n % 9000 DAY, REPEAT('note ', n % 20), IF(n % 5, CONCAT('c', n), NULL)"
    ),
    rows=100_000,
    update="amount = amount + 1, flag = flag + 1, note = CONCAT(COALESCE(note, ''), '!')",
    target_s=None,
)

WORKLOADS = (SYSBENCH, MIXED)


def cache_folder() -> Path:
    """Where journals are kept between runs; never in the repository."""
    base = os.environ.get("CDC_PIPELINE_CACHE")
    if base:
        return Path(base) / "benchmarks"
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "cdc_pipeline" / "benchmarks"


def journals() -> Iterator[tuple[Workload, Path]]:
    """Each workload with its journal; missing ones are recorded from a MySQL server."""
    folder = cache_folder()
    missing = [workload for workload in WORKLOADS if not _path(folder, workload).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with Server("mysql", {"max_binlog_size": 1 << 30}) as server:
            for workload in missing:
                _record(server, workload, _path(folder, workload))
    for workload in WORKLOADS:
        yield workload, _path(folder, workload)


def _path(folder: Path, workload: Workload) -> Path:
    return folder / f"{workload.name}.000001"


def _record(server: Server, workload: Workload, path: Path) -> None:
    server.execute_all("DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench")
    server.flush_journal()
    with server.root_connection(database="bench") as connection, connection.cursor() as cursor:
        cursor.execute(f"SET cte_max_recursion_depth = {_INSERT_ROWS}")
        cursor.execute(f"CREATE TABLE t ({workload.create})")
        for first in range(0, workload.rows, _INSERT_ROWS):
            last = min(first + _INSERT_ROWS, workload.rows)
            cursor.execute(
                f"INSERT INTO t WITH RECURSIVE numbers AS (SELECT {first + 1} AS n UNION ALL SELECT n + 1 FROM numbers"
                f" WHERE n < {last}) SELECT {workload.select} FROM numbers"
            )
            connection.commit()
        if workload.update:
            cursor.execute(f"UPDATE t SET {workload.update}")
            connection.commit()
    server.flush_journal()
    partial = path.with_suffix(".partial")
    partial.write_bytes(server.journals()[-2].read_bytes())
    partial.replace(path)
