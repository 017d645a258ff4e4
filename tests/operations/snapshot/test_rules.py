"""What a load begins with, its chunks and its side lake (K17), each by itself: no table is written,
no JVM started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import KeylessTableError, SnapshotError
from cdc_pipeline.lake.long_operations import Operation, OperationFolder, new_operation_id
from cdc_pipeline.operations.snapshot.begin import SnapshotBegin
from cdc_pipeline.operations.snapshot.chunks import SnapshotChunks
from cdc_pipeline.operations.snapshot.main import MainLake
from cdc_pipeline.operations.snapshot.read_ahead import Work, read_chunk
from cdc_pipeline.operations.snapshot.server import SnapshotSource
from cdc_pipeline.operations.snapshot.side import SideBatch, SnapshotLake
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.admin_batch import admin_batch
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.plan.needs_snapshot import TableChoice
from cdc_pipeline.source.rows import marks
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, TableReader
from cdc_pipeline.targets.confirmed import confirmed
from cdc_pipeline.targets.decided import created_in_log
from cdc_pipeline.targets.targets import targets_at
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, control, selected, table_reader
from tests.support.captures import here, live
from tests.support.memory_shop import MemoryShop
from tests.support.waits import wait_until
from tests.support.xa_session import XaSession


def project(
    server: Server,
    lake: Path,
    *,
    include: str = "nothing.here",
    targets: Sequence[Any] = (),
    **snapshot: Any,
) -> PipelineConfig:
    """Captures of it write to no table."""
    return PipelineConfig.model_validate(
        {
            "name": "bank",
            "source": live(server),
            "start": here(server),
            "tables": {"include": [include], "allow_empty": include == "nothing.here"},
            "targets": list(targets),
            "snapshot": snapshot,
            "sink": {"lake_path": lake},
        }
    )


def main_of(config: PipelineConfig) -> MainLake:
    return MainLake(config, MemoryCursorStore(), RunObserver())


def begin_of(config: PipelineConfig, source: SnapshotSource) -> SnapshotBegin:
    return SnapshotBegin(main_of(config), source)


def place_of(server: Server) -> Position:
    return Position(*server.end_position())


@contextmanager
def held_commit(server: Server, sql: str) -> Iterator[Callable[[], None]]:
    """A transaction between flush and commit: it is in the log, and in no view until the function
    is called."""
    server.execute_all(
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
        "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
        "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON",
        "SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )
    start = place_of(server)

    def write() -> None:
        with closing(server.root_connection()) as connection, connection.cursor() as cursor:
            cursor.execute(sql)

    def commit() -> None:
        server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
        thread.join()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: place_of(server).order != start.order)
        yield commit
    finally:
        commit()


@pytest.mark.mysql
def test_k17_a_load_begins_when_all_before_its_low_mark_is_committed(
    start_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server("mysql")
    server.execute_all("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    config = project(server, tmp_path / "lake")
    waited: list[int] = []
    schema = catalog_schema(server, "d", "t")
    with (
        table_reader(server) as reader,
        SnapshotSource(config) as source,
        held_commit(server, "INSERT INTO d.t VALUES (1)") as commit,
    ):

        def wait(_seconds: float) -> None:
            waited.append(selected(reader, schema)[0].num_rows)
            commit()

        monkeypatch.setattr(marks, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
        with begin_of(config, source).start(TableChoice(("d.t",), ("d.t",))) as started:
            assert started.state.cursor.position.order == place_of(server).order
            assert waited == [0]


def test_k17_a_load_begins_behind_the_ddl_that_made_its_columns(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    server.execute(f"CREATE TABLE {fresh_database}.t (id INT PRIMARY KEY)")
    config = project(server, tmp_path / "lake")
    ends: list[Position] = []

    class Altering(SnapshotSource):
        """Between the low mark and the reading of the columns another session alters the
        table, once."""

        def proved(self, position: Position) -> Position:
            found = super().proved(position)
            if not ends:
                server.execute(f"ALTER TABLE {fresh_database}.t ADD COLUMN v INT")
                ends.append(place_of(server))
            return found

    name = f"{fresh_database}.t"
    with (
        Altering(config) as source,
        begin_of(config, source).start(TableChoice((name,), (name,))) as started,
    ):
        assert started.schemas[name].column_names == ("id", "v")
        assert started.state.cursor.position.order >= ends[0].order


def test_k17_a_load_does_not_begin_while_prepared_transactions_are_open(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    server.execute(f"CREATE TABLE {fresh_database}.t (id INT PRIMARY KEY)")
    config = project(server, tmp_path / "lake", include=f"{fresh_database}.*", lock_wait_s=0)
    prepared = XaSession(server, fresh_database, "'open'").run("INSERT INTO t VALUES (1)").prepare()
    try:
        with (
            SnapshotSource(config) as source,
            pytest.raises(SnapshotError, match="prepared XA transactions") as caught,
        ):
            begin_of(config, source).start(
                TableChoice((f"{fresh_database}.t",), (f"{fresh_database}.t",))
            ).__enter__()
        assert "X'6f70656e'" in str(caught.value.got)
    finally:
        prepared.rollback()


def test_k17_what_keeps_every_change_is_read_in_one_view_at_the_low_mark(
    mariadb_server: Server, mariadb_database: str, tmp_path: Path
) -> None:
    """A history and a table without a key; a mirror is read in chunks."""
    server, database = mariadb_server, mariadb_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE h (id INT PRIMARY KEY)",
        "CREATE TABLE k (v INT)",
        "INSERT INTO k VALUES (1), (1)",
    )
    rules = [
        {"tables": [f"{database}.h"], "mode": "history"},
        {"tables": [f"{database}.k"], "keyless": "row_hash"},
    ]
    config = project(server, tmp_path / "lake", targets=rules)
    names = [f"{database}.{table}" for table in "ahk"]
    with SnapshotSource(config) as source:
        with begin_of(config, source).start(TableChoice(tuple(names), tuple(names))) as started:
            assert started.state.exact == tuple(names[1:])
            assert started.view is not None
            end, executed = place_of(server), server.gtid_set()
            server.execute(f"INSERT INTO `{database}`.k VALUES (2)")
            low = started.state.cursor.position
            # The server writes a checkpoint of its log behind a flush when it likes, in no
            # transaction.
            assert (low.gtid_set, low.order <= end.order) == (executed, True)
            assert selected(started.view, started.schemas[names[2]])[0].num_rows == 2
        with begin_of(config, source).start(TableChoice((names[0],), (names[0],))) as started:
            assert (started.state.exact, started.view) == ((), None)


def test_k17_no_change_that_a_chunk_shows_lies_behind_its_end_mark(
    server: Server, fresh_database: str
) -> None:
    server.execute(f"CREATE TABLE {fresh_database}.t (id INT PRIMARY KEY)")
    schema = catalog_schema(server, fresh_database, "t")

    class Late(TableReader):
        """A row comes just before the view is opened."""

        def begin_view(self) -> None:
            server.execute(f"INSERT INTO {fresh_database}.t VALUES (1)")
            super().begin_view()

    with control(server) as connection, Late(connection.config) as reader:
        chunk = read_chunk(reader, connection, Work(schema, ALL_ROWS))
        assert len(chunk) == 1
        assert chunk.high.order >= place_of(server).order


def side_lake(config: PipelineConfig, server: Server, name: str, at: Position) -> SnapshotLake:
    """The side lake of a load that begins at a place; it has no table yet."""
    with control(server) as connection:
        identity = connection.identity
    begin = CursorState(
        source=config.name, batch_number=0, epoch=3, flavor=server.flavor,
        server_id=identity.server_id,
        server_uuid=identity.server_uuid, address=identity.address, journal=at.journal,
        offset=at.offset,
        gtid_set=at.gtid_set,
    )  # fmt: skip
    state = Operation(
        operation_id=new_operation_id(), source=config.name, sources=(name,), targets=(name,),
        cursor=begin, time_us=7, started_at_us=7,
    )  # fmt: skip
    folder = OperationFolder(config, state.operation_id)
    folder.create(state)
    side = SnapshotLake(config, folder, state, run_id="")
    side.open()
    return side


def test_k17_rows_stand_where_the_side_lake_does_and_are_appended_only_at_its_begin(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    name = f"{fresh_database}.t"
    server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    config = project(server, tmp_path / "lake")
    with control(server) as connection:
        low = connection.end_position()
    side = side_lake(config, server, name, low)

    def place_and_exact() -> tuple[int, bool]:
        targets = created_in_log(targets_at(side.config, None), [name])
        targets, (target,) = confirmed(targets, catalog_schema(server, fresh_database, "t"))
        with admin_batch(side.sink, cursors=MemoryCursorStore(side.cursor), doing="go on") as admin:
            batch = SideBatch(side, admin, targets)
        as_staged, _ = batch._as_staged(target)
        return batch.place.seq, as_staged.state.exact

    assert place_and_exact() == (seq_of_place(3, low.journal, low.offset), True)
    # Nothing of the table changes, but something might have: keys may come a second time.
    server.execute(f"CREATE TABLE {fresh_database}.other (id INT PRIMARY KEY)")
    with control(server) as connection:
        high = connection.end_position()
    side.capture_to(high)
    assert side.cursor.position.order == high.order
    assert place_and_exact() == (seq_of_place(3, high.journal, high.offset), False)


@pytest.mark.mysql
def test_k17_where_nothing_proves_the_low_mark_no_row_is_read(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    """MySQL without GTIDs, and a side lake that stands in the middle of the newest journal."""
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute_all(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)"
    )
    config = project(server, tmp_path / "lake")
    server.execute("INSERT INTO d.t VALUES (2)")
    side = side_lake(config, server, "d.t", place_of(server))
    with SnapshotSource(config) as source:
        chunks = SnapshotChunks(side, main_of(config), source)
        with pytest.raises(SnapshotError, match="nothing proves") as caught:
            chunks.run(None)
        assert "FLUSH BINARY LOGS" in str(caught.value.next_step)


def test_k17_a_side_lake_is_captured_to_its_bound_and_no_further(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    name = f"{fresh_database}.t"
    server.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    config = project(server, tmp_path / "lake")
    with control(server) as connection:
        low = connection.end_position()
        server.execute(f"CREATE TABLE {fresh_database}.other (id INT PRIMARY KEY)")
        bound = connection.end_position()
    server.execute(f"CREATE TABLE {fresh_database}.later (id INT PRIMARY KEY)")
    side = side_lake(config, server, name, low)
    side.capture_to(bound)
    assert side.cursor.position.order == bound.order


def test_k22_a_table_that_its_rule_refuses_costs_that_table_alone(
    mysql_server: Server, mysql_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the whole snapshot."""
    at = mysql_database
    mysql_server.execute_all(
        f"CREATE TABLE {at}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE {at}.k (v INT)",
        f"CREATE TABLE {at}.other (w INT)",
        f"INSERT INTO {at}.a VALUES (1), (2)",
    )
    stop = [{"tables": [f"{at}.*"], "keyless": "stop"}]
    shop = MemoryShop(project(mysql_server, tmp_path, include=f"{at}.*", targets=stop))
    shop.take_place(monkeypatch)
    with pytest.raises(KeylessTableError) as caught:
        take_snapshot(shop.config, cursors=shop.cursors)
    assert caught.value.table == f"{at}.k"
    assert "all other tables have theirs" in str(caught.value.next_step)
    assert [row["id"] for row in shop.rows(f"{at}.a")] == [1, 2]
    with pytest.raises(KeylessTableError):
        take_snapshot(shop.config, cursors=shop.cursors, tables=[f"{at}.other"])
