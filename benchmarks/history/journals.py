"""An archive of many small transactions of a real MySQL server, kept in the cache folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.decode.workloads import cache_folder
from tests.servers import Server

TABLE = "bench.t"
_TRANSACTIONS_PER_JOURNAL = 1_000


def archive(transactions: int) -> Path:
    """Return a folder of journals with the CREATE TABLE of `bench.t` and so many inserts of one
    row, a transaction each; recorded if missing."""
    folder = cache_folder() / f"history-1-{transactions}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    with Server("mysql", {"sync_binlog": 0, "innodb_flush_log_at_trx_commit": 0}) as server:
        server.execute("CREATE DATABASE bench")
        server.flush_journal()
        first = server.journals()[-1].name
        with (
            server.root_connection(database="bench", autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, text VARCHAR(100))")
            for number in range(transactions):
                if number and number % _TRANSACTIONS_PER_JOURNAL == 0:
                    server.flush_journal()
                cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 40))")
        server.copy_journals(partial)
        for journal in server.journals():
            if journal.name < first:
                (partial / journal.name).unlink()
    partial.rename(folder)
    return folder
