"""MariaDB's own: COMPRESSED columns, the old temporal format, UUID and addresses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.errors import TableChangedError, UnknownColumnTypeError
from tests.campaigns.edges.cases import FRACTIONS, TIMES
from tests.campaigns.edges.evidence import Journal, printed, texts_of
from tests.conftest import temporary_database
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, differences, table_reader

pytestmark = pytest.mark.mariadb

# (definition, expression that prints it)
COMPRESSED = [
    ("VARCHAR(100) COMPRESSED", "{c}"),
    ("VARCHAR(2000) COMPRESSED", "{c}"),
    ("VARCHAR(60) COMPRESSED CHARACTER SET latin1", "CONVERT({c} USING utf8mb4)"),
    ("VARCHAR(2000) COMPRESSED CHARACTER SET utf16", "CONVERT({c} USING utf8mb4)"),
    ("TINYTEXT COMPRESSED", "{c}"),
    ("TEXT COMPRESSED", "{c}"),
    ("MEDIUMTEXT COMPRESSED CHARACTER SET sjis", "CONVERT({c} USING utf8mb4)"),
    ("LONGTEXT COMPRESSED", "{c}"),
    ("VARBINARY(254) COMPRESSED", "HEX({c})"),
    ("VARBINARY(2000) COMPRESSED", "HEX({c})"),
    ("TINYBLOB COMPRESSED", "HEX({c})"),
    ("BLOB COMPRESSED", "HEX({c})"),
    ("LONGBLOB COMPRESSED", "HEX({c})"),
]
LENGTHS = [0, 1, 20, 60]


def values_of_length(length: int) -> list[str]:
    source = random.Random(length)
    noise = "".join(source.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))
    return [f"REPEAT('ab', {length // 2})", f"'{noise}'"]


def test_compressed_columns(mariadb_server: Server, mariadb_database: str) -> None:
    columns = ", ".join(
        f"c{index} {declared} NULL" for index, (declared, _) in enumerate(COMPRESSED)
    )
    statements = [
        f"USE `{mariadb_database}`",
        f"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, {columns})",
    ]
    names = ", ".join(f"c{index}" for index in range(len(COMPRESSED)))
    for wrap in ("OFF", "ON"):
        for strategy in ("DEFAULT_STRATEGY", "HUFFMAN_ONLY", "RLE", "FIXED"):
            statements += [
                f"SET column_compression_zlib_wrap = {wrap}, "
                f"column_compression_zlib_strategy = {strategy}",
                "SET column_compression_threshold = 0",
            ]
            for length in LENGTHS:
                for value in values_of_length(length):
                    statements.append(
                        f"INSERT INTO t ({names}) VALUES ({', '.join([value] * len(COMPRESSED))})"
                    )
    statements.append("SET column_compression_threshold = 100")
    for length in (99, 100, 101, 240, 500, 1000, 65_000, 70_000):
        fitting = [
            f"c{index}" for index, (declared, _) in enumerate(COMPRESSED)
            if length <= 60 or _room(declared) >= length
        ]  # fmt: skip
        for value in values_of_length(length):
            statements.append(
                f"INSERT INTO t ({', '.join(fitting)}) VALUES ({', '.join([value] * len(fitting))})"
            )
    statements.append("INSERT INTO t () VALUES ()")
    mariadb_server.execute_all(*statements)
    shown = ", ".join(
        expression.format(c=f"c{index}") for index, (_, expression) in enumerate(COMPRESSED)
    )
    selected = mariadb_server.query(f"SELECT {shown} FROM t ORDER BY id")
    mariadb_server.execute_all("UPDATE t SET c0 = REPEAT('z', 100) WHERE id = 1", "DELETE FROM t")
    rows = Journal(mariadb_server, mariadb_database).rows("t")
    assert rows.invalid == []
    count = len(selected)
    for index, (declared, expression) in enumerate(COMPRESSED):
        got, _ = texts_of(rows, index + 1)
        expected = [printed(row[index]) for row in selected]
        if "HEX" in expression:
            expected = [value and value.lower() for value in expected]
        assert got[:count] == expected, declared
        before = rows.before.column(index + 1).to_pylist()
        after = rows.after.column(index + 1).to_pylist()
        assert before[count + 2 :] == after[1:count]
        assert before[count + 1] == ("z" * 100 if index == 0 else after[0])
    assert after[count:] == [after[0], *[None] * count]
    assert {column.wire_type for column in rows.schema.columns[1:]} == {140, 141}


def _room(declared: str) -> int:
    name = declared.split()[0]
    sizes = {"TINYTEXT": 240, "TINYBLOB": 240, "TEXT": 65_000, "BLOB": 65_000}
    if "(" in name:
        return int(name.split("(")[1].rstrip(")"))
    return sizes.get(name, 1 << 24)


@contextmanager
def old_format(server: Server) -> Iterator[None]:
    server.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        yield
    finally:
        server.execute("SET GLOBAL mysql56_temporal_format = ON")


@pytest.fixture(scope="module")
def old_temporal(mariadb_server: Server) -> Iterator[tuple[Journal, list[list[str | None]]]]:
    declared = [
        f"{name}({digits}) NULL"
        for digits in range(7)
        for name in ("DATETIME", "TIMESTAMP", "TIME")
    ]
    dates = [
        "0000-00-00",
        "2024-00-00",
        "2024-02-00",
        "0000-01-01",
        "2023-02-31",
        "9999-12-31",
        "0001-01-01",
    ]
    instants = [
        "0000-00-00 00:00:00",
        "2038-01-19 03:14:07",
        "1970-01-01 00:00:01",
        "2001-09-09 01:46:40",
    ]
    columns = ", ".join(f"c{index} {text}" for index, text in enumerate(declared))
    rows = []
    for row in range(len(TIMES)):
        cells = []
        for digits in range(7):
            tail = FRACTIONS[digits] if row % 2 else ""
            date = f"'{dates[row]} 23:59:59{tail}'" if row < len(dates) else "NULL"
            instant = f"'{instants[row]}{tail}'" if row < len(instants) else "NULL"
            cells += [date, instant, f"'{TIMES[row]}'"]
        rows.append(f"({row}, {', '.join(cells)})")
    with temporary_database(mariadb_server) as database, old_format(mariadb_server):
        mariadb_server.execute_all(
            "SET sql_mode = 'ALLOW_INVALID_DATES'", f"USE `{database}`",
            f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
            f"INSERT INTO t VALUES {', '.join(rows)}",
        )  # fmt: skip
        shown = ", ".join(f"CAST(c{index} AS CHAR)" for index in range(len(declared)))
        selected = mariadb_server.query(f"SELECT {shown} FROM t ORDER BY id")
        yield (
            Journal(mariadb_server, database),
            [list(column) for column in zip(*selected, strict=True)],
        )


@pytest.mark.parametrize("digits", range(7))
def test_old_temporal_format_by_the_catalogs_digits(
    old_temporal: tuple[Journal, list[list[str | None]]], digits: int
) -> None:
    journal, selected = old_temporal
    kinds = {f"c{index}": {"fraction_digits": index // 3} for index in range(21)}
    rows = journal.rows("t", kinds=kinds)
    assert [column.wire_type for column in rows.schema.columns[1:]] == [12, 7, 11] * 7
    for index in range(3 * digits, 3 * digits + 3):
        got, invalid = texts_of(rows, index + 1)
        assert got == selected[index]
        assert bool(invalid) == (index % 3 != 2)


def test_old_temporal_format_without_digits_stops_by_name(
    old_temporal: tuple[Journal, list[list[str | None]]],
) -> None:
    journal, _ = old_temporal
    with pytest.raises(UnknownColumnTypeError) as caught:
        journal.rows("t")
    error = caught.value
    assert error.table == f"{journal.database}.t"
    assert error.journal == journal.path.name
    assert error.offset
    assert "'c0'" in error.what
    assert "ALTER TABLE ... FORCE" in str(error.next_step)


def test_old_temporal_format_is_selected_as_it_is_logged(
    old_temporal: tuple[Journal, list[list[str | None]]],
) -> None:
    journal, _ = old_temporal
    schema = catalog_schema(journal.server, journal.database, "t")
    assert differences(journal.server, journal, "t", schema=schema) == []
    unknown = tuple(replace(column, fraction_digits=-1) for column in schema.columns)
    with (
        table_reader(journal.server) as reader,
        pytest.raises(UnknownColumnTypeError, match="'c0'"),
    ):
        list(reader.select(replace(schema, columns=unknown)))


def test_the_way_out_makes_the_table_readable(
    mariadb_server: Server, mariadb_database: str
) -> None:
    server = mariadb_server
    server.execute(f"USE `{mariadb_database}`")
    with old_format(server):
        server.execute_all(
            "CREATE TABLE t (id INT PRIMARY KEY, c TIME(3))", "SET SESSION sql_log_bin = 0",
            "INSERT INTO t VALUES (1, '-00:00:00.5')", "SET SESSION sql_log_bin = 1",
        )  # fmt: skip
    server.execute_all("ALTER TABLE t FORCE", "INSERT INTO t VALUES (2, '-00:00:00.1')")
    rows = Journal(server, mariadb_database).rows("t")
    assert rows.schema.columns[1].wire_type == 19
    assert rows.after.column("c").to_pylist() == ["-00:00:00.100"]


INET6 = [
    "::", "::1", "::2", "::1:0", "::ffff", "::0.0.255.255", "::255.255.255.255", "::ffff:0.0.0.0",
    "::ffff:1.2.3.4",
    "::fffe:1.2.3.4", "1:0:1:1:1:1:1:1", "1:0:0:1:0:0:1:1", "0:1:1:1:1:1:1:1", "1:1:1:1:1:1:1:0",
    "0:0:1:1:1:1:0:0",
    "abcd:ef01:2345:6789:abcd:ef01:2345:6789", "0:0:0:0:1:ffff:0:1", "1:0:0:0:1:0:0:0",
    "0:0:0:1:0:0:0:1", "ffff::",
    "::ffff:0:1.2.3.4", "a:b0:c00:d000::", "2001:db8::ff00:42:8329",
]  # fmt: skip
NIL = "00000000-0000-0000-0000-000000000000"


def test_uuid_and_addresses(mariadb_server: Server, mariadb_database: str) -> None:
    """With the catalog's kinds the server's own text; by the table map alone padded bytes (and
    a06)."""
    source = random.Random(21)
    rows = [
        (NIL, "::", "0.0.0.0"),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", "ffff::", "255.255.255.255"),
    ]
    for version in "0123456789abcdef":
        for variant in "078bf" if version < "6" else "8b":  # the server takes no others
            rows.append((f"01020304-0506-{version}708-{variant}90a-0b0c0d0e0f00", "::", "1.2.3.0"))
    rows += [(NIL, address, "1.0.0.0") for address in INET6]
    for _ in range(500):
        groups = [
            source.choice([0, 0, 0, 1, 0x10, 0xFFFF, source.randrange(0x10000)]) for _ in range(8)
        ]
        address = ":".join(f"{group:x}" for group in groups)
        number = source.getrandbits(128)
        text = f"{number:032x}"
        text = text[:16] + "a" + text[17:]
        identifier = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        rows.append(
            (identifier, address, ".".join(str(source.choice([0, 9, 99, 255])) for _ in range(4)))
        )
    values = ", ".join(f"({number}, '{a}', '{b}', '{c}')" for number, (a, b, c) in enumerate(rows))
    mariadb_server.execute_all(
        f"USE `{mariadb_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, a UUID, b INET6, c INET4)",
        f"INSERT INTO t VALUES {values}, ({len(rows)}, NULL, NULL, NULL)",
    )  # fmt: skip
    selected = mariadb_server.query(
        "SELECT CAST(a AS CHAR), CAST(b AS CHAR), CAST(c AS CHAR) FROM t ORDER BY id"
    )
    packed = mariadb_server.query("SELECT HEX(a), HEX(b), HEX(c) FROM t ORDER BY id")
    journal = Journal(mariadb_server, mariadb_database)
    kinds = {"a": {"kind": Kind.UUID}, "b": {"kind": Kind.INET6}, "c": {"kind": Kind.INET4}}
    decoded = journal.rows("t", kinds=kinds)
    assert decoded.invalid == []
    plain = journal.rows("t")
    assert [column.kind for column in plain.schema.columns[1:]] == [Kind.BINARY] * 3
    for index in range(3):
        assert decoded.after.column(index + 1).to_pylist() == [row[index] for row in selected]
        hexes = [row[index] for row in packed]
        assert plain.after.column(index + 1).to_pylist() == [
            value and bytes.fromhex(value) for value in hexes
        ]
    assert differences(mariadb_server, journal, "t", schema=decoded.schema) == []
    with table_reader(mariadb_server) as reader, pytest.raises(TableChangedError, match="'a'"):
        list(reader.select(plain.schema))  # as BINARY(16), which the server does not send


def test_geometry_is_among_the_charsets_of_the_table_map(
    mariadb_server: Server, mariadb_database: str
) -> None:
    """MariaDB lists GEOMETRY where MySQL lists texts only: a decoder that does not count it shifts
    all charsets."""
    server = mariadb_server
    server.execute_all(
        f"USE `{mariadb_database}`",
        "CREATE TABLE one (g GEOMETRY, b TEXT CHARACTER SET latin1)",
        "INSERT INTO one VALUES (ST_GeomFromText('POINT(1 2)'), 'é')",
        "CREATE TABLE many (b TEXT CHARACTER SET latin1, g GEOMETRY, c CHAR(9) CHARACTER SET "
        "latin1, v VARCHAR(9) CHARACTER SET utf16, p POINT, x BLOB)",
        "INSERT INTO many VALUES ('é', ST_GeomFromText('POINT(1 2)', 4326), 'ü', '漢', NULL, 'é')",
    )  # fmt: skip
    journal = Journal(server, mariadb_database)
    assert journal.rows("one").after.to_pylist()[0]["b"] == "é"
    row = journal.rows("many").after.to_pylist()[0]
    assert (row["b"], row["c"], row["v"], row["x"]) == ("é", "ü", "漢", "é".encode())
    assert row["g"]["srid"] == 4326
