"""What cannot be applied stops with table, journal and offset; what came before it is applied and
acked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import (
    DamagedJournalError,
    IncompleteRowsError,
    KeylessTableError,
    TargetSuspendedError,
    UnrepresentableValueError,
    UnsupportedDdlError,
)
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake

MakeConfig = Callable[..., PipelineConfig]


def _good_start(server: Server, database: str) -> None:
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE NULL)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, '2026-01-01'), (2, NULL)",
        "INSERT INTO u VALUES (1)",
    )


def test_k4_what_fails_for_one_table_suspends_it_by_name(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """Each of these stops its table; what came before is applied, and everything of the others."""
    failures = {
        "value": (
            ["SET sql_mode = ''", "INSERT INTO value VALUES (3, '0000-00-00')"],
            UnrepresentableValueError,
        ),
        "emptied": (["ALTER TABLE emptied ENGINE = MEMORY"], UnsupportedDdlError),
        "unkeyed": (["ALTER TABLE unkeyed DROP PRIMARY KEY"], UnsupportedDdlError),
        "modified": (["ALTER TABLE modified MODIFY d VARCHAR(20)"], UnsupportedDdlError),
        "computed": (
            ["ALTER TABLE computed ADD COLUMN e DATETIME DEFAULT CURRENT_TIMESTAMP"],
            UnsupportedDdlError,
        ),
        "keyless": (
            ["CREATE TABLE keyless (a INT)", "INSERT INTO keyless VALUES (1)"],
            KeylessTableError,
        ),
        "minimal": (
            ["SET binlog_row_image = 'MINIMAL'", "INSERT INTO minimal (id) VALUES (3)"],
            IncompleteRowsError,
        ),
    }
    names = [f"{mysql_database}.{table}" for table in (*failures, "u")]
    stop = {"tables": [f"{mysql_database}.keyless"], "keyless": "stop"}
    config = make_config(
        live(mysql_server), include=names, start=here(mysql_server), targets=[stop]
    )
    config = config.model_copy(
        update={"sink": config.sink.model_copy(update={"on_invalid_value": "fail"})}
    )
    tables = [table for table in failures if table != "keyless"]
    connection = mysql_server.root_connection(database=mysql_database)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE u (id INT PRIMARY KEY)")
        for table in tables:
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, d DATE NULL)")
            cursor.execute(f"INSERT INTO {table} VALUES (1, '2026-01-01'), (2, NULL)")
        for number, (statements, _) in enumerate(failures.values()):
            for statement in (*statements, f"INSERT INTO u VALUES ({number})"):
                cursor.execute(statement)
    connection.close()
    cursors = MemoryCursorStore()
    with pytest.raises(TargetSuspendedError) as caught:
        capture(config, cursors=cursors)
    assert caught.value.next_step
    assert cursors.cursor is not None
    assert {name.split(".")[1]: held.error for name, held in cursors.cursor.suspended.items()} == {
        table: error.__name__ for table, (_, error) in failures.items()
    }
    lake = config.sink.lake_path
    assert [row[0] for row in lake_rows(memory, lake, mysql_database, "u", ["id"])] == list(
        range(len(failures))
    )
    for table in tables[:2]:
        assert [row[0] for row in lake_rows(memory, lake, mysql_database, table, ["id"])] == [1, 2]
    # The next run meets the same walls, and applies nothing twice.
    before = cursors.cursor
    with pytest.raises(TargetSuspendedError):
        capture(config, cursors=cursors)
    assert cursors.cursor == before


@pytest.mark.whole
def test_less_row_metadata_is_captured_with_catalog_and_history(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """Over three runs: the first one has nothing to read and keeps the catalog of its start."""
    server = mysql_server
    server.execute_all(
        "SET GLOBAL binlog_row_metadata = 'MINIMAL'",
        f"USE `{mysql_database}`",
        "CREATE TABLE t (a INT UNSIGNED, id BIGINT UNSIGNED PRIMARY KEY, l VARCHAR(9) "
        "CHARACTER SET latin1)",
    )
    try:
        config = make_config(live(server), include=[f"{mysql_database}.*"], start=here(server))
        cursors = MemoryCursorStore()
        assert capture(config, cursors=cursors).outcome == "nothing_new"
        columns = ["a", "id", "l", "e", "z"]
        rows = [
            "INSERT INTO t VALUES (4294967295, 18446744073709551615, 'äß')",
            "ALTER TABLE t ADD COLUMN e ENUM('x', 'ü') CHARACTER SET latin1 FIRST, ADD z TINYINT "
            "UNSIGNED AFTER id",
            "INSERT INTO t (id, e, z) VALUES (2, 'ü', 255)",
        ]
        server.execute_all(*rows)
        assert capture(config, cursors=cursors).outcome == "applied"
        # For a while the name was another table's: only a history by place knows whose rows are
        # whose.
        server.execute_all(
            "UPDATE t SET a = 7 WHERE id = 2", "RENAME TABLE t TO gone",
            "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, z INT)", "DROP TABLE t",
            "RENAME TABLE gone TO t",
        )  # fmt: skip
        assert capture(config, cursors=cursors).outcome == "applied"
        lake = config.sink.lake_path
        found = lake_rows(memory, lake, mysql_database, "t", columns)
        wanted = server_rows(server, mysql_database, "t", columns)
        assert [tuple(map(str, row)) for row in found] == [tuple(map(str, row)) for row in wanted]
        assert len(found) == 2
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_damaged_archive(
    mysql_server: Server,
    mysql_database: str,
    make_config: MakeConfig,
    memory: MemoryLake,
    tmp_path: Path,
) -> None:
    mysql_server.flush_journal()
    start = here(mysql_server)
    _good_start(mysql_server, mysql_database)
    good_end = mysql_server.end_position()[1]
    mysql_server.execute(f"INSERT INTO `{mysql_database}`.t VALUES (3, NULL)")
    mysql_server.flush_journal()
    mysql_server.copy_journals(tmp_path / "journals")
    damaged = tmp_path / "journals" / start["journal"]
    data = bytearray(damaged.read_bytes())
    data[good_end + 150] ^= 0x10
    damaged.write_bytes(data)
    config = make_config(
        {"kind": "archive", "directory": tmp_path / "journals"},
        include=[f"{mysql_database}.*"],
        start=start,
    )
    cursors = MemoryCursorStore()
    with pytest.raises(DamagedJournalError) as caught:
        capture(config, cursors=cursors)
    assert caught.value.journal == start["journal"]
    assert caught.value.offset is not None
    assert caught.value.offset >= good_end
    rows = lake_rows(memory, config.sink.lake_path, mysql_database, "t", ["id"])
    assert [row[0] for row in rows] == [1, 2]
    assert cursors.cursor is not None
    assert cursors.cursor.offset == good_end
