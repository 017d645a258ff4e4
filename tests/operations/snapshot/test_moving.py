"""A main lake that others capture, or do not, while a load brings its side lake up to it (K17)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_pipeline.errors import LakeStateError, ServerSettingError, SnapshotError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.verify.reread import repair
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture import capture
from tests.operations.snapshot.test_snapshot import project
from tests.servers import Server
from tests.support.comparison import lake_rows, server_rows
from tests.support.kills import AtPoint, killed_at
from tests.support.memory_sink import MemoryLake


def test_k17_tables_are_swapped_in_behind_the_last_mark_and_only_where_both_lakes_stand_at_one_place(  # noqa: E501
    mariadb_server: Server,
    mariadb_database: str,
    memory: MemoryLake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first capture after the reading comes to nothing; behind the next one the source moves
    on, once."""
    server, database = mariadb_server, mariadb_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
    )
    config = project(server, database, tmp_path, [])
    cursors = MemoryCursorStore()
    read: list[Position] = []
    passed: list[str] = []
    caught_up: list[Position] = []

    def watch(point: str) -> None:
        if point == "snapshot_created":  # behind the low mark, and in the chunk
            server.execute(f"INSERT INTO `{database}`.a VALUES (4, 4)")
        elif point == "snapshot_read":
            read.append(Position(*server.end_position()))
        elif point == "snapshot_caught_up":
            cursor = cursors.read()
            assert cursor is not None
            caught_up.append(cursor.position)
            if len(caught_up) == 1:
                server.execute_all(
                    f"USE `{database}`",
                    "UPDATE a SET v = 10 WHERE id = 1",
                    "DELETE FROM a WHERE id = 2",
                    "INSERT INTO a VALUES (5, 5)",
                )
                capture(config, cursors=cursors)

    capture_once = MainLake.capture_once

    def lagging(main: MainLake) -> None:
        if read and not passed:
            passed.append("the first one after the reading")
            return
        capture_once(main)

    monkeypatch.setattr(MainLake, "capture_once", lagging)
    with listening(watch):
        report = take_snapshot(config, cursors=cursors)
    found = lake_rows(memory, config.sink.lake_path, database, "a", ["id", "v"])
    assert found == server_rows(server, database, "a", ["id", "v"])
    assert caught_up[0].order >= read[0].order
    assert (len(report.targets), len(passed), len(caught_up)) == (1, 1, 2)


def test_k17_f153_a_chunk_that_was_never_recorded_is_read_again_behind_a_ddl(
    mysql_server: Server, mysql_database: str, memory: MemoryLake, tmp_path: Path
) -> None:
    """The side lake's capture past the DDL gets the number of the chunk's batch."""
    server, database = mysql_server, mysql_database
    rows = ", ".join(f"({key}, {key})" for key in range(30))
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO a VALUES {rows}",
    )
    config, cursors = project(server, database, tmp_path, [], chunk_rows=10), MemoryCursorStore()
    with killed_at("snapshot_chunks/before_record"):
        take_snapshot(config, cursors=cursors)
    server.execute(f"ALTER TABLE `{database}`.a ADD COLUMN w INT NOT NULL DEFAULT 7")
    with killed_at("snapshot_passed_ddl"):
        take_snapshot(config, cursors=cursors)
    report = take_snapshot(config, cursors=cursors)
    columns = ["id", "v", "w"]
    found = lake_rows(memory, config.sink.lake_path, database, "a", columns)
    assert found == server_rows(server, database, "a", columns)
    assert (len(report.resumed), report.targets[f"{database}.a"].rows_read) == (1, 30)


def test_k17_f180_bounds_of_another_key_bound_nothing(
    mysql_server: Server, mysql_database: str, memory: MemoryLake, tmp_path: Path
) -> None:
    """The target has a key of its own, so that it follows a table that gets another primary key."""
    server, database = mysql_server, mysql_database
    rows = ", ".join(f"({key}, {7 - key}, {key}, 1)" for key in range(8))
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, w INT NOT NULL, u INT NOT NULL UNIQUE, v INT)",
        f"INSERT INTO a VALUES {rows}",
    )
    rule = {"tables": [f"{database}.a"], "key": ["u"]}
    config, cursors = project(server, database, tmp_path, [rule], chunk_rows=2), MemoryCursorStore()
    columns, table = ["id", "w", "u", "v"], f"{database}.a"

    def alter(*key: str) -> None:
        server.execute(f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(key)})")

    def check() -> None:
        found = lake_rows(memory, config.sink.lake_path, database, "a", columns)
        assert found == server_rows(server, database, "a", columns)

    with listening(AtPoint("snapshot_chunks", lambda: alter("w"), 2)):
        report = take_snapshot(config, cursors=cursors)
    assert report.restarted == {table: ("the table's key changed while it was being read",)}
    check()
    server.execute_all("SET SESSION sql_log_bin = 0", f"UPDATE {table} SET v = 2")
    server.execute("SET SESSION sql_log_bin = 1")
    with killed_at("snapshot_chunks", 2):
        repair(config, cursors=cursors, table=table, where="v = 2")
    alter("id", "w")
    assert repair(config, cursors=cursors, table=table, where="v = 2").rows_written == 4 + 8
    check()


