"""GTID, query, table map and collations, against what real servers say of the same things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import gtid, query
from cdc_pipeline.binlog.events.gtid_kernel import gtid_commit_us
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.binlog.tables.collations import CHARACTER_BYTES_MAX, CHARSET_BY_COLLATION
from cdc_pipeline.errors import DamagedJournalError, MetadataMissingError
from tests.servers import Server

StartServer = Callable[..., Server]


def chunk_of(journal: Path) -> Chunk:
    framer = EventFramer(journal.name)
    data = np.frombuffer(journal.read_bytes()[4:], dtype=np.uint8)
    chunk, consumed = framer.feed(data)
    assert chunk is not None
    framer.finish(len(data) - consumed)
    return chunk


def rows_of_type(chunk: Chunk, *types: EventType) -> list[int]:
    return np.flatnonzero(np.isin(chunk.events["event_type"], types)).tolist()


def schema_of(server: Server, database: str) -> TableSchema:
    """Of the table `t`, from its last map. Other tests' maps on the same server may be of any kind:
    passed over."""
    found = None
    for journal in server.journals():
        chunk = chunk_of(journal)
        for row in rows_of_type(chunk, EventType.TABLE_MAP):
            body = chunk.body(row)
            if table_map.table_name(body)[:2] == (database, "t"):
                found = table_map.parse(
                    body, journal=journal.name, offset=0, is_mariadb=chunk.journal_format.is_mariadb
                )
    assert found is not None
    return found


def test_mysql_collations_are_the_servers(mysql_server: Server) -> None:
    rows = mysql_server.query(
        "SELECT c.ID, c.CHARACTER_SET_NAME, s.MAXLEN FROM information_schema.COLLATIONS c"
        " JOIN information_schema.CHARACTER_SETS s USING (CHARACTER_SET_NAME)"
    )
    assert len(rows) > 250
    assert [
        (number, CHARSET_BY_COLLATION.get(number), CHARACTER_BYTES_MAX[name])
        for number, name, _ in rows
    ] == rows


def test_mariadb_collations_are_the_servers(mariadb_server: Server) -> None:
    rows = mariadb_server.query(
        "SELECT c.ID, c.CHARACTER_SET_NAME, s.MAXLEN"
        " FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY c"
        " JOIN information_schema.CHARACTER_SETS s USING (CHARACTER_SET_NAME)"
    )
    assert len(rows) > 1000
    assert [
        (number, CHARSET_BY_COLLATION.get(number), CHARACTER_BYTES_MAX[name])
        for number, name, _ in rows
    ] == rows


@pytest.mark.mysql
def test_mysql_gtids_tags_and_commit_times(start_server: StartServer) -> None:
    server = start_server("mysql")
    server.execute_all("CREATE DATABASE g", "CREATE TABLE g.t (a INT PRIMARY KEY)")
    foreign = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeffff"
    connection = server.root_connection(database="g")
    with connection.cursor() as cursor:
        for number, setting in enumerate(
            (
                "gtid_next = 'AUTOMATIC:tg'",
                f"gtid_next = '{foreign}:zz9:300000'",
                f"gtid_next = '{foreign}:9007199254740993'",
                "gtid_next = 'AUTOMATIC', original_commit_timestamp = 1234567890123456",
                "gtid_next = 'AUTOMATIC:tg', original_commit_timestamp = 1234567890123457",
            )
        ):
            cursor.execute(f"SET {setting}")
            cursor.execute(f"INSERT INTO t VALUES ({number})")
            connection.commit()
    connection.close()
    server.flush_journal()
    first, last = (chunk_of(journal) for journal in server.journals()[-2:])
    found = {
        key: numbers.tolist() for key, numbers in gtid.executed(first, 0, len(first.events)).items()
    }
    own = str(server.query("SELECT @@server_uuid")[0][0])
    assert found == {
        own: [1, 2, 3],
        f"{own}:tg": [1, 2],
        f"{foreign}:zz9": [300000],
        foreign: [9007199254740993],
    }
    row = rows_of_type(last, EventType.PREVIOUS_GTIDS)[0]
    body = last.body(row)
    text = gtid.previous_set(body, EventType.PREVIOUS_GTIDS, journal="", offset=0)
    assert text == server.gtid_set().replace("\n", "").replace(" ", "")
    times = []
    for row in rows_of_type(first, EventType.GTID, EventType.GTID_TAGGED):
        event_type = int(first.events["event_type"][row])
        start, size = (
            int(first.events["start"][row]) + 19,
            int(first.events["event_length"][row]) - 23,
        )
        times.append(gtid_commit_us(first.data, start, size, event_type))
    assert times[-2:] == [1234567890123456, 1234567890123457]
    assert set(gtid.gtid_texts(first, 0, len(first.events)).values()) == {
        f"{key}:{number}" for key, numbers in found.items() for number in numbers
    }


@pytest.mark.mysql
def test_anonymous_transactions_are_in_no_set(start_server: StartServer) -> None:
    server = start_server("mysql", gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute("CREATE DATABASE g")
    chunk = chunk_of(server.journals()[-1])
    rows = rows_of_type(chunk, EventType.ANONYMOUS_GTID)
    assert rows
    assert (
        str(gtid.parse(chunk.body(rows[0]), EventType.ANONYMOUS_GTID, journal="", offset=0))
        == "ANONYMOUS"
    )
    assert gtid.executed(chunk, 0, len(chunk.events)) == {}


@pytest.mark.mariadb
def test_mariadb_gtids(start_server: StartServer) -> None:
    server = start_server("mariadb")
    server.execute_all(
        "CREATE DATABASE g",
        "SET SESSION gtid_domain_id = 5, server_id = 77",
        "CREATE TABLE g.t (a INT PRIMARY KEY)",
        "SET SESSION gtid_seq_no = 5000000000",
        "INSERT INTO g.t VALUES (1)",
    )
    server.flush_journal()
    first, last = (chunk_of(journal) for journal in server.journals()[-2:])
    row = rows_of_type(last, EventType.MARIADB_GTID_LIST)[0]
    text = gtid.previous_set(last.body(row), EventType.MARIADB_GTID_LIST, journal="", offset=0)
    assert set(text.split(",")) == set(
        str(server.query("SELECT @@gtid_binlog_state")[0][0]).split(",")
    )
    found = gtid.executed(first, 0, len(first.events))
    assert {f"{key}-{numbers[-1]}" for key, numbers in found.items()} == set(text.split(","))
    rows = rows_of_type(first, EventType.MARIADB_GTID)
    parsed = [
        gtid.parse_mariadb(
            first.body(row), int(first.events["server_id"][row]), journal="", offset=0
        )
        for row in rows
    ]
    assert {entry.key for entry in parsed} == set(found)


def test_short_gtid_events_are_damage() -> None:
    for event_type in (EventType.GTID, EventType.GTID_TAGGED):
        with pytest.raises(DamagedJournalError):
            gtid.parse(b"\2\4", event_type, journal="j", offset=4)
    with pytest.raises(DamagedJournalError):
        gtid.parse_mariadb(b"\1", 1, journal="j", offset=4)
    for event_type in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
        with pytest.raises(DamagedJournalError):
            gtid.previous_set(b"\1\0\0\0\0\0\0\0\1", event_type, journal="j", offset=4)
    for size in range(60):
        data = np.frombuffer(bytes([0xFF] * size), dtype=np.uint8)
        assert gtid_commit_us(data, 0, size, 42) == -1


COLUMNS = """
    id BIGINT NOT NULL, y YEAR, t TINYINT UNSIGNED, m MEDIUMINT UNSIGNED, i INT, d DECIMAL(20,3) UNSIGNED, f FLOAT,
    g DOUBLE UNSIGNED, b BIT(10), v VARCHAR(300) CHARACTER SET latin1 NOT NULL, c CHAR(200) CHARACTER SET utf8mb4,
    s CHAR(5) CHARACTER SET utf8mb3, n BINARY(16), w VARBINARY(20), x TEXT CHARACTER SET utf16, l LONGBLOB,
    e ENUM('é','b') CHARACTER SET latin1, k SET('x','y','z') CHARACTER SET gbk, h ENUM('漢') CHARACTER SET utf16,
    dt DATETIME(3), ts TIMESTAMP(6) NULL, tm TIME, da DATE, po POINT, PRIMARY KEY (v(10), id)
