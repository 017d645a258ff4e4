"""Savepoints on MariaDB, which logs undone rows: the lake equals the server's SELECT (K8, C2,
T4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake
from tests.support.xa_session import XaSession

MakeConfig = Callable[..., PipelineConfig]


def _tables(server: Server, database: str) -> None:
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(300))",
        "CREATE TABLE m (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=MyISAM",
        "INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c')",
    )


def _small(server: Server, database: str) -> None:
    """Names that differ by case, that are set again and quoted; rows of a table without
    transactions in between."""
    with (
        server.root_connection(database=database, autocommit=False) as connection,
        connection.cursor() as cursor,
    ):
        for statement in (
            "INSERT INTO m VALUES (1,'kept')", "UPDATE t SET v = 'x' WHERE id = 1",
            "SAVEPOINT `a``b`",
            "DELETE FROM t WHERE id = 2", "INSERT INTO m VALUES (2,'kept')", "SAVEPOINT S",
            "INSERT INTO t VALUES (10,'no')", "ROLLBACK TO s", "INSERT INTO t VALUES (11,'no')",
            "SAVEPOINT `A``B`", "UPDATE t SET id = 30 WHERE id = 3", "ROLLBACK TO `a``b`",
            "INSERT INTO t VALUES (12,'yes')", "ROLLBACK TO `s`", "INSERT INTO t VALUES (13,'yes')",
            "COMMIT",
        ):  # fmt: skip
            cursor.execute(statement)


def _large(server: Server, database: str) -> None:
    """A transaction of many pieces: what is undone was staged long before, in part or wholly."""
    with (
        server.root_connection(database=database, autocommit=False) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("INSERT INTO m VALUES (100,'kept')")
        for number in range(1000, 1150):
            cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 200))")
        cursor.execute("SAVEPOINT one")
        cursor.execute("UPDATE t SET id = id + 5000, v = 'moved' WHERE id BETWEEN 1000 AND 1060")
        for number in range(2000, 2150):
            cursor.execute(f"INSERT INTO t VALUES ({number}, 'no')")
        cursor.execute("DELETE FROM t WHERE id = 1")
        cursor.execute("ROLLBACK TO one")
        cursor.execute("UPDATE t SET v = 'kept' WHERE id BETWEEN 1100 AND 1120")
        cursor.execute("SAVEPOINT two")
        for number in range(3000, 3100):
            cursor.execute(f"INSERT INTO t VALUES ({number}, 'no')")
            if number % 10 == 9:
                cursor.execute("ROLLBACK TO two")
        cursor.execute("INSERT INTO t VALUES (4000, 'yes')")
        cursor.execute("COMMIT")


def _xa(server: Server, database: str, first: int, count: int) -> None:
    """Undone rows of a prepared transaction, in one slice or in pieces."""
    session = XaSession(server, database, f"'{first}'")
    session.run(f"INSERT INTO t VALUES ({first},'yes')", "SAVEPOINT s")
    for number in range(first + 1, first + count):
        session.run(f"INSERT INTO t VALUES ({number},'no')")
    session.run(
        f"INSERT INTO m VALUES ({first},'kept')",
        "ROLLBACK TO S",
        f"INSERT INTO t VALUES ({first + count},'yes')",
    )
    session.prepare().commit()


@pytest.mark.parametrize(
    "flavor",
    [
        "mariadb",
        pytest.param("mysql", marks=pytest.mark.whole),
        pytest.param("mariadb-compressed", marks=pytest.mark.whole),
    ],
)
def test_k8_rows_that_rollback_to_undid_never_count(
    start_server: Any, make_config: MakeConfig, memory: MemoryLake, flavor: str
) -> None:
    # MySQL with GTIDs refuses tables without transactions in a transaction.
    options = {
        "gtid_mode": "OFF",
        "enforce_gtid_consistency": "OFF",
        "binlog_transaction_compression": True,
    }
    if flavor != "mysql":
        options = {
            "log_bin_compress": flavor.endswith("compressed"),
            "log_bin_compress_min_len": 10,
        }
    server = start_server(flavor.partition("-")[0], **options)
    server.execute("CREATE DATABASE d")
    config = make_config(
        live(server), include=["d.*"], start=here(server), store={"ring_events": 64}
    )
    _tables(server, "d")
    _small(server, "d")
    _large(server, "d")
    _xa(server, "d", 7000, 3)
    _xa(server, "d", 8000, 150)
    report = capture(config, cursors=MemoryCursorStore())
    assert report.interval.xa_committed == 2
    for table in ("t", "m"):
        expected = server_rows(server, "d", table, ["id", "v"])
        assert lake_rows(memory, config.sink.lake_path, "d", table, ["id", "v"]) == expected, table
    # What was undone is not counted either: three rows at the start, 13, 150 and 4000, and 4 of XA.
    of_t = report.tables["d.t"]
    assert (of_t.rows_inserted, of_t.rows_updated, of_t.rows_deleted) == (
        3 + 1 + 151 + 4,
        1 + 21,
        1,
    )
