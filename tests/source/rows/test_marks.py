"""Marks around views (K17): low marks are committed, end marks are behind, exact views are exact
under writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.errors import ServerSettingError, TableReadInterruptedError
from cdc_pipeline.position.position import Position
from cdc_pipeline.source.rows.log_tail import LogTail
from cdc_pipeline.source.rows.marks import committed, exact_view, wait_committed
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, control, selected, table_reader
from tests.support.decoded_journals import read_chunk
from tests.support.waits import wait_until

WITHOUT_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@contextmanager
def writer(
    server: Server, database: str, table: str = "w", *, pause_s: float = 0
) -> Iterator[None]:
    """Rows are inserted into a table the whole time, one transaction each."""
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        with (
            closing(server.root_connection(database=database)) as connection,
            connection.cursor() as cursor,
        ):
            while not stop.wait(pause_s) if pause_s else not stop.is_set():
                cursor.execute(f"INSERT INTO {table} VALUES ()")
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(20)
        yield
    finally:
        stop.set()
        thread.join()


def places_of_rows(journals: list[Path]) -> list[tuple[int, int]]:
    """Where the transaction of each rows event of `w`, which is written row by row, begins."""
    found = []
    for path in journals:
        chunk = read_chunk(path)
        maps = np.flatnonzero(chunk.events["event_type"] == EventType.TABLE_MAP).tolist()
        ids = {
            int(chunk.events["table_id"][row])
            for row in maps
            if table_map.table_name(chunk.body(row)).table == "w"
        }
        rows = np.isin(chunk.events["event_type"], list(ROWS_TYPES)) & np.isin(
            chunk.events["table_id"], list(ids)
        )
        found += [
            Position(path.name, int(offset)).order for offset in chunk.events["tx_offset"][rows]
        ]
    return found


def before(places: list[tuple[int, int]], mark: Position) -> int:
    """How many rows transactions before the mark inserted."""
    return sum(place < mark.order for place in places)


def test_k17_low_marks_are_committed_and_end_marks_are_behind(
    server: Server, fresh_database: str
) -> None:
    server.execute(f"CREATE TABLE {fresh_database}.w (id INT PRIMARY KEY AUTO_INCREMENT)")
    schema = catalog_schema(server, fresh_database, "w")
    server.flush_journal()
    first = len(server.journals()) - 1
    seen = []
    with (
        control(server) as connection,
        table_reader(server) as reader,
        writer(server, fresh_database),
    ):
        while len(seen) < 5 or seen[0][1] == seen[-1][1]:  # the writer's thread may wait meanwhile
            low = wait_committed(connection, connection.end_position())
            reader.begin_view()
            end = connection.end_position()
            seen.append((low, selected(reader, schema)[0].num_rows, end))
            reader.end_view()
            assert committed(connection, low)
    server.flush_journal()
    places = places_of_rows(server.journals()[first:])
    for low_mark, rows, end in seen:
        assert before(places, low_mark) <= rows <= before(places, end)
    assert seen[0][1] < seen[-1][1]


def test_k17_an_exact_view_holds_what_is_before_its_mark(
    server: Server, fresh_database: str
) -> None:
    server.execute(f"CREATE TABLE {fresh_database}.w (id INT PRIMARY KEY AUTO_INCREMENT)")
    schema = catalog_schema(server, fresh_database, "w")
    server.flush_journal()
    first = len(server.journals()) - 1
    seen = []
    with (
        control(server) as connection,
        table_reader(server) as reader,
        writer(server, fresh_database),
    ):
        for _ in range(5):
            mark = exact_view(reader)
            seen.append((mark, selected(reader, schema)[0].num_rows))
            reader.end_view()
            assert mark.gtid_set
            assert committed(connection, mark)
    server.flush_journal()
    places = places_of_rows(server.journals()[first:])
    assert [rows for _, rows in seen] == [before(places, mark) for mark, _ in seen]
    assert seen[0][1] < seen[-1][1]


def test_k17_an_exact_view_among_writers_of_other_tables(
    mysql_server: Server, mysql_database: str
) -> None:
    """Some transaction is always between log and engine; only those of the table itself are in the
    way, and a statement whose tables are not known."""
    server, database = mysql_server, mysql_database
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE w (id INT PRIMARY KEY AUTO_INCREMENT)",
        "CREATE TABLE o (id INT PRIMARY KEY AUTO_INCREMENT)",
    )
    schema = catalog_schema(server, database, "w")
    server.flush_journal()
    first, seen = len(server.journals()) - 1, []
    tables = [(database, "w")]
    with control(server) as connection, table_reader(server) as reader, ExitStack() as stack:
        since = connection.end_position()  # at rest: its set is that of all before it
        assert LogTail(reader, tables, since).set_at(since.gtid_set, since) == since.gtid_set
        for _ in range(3):
            stack.enter_context(writer(server, database, "o"))
        stack.enter_context(writer(server, database, pause_s=0.005))
        for at in range(4):
            if at == 2:
                server.flush_journal()
            mark = exact_view(reader, tables=tables, since=since, timeout_s=20)
            seen.append((mark, selected(reader, schema)[0].num_rows))
            reader.end_view()
            assert wait_committed(connection, mark) == mark
        # As it would be with all of them still in flight: what touches the table, or might, is no
        # proof.
        end = connection.end_position()
        assert LogTail(reader, tables, since).set_at(since.gtid_set, end) is None
        rest = LogTail(
            reader, [(database, "none")], Position(end.journal, 4, gtid_set=since.gtid_set)
        )
        assert rest.set_at(since.gtid_set, end) is not None
        server.execute(f"ALTER TABLE `{database}`.o ADD COLUMN v INT")
        end = connection.end_position()
        assert rest.set_at(since.gtid_set, end) is None
    server.flush_journal()
    places = places_of_rows(server.journals()[first:])
    assert [rows for _, rows in seen] == [before(places, mark) for mark, _ in seen]
    assert seen[0][1] < seen[-1][1]


def test_what_was_never_committed_is_no_low_mark(server: Server) -> None:
    journal, _ = server.end_position()
    with control(server) as connection:
        gtid_set = (
            f"{server.variable('server_uuid')}:1-999999"
            if server.flavor == "mysql"
            else "0-1-999999"
        )
        beyond = Position(f"{journal.rpartition('.')[0]}.999999", 4, gtid_set=gtid_set)
        assert not committed(connection, beyond)
        with pytest.raises(TableReadInterruptedError, match="is not committed") as caught:
            wait_committed(connection, beyond, timeout_s=0.2)
        assert caught.value.retryable


@pytest.mark.mysql
def test_k17_mysql_without_gtids_has_an_earlier_boundary_where_its_locks_are_not_seen(
    start_server: Callable[..., Server],
) -> None:
    server = start_server("mysql", **WITHOUT_GTIDS)
    server.execute_all(
        "CREATE DATABASE d", "CREATE TABLE d.w (id INT PRIMARY KEY)", "INSERT INTO d.w VALUES (1)"
    )
    with control(server) as connection, table_reader(server) as reader:
        old = connection.end_position()
        assert not committed(connection, old)
        assert wait_committed(connection, old) == Position(old.journal, 4)
        server.flush_journal()
        assert committed(connection, old)
        assert wait_committed(connection, old) == old
        with pytest.raises(ServerSettingError, match="locks") as caught:
            exact_view(reader)
        assert caught.value.setting == "gtid_mode"
        assert "does not record" in str(caught.value.got)
        assert not reader.in_view


@contextmanager
def between_flush_and_commit(server: Server, *statements: str) -> Iterator[Position]:
    """A semi-synchronous source that waits for a replica holds a transaction there: in the log, in
    no view. Returns where the log ended before."""
    server.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    with control(server) as connection:
        start = connection.end_position()
        server.execute_all(
            "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
            "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
            "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON",
            "SET GLOBAL rpl_semi_sync_source_enabled = ON",
        )

        def write() -> None:
            with (
                closing(server.root_connection(database="d", autocommit=True)) as other,
                other.cursor() as cursor,
            ):
                for statement in statements:
                    cursor.execute(statement)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            wait_until(lambda: connection.end_position().order != start.order)
            yield start
        finally:
            server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
            thread.join()


@pytest.mark.mysql
def test_k17_mysql_without_gtids_proves_a_place_by_the_locks_of_those_who_commit(
    start_server: Callable[..., Server],
) -> None:
    """Also of an XA COMMIT; and with a writer who never pauses."""
    server = start_server("mysql", performance_schema=True, **WITHOUT_GTIDS)
    server.execute_all(
        "CREATE DATABASE d",
        "CREATE TABLE d.w (id INT PRIMARY KEY AUTO_INCREMENT)",
        "XA START 'x'",
        "INSERT INTO d.w VALUES ()",
        "XA END 'x'",
        "XA PREPARE 'x'",
    )
    server.new_session()
    schema = catalog_schema(server, "d", "w")
    with control(server) as connection, table_reader(server) as reader:
        assert committed(connection, connection.end_position())
        with between_flush_and_commit(server, "XA COMMIT 'x'"):
            flushed = connection.end_position()
            assert not committed(connection, flushed)
            assert wait_committed(connection, flushed, timeout_s=0.2) == Position(
                flushed.journal, 4
            )
            with pytest.raises(TableReadInterruptedError, match="in flight"):
                exact_view(reader, timeout_s=0.2)
            assert not reader.in_view
            assert selected(reader, schema)[0].num_rows == 0
        assert wait_committed(connection, flushed) == flushed
        assert exact_view(reader) == Position(flushed.journal, flushed.offset)
        assert selected(reader, schema)[0].num_rows == 1
        reader.end_view()
        assert not committed(connection, Position(flushed.journal, flushed.offset + 1))
        server.execute("TRUNCATE d.w")
        server.flush_journal()
        first = len(server.journals()) - 1
        seen = []
        with writer(server, "d"):
            for _ in range(5):
                end = connection.end_position()
                low = wait_committed(connection, end)
                assert low == end
                reader.begin_view()
                seen.append((low, selected(reader, schema)[0].num_rows))
                reader.end_view()
        server.flush_journal()
        places = places_of_rows(server.journals()[first:])
        assert all(before(places, mark) <= rows for mark, rows in seen)
        assert seen[0][1] < seen[-1][1]


@pytest.mark.mysql
def test_k17_a_transaction_between_flush_and_commit_is_not_committed(
    start_server: Callable[..., Server],
) -> None:
    server = start_server("mysql")
    server.execute_all("CREATE DATABASE d", "CREATE TABLE d.w (id INT PRIMARY KEY AUTO_INCREMENT)")
    schema = catalog_schema(server, "d", "w")
    with control(server) as connection, table_reader(server) as reader:
        assert selected(reader, schema)[0].num_rows == 0
        with between_flush_and_commit(server, "INSERT INTO w VALUES ()") as start:
            end = connection.end_position()
            uuid, number = start.gtid_set.rpartition(":")[0], int(start.gtid_set.rpartition("-")[2])
            flushed = Position(end.journal, end.offset, gtid_set=f"{uuid}:1-{number + 1}")
            assert not committed(connection, flushed)
            assert selected(reader, schema)[0].num_rows == 0
            with pytest.raises(TableReadInterruptedError, match="in flight"):
                exact_view(reader, timeout_s=0.3)
            assert not reader.in_view
        assert wait_committed(connection, flushed) == flushed
        mark = exact_view(reader)
        assert (mark.journal, mark.offset) == (end.journal, end.offset)
        assert selected(reader, schema)[0].num_rows == 1