@pytest.mark.parametrize("mode", ["mirror", "soft_delete"])
def test_k17_f234_rows_read_again_keep_the_values_of_dropped_columns(
    mysql_server: Server, mysql_database: str, memory: MemoryLake, tmp_path: Path, mode: str
) -> None:
    server, table = mysql_server, f"{mysql_database}.a"
    server.execute_all(
        f"USE `{mysql_database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT, gone INT)",
        "INSERT INTO a VALUES (1, 1, 10), (2, 2, 20)",
    )
    rule = {"tables": [table], "mode": mode, "name": table}
    config, cursors = project(server, mysql_database, tmp_path, [rule]), MemoryCursorStore()
    take_snapshot(config, cursors=cursors)
    server.execute_all("ALTER TABLE a DROP gone", "INSERT INTO a VALUES (3, 3)")
    capture(config, cursors=cursors)
    unlogged = ["UPDATE a SET v = 7 WHERE id = 2", "INSERT INTO a VALUES (4, 4)"]
    server.execute_all("SET SESSION sql_log_bin = 0", *unlogged)
    server.execute("SET SESSION sql_log_bin = 1")
    assert repair(config, cursors=cursors, table=table, where="id > 1").rows_written == 3
    found = lake_rows(memory, config.sink.lake_path, mysql_database, "a", ["id", "v", "gone"])
    assert found == [(1, 1, 10), (2, 7, 20), (3, 3, None), (4, 4, None)]


def test_k35_f181_a_table_that_could_not_be_swapped_in_fails_its_snapshot(
    mysql_server: Server, mysql_database: str, memory: MemoryLake, tmp_path: Path
) -> None:
    server, database = mysql_server, mysql_database
    server.execute_all(
        f"USE `{database}`", "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1), (2)"
    )
    config, cursors = project(server, database, tmp_path, []), MemoryCursorStore()
    take_snapshot(config, cursors=cursors)

    def refused(_table: str, step: str) -> None:
        if step == "content":
            raise LakeStateError("damaged", next_step="restore it")

    memory.fault = refused
    with pytest.raises(SnapshotError, match=r"replace their targets: .*\.a: damaged; restore it"):
        take_snapshot(config, cursors=cursors, tables=[f"{database}.a"])
    memory.fault = lambda _table, _step: None
    report = take_snapshot(config, cursors=cursors, tables=[f"{database}.a"])
    assert (len(report.resumed), report.targets[f"{database}.a"].rows) == (1, 2)


@pytest.mark.whole
@pytest.mark.mysql
def test_k17_tables_that_need_an_exact_view_do_not_hold_up_the_others_where_there_is_none(
    start_server: Callable[..., Server], memory: MemoryLake, tmp_path: Path
) -> None:
    """MySQL without GTIDs, whose locks cannot be seen: no rows of a table without a key."""
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute_all(
        "CREATE DATABASE d",
        "CREATE TABLE d.a (id INT PRIMARY KEY)",
        "CREATE TABLE d.k (v INT)",
        "INSERT INTO d.a VALUES (1), (2)",
        "INSERT INTO d.k VALUES (1), (1)",
    )
    config = project(server, "d", tmp_path, [])
    cursors = MemoryCursorStore()
    with pytest.raises(ServerSettingError) as caught:
        take_snapshot(config, cursors=cursors)
    assert (caught.value.setting, caught.value.table) == ("gtid_mode", "d.k")
    assert "all other tables have theirs" in str(caught.value.next_step)
    assert lake_rows(memory, config.sink.lake_path, "d", "a", ["id"]) == [(1,), (2,)]
    with pytest.raises(ServerSettingError):
        take_snapshot(config, cursors=cursors, tables=["d.k"])
