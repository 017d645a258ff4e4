"""Reading tables of live servers: views, errors in the stream, long rows, memory, TLS, and leaving
in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.decoded import INSERT
from cdc_pipeline.binlog.selected import SNAPSHOT_SEQS, SelectedRows, next_seq
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.seq_columns import event_ordinals, ordinals
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import (
    CdcError,
    ConfigError,
    MissingGrantError,
    ServerUnreachableError,
    SourceError,
    TableChangedError,
    TableReadInterruptedError,
)
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, TableReader
from tests.campaigns.edges.evidence import Journal
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, selected, table_reader
from tests.support.waits import wait_until


def filled(
    server: Server, database: str, *, rows: int = 100, width: int = 10, table: str = "t"
) -> TableSchema:
    """A table of `rows` rows with a key and a LONGBLOB of `width` bytes."""
    values = ", ".join(f"({n}, REPEAT('{n % 10}', {width}))" for n in range(rows))
    server.execute(f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY, b LONGBLOB)")
    server.execute(f"INSERT INTO {database}.{table} VALUES {values}")
    return catalog_schema(server, database, table)


def running(server: Server, text: str) -> list[int]:
    """Connections whose statement holds `text`."""
    rows = server.query("SELECT ID, INFO FROM information_schema.PROCESSLIST WHERE USER = 'cdc'")
    return [int(number) for number, info in rows if info and text in str(info)]


# -- views -----------------------------------------------------------------------------------------


def test_a_view_is_one_moment(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database)
    with table_reader(server) as reader:
        reader.begin_view()
        assert reader.in_view
        server.execute(f"DELETE FROM {fresh_database}.t WHERE id < 50")
        assert selected(reader, schema)[0].num_rows == 100
        server.execute(f"INSERT INTO {fresh_database}.t VALUES (1000, 'x')")
        assert selected(reader, schema)[0].num_rows == 100
        with pytest.raises(SourceError, match="open already"):
            reader.begin_view()
        reader.end_view()
        assert selected(reader, schema)[0].num_rows == 51
        reader.end_view()


def test_nothing_can_be_written(server: Server, fresh_database: str) -> None:
    """The user's own condition cannot change the server, whatever rights the account has."""
    schema = filled(server, fresh_database)
    server.execute(f"CREATE TABLE {fresh_database}.w (a INT)")
    with table_reader(server, user="root", password="") as reader:
        reader.begin_view()
        with pytest.raises(SourceError):
            reader.query(f"INSERT INTO {fresh_database}.w VALUES (1)")
        reader.end_view()
        with pytest.raises(SourceError):
            reader.query(f"INSERT INTO {fresh_database}.w VALUES (1)")
        with pytest.raises(CdcError):
            list(reader.select(schema, where="id = 1); DROP TABLE t; SELECT (1"))
    assert server.query(f"SELECT COUNT(*) FROM {fresh_database}.w") == [(0,)]
    assert server.query(f"SELECT COUNT(*) FROM {fresh_database}.t") == [(100,)]


def test_one_result_at_a_time(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database)
    with table_reader(server) as reader, closing_batches(reader, schema, batch_rows=10) as batches:
        next(batches)
        with pytest.raises(SourceError, match="still being read"):
            next(reader.select(schema))


@contextmanager
def closing_batches(
    reader: TableReader, schema: TableSchema, **options: Any
) -> Iterator[Iterator[SelectedRows]]:
    batches = reader.select(schema, **options)
    try:
        yield batches
    finally:
        batches.close()  # type: ignore[attr-defined]


# -- batches and memory ----------------------------------------------------------------------------


def test_batches_are_bounded_by_rows_and_bytes(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database, rows=300, width=1000)
    with table_reader(server, batch_bytes=20_000) as reader:
        sizes = [len(batch) for batch in reader.select(schema, batch_rows=7)]
        assert sizes == [7] * 42 + [6]
        sizes = [len(batch) for batch in reader.select(schema)]
        assert sum(sizes) == 300
        assert max(sizes) <= 20


def test_memory_is_bounded_whatever_the_tables_size(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database, rows=100, width=300_000)
    with table_reader(server, batch_bytes=4 << 20) as reader:
        before = pa.total_allocated_bytes()
        rows = most = 0
        for batch in reader.select(schema):
            rows += len(batch)
            most = max(most, pa.total_allocated_bytes() - before)
            del batch
        assert rows == 100
        assert most < 12 << 20


