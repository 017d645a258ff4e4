"""Journals of a wanted size from a real MySQL server, kept in the cache folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.decode.workloads import cache_folder
from tests.servers import Server

_ROW_BYTES = 920
_STATEMENT_ROWS = 2000


def journal_folder(size_mib: int, *, one_transaction: bool) -> Path:
    """A folder with the journals of one table `bench.t` that hold about `size_mib` MiB; recorded
    where missing."""
    folder = cache_folder() / f"memory-1-{'one' if one_transaction else 'many'}-{size_mib}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    rows = size_mib * 2**20 // _ROW_BYTES
    with Server("mysql", {"max_binlog_size": 1 << 30}) as server:
        server.execute("CREATE DATABASE bench")
        with (
            server.root_connection(database="bench", autocommit=False) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(
                "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, text VARCHAR(1000) NOT NULL)"
            )
            cursor.execute(f"SET cte_max_recursion_depth = {_STATEMENT_ROWS}")
            for first in range(0, rows, _STATEMENT_ROWS):
                cursor.execute(
                    f"INSERT INTO t WITH RECURSIVE numbers AS (SELECT {first} AS n UNION ALL "
                    f"SELECT n + 1 FROM numbers WHERE n + 1 < {first + _STATEMENT_ROWS}) SELECT n, "
                    "REPEAT(SHA2(n, 256), 14) FROM numbers"
                )
                if not one_transaction:
                    connection.commit()
            connection.commit()
        server.flush_journal()
        server.copy_journals(partial)
    partial.rename(folder)
    return folder