"""  # noqa: E501

EXPECTED = [
    Column("id", Kind.INT64, 8, 0, False),
    Column("y", Kind.YEAR, 13, 0, True),
    Column("t", Kind.INT8, 1, 0, True, unsigned=True),
    Column("m", Kind.INT24, 9, 0, True, unsigned=True),
    Column("i", Kind.INT32, 3, 0, True),
    Column("d", Kind.DECIMAL, 246, 20 << 8 | 3, True, unsigned=True, precision=20, scale=3),
    Column("f", Kind.FLOAT, 4, 4, True),
    Column("g", Kind.DOUBLE, 5, 8, True, unsigned=True),
    Column("b", Kind.BIT, 16, 10, True, bits=10),
    Column("v", Kind.TEXT, 15, 300, False, charset="latin1", char_length_max=300),
    Column("c", Kind.TEXT, 254, 800, True, charset="utf8mb4", char_length_max=200),
    Column("s", Kind.TEXT, 254, 15, True, charset="utf8mb3", char_length_max=5),
    Column("n", Kind.BINARY, 254, 16, True, pad_bytes=16, char_length_max=16),
    Column("w", Kind.BINARY, 15, 20, True, char_length_max=20),
    Column("x", Kind.TEXT, 252, 2, True, charset="utf16"),
    Column("l", Kind.BINARY, 252, 4, True),
    Column("e", Kind.ENUM, 247, 1, True, charset="latin1", labels=("é", "b")),
    Column("k", Kind.SET, 248, 1, True, charset="gbk", labels=("x", "y", "z")),
    Column("h", Kind.ENUM, 247, 1, True, charset="utf16", labels=("漢",)),
    Column("dt", Kind.DATETIME, 18, 3, True, fraction_digits=3),
    Column("ts", Kind.TIMESTAMP, 17, 6, True, fraction_digits=6),
    Column("tm", Kind.TIME, 19, 0, True),
    Column("da", Kind.DATE, 10, 0, True),
    Column("po", Kind.GEOMETRY, 255, 4, True),
]


def test_every_kind_of_column(server: Server, fresh_database: str) -> None:
    server.execute_all(
        f"CREATE TABLE `{fresh_database}`.t ({COLUMNS})",
        f"INSERT INTO `{fresh_database}`.t (id, v) VALUES (1, 'a')",
    )
    schema = schema_of(server, fresh_database)
    assert list(schema.columns) == EXPECTED
    assert schema.key_names == ("v", "id")


def test_mysql_json_vector_and_hidden_columns(mysql_server: Server, mysql_database: str) -> None:
    mysql_server.execute_all(
        "SET SESSION sql_generate_invisible_primary_key = ON",
        f"CREATE TABLE `{mysql_database}`.t (j JSON, v VECTOR(3), i INT INVISIBLE, g INT AS (i + "
        "1) VIRTUAL, n VARCHAR(9), KEY a ((LOWER(n))), KEY b ((CAST(j->'$.x' AS UNSIGNED ARRAY))))",
        f"INSERT INTO `{mysql_database}`.t (n) VALUES ('a')",
    )
    found = schema_of(mysql_server, mysql_database)
    kinds = [(column.name, column.kind, column.visible) for column in found.columns]
    assert kinds[-5:] == [
        ("j", Kind.JSON, True),
        ("v", Kind.VECTOR, True),
        ("i", Kind.INT32, False),
        ("g", Kind.INT32, True),
        ("n", Kind.TEXT, True),
    ]


@pytest.mark.mysql
def test_metadata_below_full_names_the_statement(start_server: StartServer) -> None:
    server = start_server("mysql", binlog_row_metadata="MINIMAL")
    server.execute_all(
        "CREATE DATABASE g", "CREATE TABLE g.t (a INT)", "INSERT INTO g.t VALUES (1)"
    )
    with pytest.raises(MetadataMissingError) as caught:
        schema_of(server, "g")
    assert caught.value.table == "g.t"
    assert "binlog_row_metadata = 'FULL'" in str(caught.value)


def test_every_cut_of_a_table_map_is_an_error_and_no_crash(
    server: Server, fresh_database: str
) -> None:
    server.execute_all(
        f"CREATE TABLE `{fresh_database}`.u ({COLUMNS})",
        f"INSERT INTO `{fresh_database}`.u (id, v) VALUES (1, 'a')",
    )
    chunk = chunk_of(server.journals()[-1])
    body = bytes(chunk.body(rows_of_type(chunk, EventType.TABLE_MAP)[-1]))
    for size in range(len(body)):
        try:
            table_map.parse(body[:size], journal="j", offset=4)
        except (DamagedJournalError, MetadataMissingError):
            continue
        # Only what comes after the required fields may be missing: the visibility of columns, the
        # key.
        assert size > len(body) - 60


def test_query_text_and_session(server: Server, fresh_database: str) -> None:
    connection = server.root_connection(database=fresh_database)
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID(), @@sql_mode")
        thread_id = cursor.fetchone()[0]  # type: ignore[index]
        cursor.execute("CREATE TABLE `täble` (a INT)")
        cursor.execute("SET NAMES latin1")
    connection.encoding = "latin1"
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE `ünder` (a INT)")
    connection.close()
    chunk = chunk_of(server.journals()[-1])
    queries = [query.parse_query(chunk, row) for row in rows_of_type(chunk, EventType.QUERY)][-2:]
    assert [entry.sql for entry in queries] == [
        "CREATE TABLE `täble` (a INT)",
        "CREATE TABLE `ünder` (a INT)",
    ]
    assert [entry.charset for entry in queries] == ["utf8mb4", "latin1"]
    assert queries[1].raw == "CREATE TABLE `ünder` (a INT)".encode("latin1")
    for entry in queries:
        assert (entry.database, entry.thread_id, entry.error_code) == (fresh_database, thread_id, 0)
        assert entry.is_exact
        assert entry.sql_mode is not None


def test_unknown_status_variables_and_text_that_cannot_be_decoded() -> None:
    variables = b"\1" + (5).to_bytes(8, "little") + b"\xc8anything"
    body = (
        bytes(8)
        + b"\1\0\0"
        + len(variables).to_bytes(2, "little")
        + variables
        + b"d\0"
        + b"SELECT '\xff'"
    )
    parsed = query.parse(body, journal="j", offset=4)
    assert (parsed.sql, parsed.database, parsed.sql_mode, parsed.charset) == (
        "SELECT '\ufffd'",
        "d",
        5,
        "",
    )
    assert parsed.raw == b"SELECT '\xff'"
    assert not parsed.is_exact
    for size in range(len(body) - len(b"SELECT '\xff'")):
        with pytest.raises(DamagedJournalError):
            query.parse(body[:size], journal="j", offset=4)


@pytest.mark.parametrize(
    ("listed", "databases"),
    [
        (b"\x02a\0\xc3\xa4\0", frozenset({"a", "ä"})),
        (b"\x01\0", None),
        (b"\x02a\0\0", None),
        (b"\xfe", None),
        (b"", None),
    ],
)
def test_k29_the_databases_of_a_statement(listed: bytes, databases: frozenset[str] | None) -> None:
    """MySQL lists those of all tables that the statement opened; MariaDB has no such list."""
    variables = b"\x0c" + listed if listed else b""
    body = bytes(11) + len(variables).to_bytes(2, "little") + variables + b"\0DO f()"
    assert query.parse(body, journal="j", offset=4).databases == databases
    assert query.parse(body, journal="j", offset=4, is_mariadb=True).databases is None