def test_rows_of_more_than_one_packet(server: Server, fresh_database: str) -> None:
    """16 MiB and more: the row goes on in the next packet; small ones are around it."""
    packet = int(server.variable("max_allowed_packet"))
    server.execute("SET GLOBAL max_allowed_packet = 1073741824")
    try:
        with closing(server.root_connection()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {fresh_database}.t (id INT PRIMARY KEY, b LONGBLOB)")
            for number, size in enumerate((5, 17 << 20, 7, (1 << 24) - 13, 0)):
                cursor.execute(
                    f"INSERT INTO {fresh_database}.t VALUES ({number}, REPEAT('{number}', {size}))"
                )
        schema = catalog_schema(server, fresh_database, "t")
        with table_reader(server, batch_bytes=1 << 20) as reader:
            found = [
                row
                for batch in reader.select(schema, bounds=ALL_ROWS)
                for row in batch.rows.to_pylist()
            ]
    finally:
        server.execute(f"SET GLOBAL max_allowed_packet = {packet}")
    assert [len(row["b"]) for row in found] == [5, 17 << 20, 7, (1 << 24) - 13, 0]
    assert all(row["b"] == str(row["id"]).encode() * len(row["b"]) for row in found)


# -- leaving and failing ---------------------------------------------------------------------------


def test_leaving_in_the_middle_leaves_no_statement_running(
    server: Server, fresh_database: str
) -> None:
    schema = filled(server, fresh_database, rows=120, width=200_000)
    with table_reader(server) as reader:
        reader.begin_view()
        with closing_batches(reader, schema, batch_rows=1) as batches:
            next(batches)
            assert running(server, "SELECT `id`")
        wait_until(lambda: not running(server, "SELECT `id`"))
        with pytest.raises(TableReadInterruptedError, match="view"):
            list(reader.select(schema))
        reader.end_view()
        assert sum(len(batch) for batch in reader.select(schema)) == 120


def read_until_error(
    reader: TableReader, schema: TableSchema, act: Callable[[], object]
) -> tuple[int, CdcError]:
    """Row by row; `act` is called behind the first. The rows, and the error that must come."""
    rows = 0
    try:
        for batch in reader.select(schema, batch_rows=1):
            rows += len(batch)
            if rows == 1:
                act()
    except CdcError as error:
        return rows, error
    raise AssertionError(f"no error after {rows} rows")


@pytest.mark.parametrize("statement", ["KILL QUERY", "KILL"])
def test_a_killed_statement_can_be_tried_again(
    server: Server, fresh_database: str, statement: str
) -> None:
    schema = filled(server, fresh_database, rows=120, width=200_000)
    with table_reader(server) as reader:

        def kill() -> None:
            for number in running(server, "SELECT `id`"):
                server.execute(f"{statement} {number}")

        rows, error = read_until_error(reader, schema, kill)
        assert isinstance(error, (TableReadInterruptedError, ServerUnreachableError))
        assert error.retryable
        assert error.table == f"{fresh_database}.t"
        assert 0 < rows < 120
        assert sum(len(batch) for batch in reader.select(schema)) == 120


def test_columns_that_have_changed(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database)
    statements = {
        "another type": "MODIFY id BIGINT",
        "text": "MODIFY id INT, MODIFY b LONGTEXT CHARACTER SET latin1",
        "another column": "DROP COLUMN b, ADD COLUMN x INT",
        "another name": f"RENAME TO {fresh_database}.other",
    }
    with table_reader(server) as reader:
        for name, statement in statements.items():
            server.execute(f"ALTER TABLE {fresh_database}.t {statement}")
            with pytest.raises(TableChangedError) as caught:
                list(reader.select(schema))
            assert caught.value.table == f"{fresh_database}.t", name
            assert not caught.value.retryable


def test_a_ddl_behind_the_view(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database)
    other = filled(server, fresh_database, table="other")
    with table_reader(server) as reader:
        reader.begin_view()
        selected(reader, other)
        server.execute(
            f"ALTER TABLE {fresh_database}.t DROP PRIMARY KEY, ADD COLUMN x INT, ADD "
            "PRIMARY KEY (id, b(3))"
        )
        with pytest.raises(TableChangedError) as caught:
            list(reader.select(schema))
        assert "1412" in str(caught.value.got)


def test_a_missing_grant_and_a_wrong_condition(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database)
    user, password = server.create_replication_user("poor", grants=("REPLICATION SLAVE",))
    with table_reader(server, user=user, password=password) as reader:
        with pytest.raises(MissingGrantError) as caught:
            list(reader.select(schema))
        assert f"GRANT SELECT ON `{fresh_database}`.`t`" in str(caught.value.next_step)
    with table_reader(server) as reader:
        for where in ("id = ", "nothing = 1", "unknown_function(id) = 1", "id IN (SELECT 1, 2)"):
            with pytest.raises(ConfigError) as told:
                list(reader.select(schema, where=where))
            assert told.value.setting == "where"
        assert selected(reader, schema, where="id < 10 OR id = 20 # all others")[0].num_rows == 11


def test_a_lock_that_is_not_given_can_be_tried_again(
    mysql_server: Server, mysql_database: str
) -> None:
    schema = filled(mysql_server, mysql_database)
    with (
        closing(mysql_server.root_connection(database=mysql_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("LOCK TABLES t WRITE")
        with table_reader(mysql_server) as reader:
            reader.query("SET SESSION lock_wait_timeout = 1")
            with pytest.raises(TableReadInterruptedError) as caught:
                list(reader.select(schema))
    assert caught.value.retryable


@pytest.mark.parametrize("mode", ["preferred", "verify_ca"])
def test_over_tls(mysql_server: Server, mysql_database: str, mode: str) -> None:
    schema = filled(mysql_server, mysql_database, rows=20, width=300_000)
    user, password = mysql_server.create_replication_user("tls_only")
    mysql_server.execute(f"ALTER USER {user} REQUIRE SSL")
    tls = {"mode": mode} | (
        {} if mode == "preferred" else {"ca_file": mysql_server.datadir / "ca.pem"}
    )
    with table_reader(mysql_server, user=user, password=password, tls=tls) as reader:
        rows = selected(reader, schema)[0]
        assert reader.encrypted
    assert rows.column("b").to_pylist() == [str(n % 10).encode() * 300_000 for n in range(20)]


def test_settings_of_the_server_do_not_change_values(server: Server, fresh_database: str) -> None:
    settings = {
        "sql_mode": "'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ZERO_DATE'",  # noqa: E501
        "time_zone": "'+05:30'", "sql_select_limit": "3", "sql_big_selects": "0",
        "max_join_size": "5",
    }  # fmt: skip
    server.execute_all(
        "SET sql_mode = ''",
        f"CREATE TABLE {fresh_database}.t (id INT PRIMARY KEY, c CHAR(9), m TIMESTAMP NULL)",
        f"INSERT INTO {fresh_database}.t VALUES (1, 'a', '2024-01-01'), (2, 'b', '0000-00-00'), "
        "(3, 'c', NULL), (4, 'd', NULL), (5, 'e', NULL), (6, 'f', NULL)",
    )  # fmt: skip
    schema = catalog_schema(server, fresh_database, "t")
    before = {name: server.variable(name) for name in settings}
    try:
        for name, value in settings.items():
            server.execute(f"SET GLOBAL {name} = {value}")
        with table_reader(server) as reader:
            rows, invalid = selected(reader, schema)
    finally:
        for name, value in before.items():
            server.execute(f"SET GLOBAL {name} = {value if value.isdigit() else repr(value)}")
    assert rows.column("c").to_pylist() == list("abcdef")
    assert rows.column("m").cast(pa.int64())[0].as_py() == 1_704_067_200_000_000
    assert [value.text for value in invalid] == ["0000-00-00 00:00:00"]


# -- as inserts ------------------------------------------------------------------------------------

SCHEMA = TableSchema(
    "d", "t", (Column("a", Kind.INT32, -1, 0, True), Column("b", Kind.TEXT, -1, 0, True)), (0,)
)


def some_rows(count: int) -> SelectedRows:
    batch = pa.record_batch(
        [pa.array(range(count), pa.int32()), pa.nulls(count, pa.string())], ["a", "b"]
    )
    return SelectedRows(SCHEMA, batch)


def test_k17_loaded_rows_are_older_than_any_change_at_their_low_mark() -> None:
    first = pack_seq(3, 7, (1 << 40) - 5)
    rows = some_rows(10).as_inserts(seq_first=first, commit_ts_us=55)
    seqs = [int(value) for value in rows.seq.to_pylist()]
    assert seqs == [first + 2 * row for row in range(10)]
    earlier = pack_seq(3, 7, (1 << 40) - 6, (1 << 24) - 1, (1 << 18) - 1, 1)
    # GTID event, table map, rows: no server has rows before ordinal 2.
    assert earlier < seqs[0] < seqs[-1] + 1 < pack_seq(3, 7, (1 << 40) - 5, 2, 0)
    assert rows.op.tolist() == [INSERT] * 10
    assert rows.after.equals(some_rows(10).rows)
    assert rows.before.num_columns == 2
    assert rows.before.column("a").null_count == 10
    assert rows.all_present
    assert rows.after_present.tolist() == [[3]] * 10
    assert not rows.before_present.any()
    assert set(rows.commit_ts_us.tolist()) == {55}


def test_k17_places_go_on_from_batch_to_batch_and_end_before_the_first_change() -> None:
    first = pack_seq(0, 1, 4)
    at, places = first, []
    for count in (200_000, 100_000, 300_000, 50):
        rows = some_rows(count).as_inserts(seq_first=at, commit_ts_us=0)
        places.append(ordinals(rows.seq))
        assert int(rows.seq[0].as_py()) == at
        at = next_seq(at, count)
    found = np.concatenate(places)
    assert found.tolist() == np.minimum(np.arange(600_050), SNAPSHOT_SEQS - 1).tolist()
    assert SNAPSHOT_SEQS == 2 << 18
    assert at == first + 2 * (SNAPSHOT_SEQS - 1) < pack_seq(0, 1, 4, 2)


@pytest.mark.parametrize("seq", [pack_seq(0, 1, 4, 2), pack_seq(0, 1, 4, 0, 0, 1)])
def test_other_places_are_refused(seq: int) -> None:
    with pytest.raises(ValueError, match="not the seq of a loaded row"):
        some_rows(1).as_inserts(seq_first=seq, commit_ts_us=0)


def test_k17_no_server_writes_rows_before_the_third_event(
    server: Server, fresh_database: str
) -> None:
    """What the places of loaded rows rest on, also without BEGIN and in payloads."""
    server.execute(f"CREATE TABLE {fresh_database}.t (id INT PRIMARY KEY, b LONGBLOB)")
    if server.flavor == "mysql":
        server.execute("SET SESSION binlog_transaction_compression = ON")
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (1, REPEAT('x', 10000))")
    if server.flavor == "mysql":
        server.execute("SET SESSION binlog_transaction_compression = OFF")
    else:
        server.execute("SET SESSION binlog_annotate_row_events = OFF")
    server.execute(f"INSERT INTO {fresh_database}.t VALUES (2, 'y')")
    found = event_ordinals(Journal(server, fresh_database).rows("t").seq)
    assert found.tolist() == ([4, 3] if server.flavor == "mysql" else [3, 2])


def test_bounds_without_a_key_are_refused(server: Server, fresh_database: str) -> None:
    schema = filled(server, fresh_database)
    with table_reader(server) as reader, pytest.raises(ValueError, match="a key of 0 columns"):
        reader.select(replace(schema, primary_key=()), bounds=replace(ALL_ROWS, upto=("5",)))


def test_k25_f19_a_row_is_waited_for_by_its_own_setting(
    server: Server, fresh_database: str
) -> None:
    """A server that computes sends nothing for longer than an answer may take; and not for ever."""
    schema = filled(server, fresh_database, rows=1)
    with table_reader(server, read_timeout_s=20, row_timeout_s=300) as reader:
        batches = reader.select(schema)
        assert len(next(batches)) == 1
        connection: Any = reader._connection
        assert connection._sock.gettimeout() == 300
        assert list(batches) == []
    with (
        table_reader(server, read_timeout_s=0.2, row_timeout_s=0.2) as reader,
        pytest.raises(ServerUnreachableError),
    ):
        list(reader.select(schema, where="SLEEP(60) = 0"))
