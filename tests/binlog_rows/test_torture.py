"""Edge values on both real servers: what the journal gives must be what SELECT prints (types.md, binlog-facts A).

The expected text is always the server's; ours is the text of `text_jsonl`, or that of the list of invalid values.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog import charsets
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.kernels import text as text_kernels
from cdc_pipeline.binlog.text_jsonl import jsonl_lines, text_values
from tests.binlog_rows.journals import decode_journal, decode_last
from tests.conftest import temporary_database
from tests.servers import Server

HEX = "LOWER(HEX(c))"
NUMBER = "c + 0"
FRACTIONS = ["", ".9", ".98", ".987", ".9876", ".98765", ".987654"]
TIMES = ["-00:00:00.1", "-12:34:56.987654", "-838:59:59", "838:59:59", "00:00:00", "-00:59:00.000001", "100:00:00.5"]

# (column type, expression that prints it, values)
COMMON: list[tuple[str, str, list[str]]] = [
    ("TINYINT", "c", ["-128", "127", "0", "NULL"]),
    ("TINYINT UNSIGNED", "c", ["255", "0"]),
    ("SMALLINT", "c", ["-32768", "32767"]),
    ("SMALLINT UNSIGNED", "c", ["65535"]),
    ("MEDIUMINT", "c", ["-8388608", "8388607", "-1"]),
    ("MEDIUMINT UNSIGNED", "c", ["16777215"]),
    ("INT", "c", ["-2147483648", "2147483647"]),
    ("INT UNSIGNED", "c", ["4294967295"]),
    ("BIGINT", "c", ["-9223372036854775808", "9223372036854775807"]),
    ("BIGINT UNSIGNED", "c", ["18446744073709551615", "0", "NULL"]),
    ("BIT(1)", NUMBER, ["1", "0", "NULL"]),
    ("BIT(13)", NUMBER, ["5461", "1"]),
    ("BIT(63)", NUMBER, ["9223372036854775807"]),
    ("BIT(64)", NUMBER, ["18446744073709551615", "1"]),
    ("DECIMAL(65,30)", "c", [f"-{'9' * 35}.{'9' * 30}", "0", "1e-30", "-1"]),
    ("DECIMAL(38,0)", "c", ["-99999999999999999999999999999999999999", "1", "0"]),
    ("DECIMAL(38,30)", "c", ["-99999999.999999999999999999999999999999", "-0.5"]),
    ("DECIMAL(12,2)", "c", ["-1234567890.12", "0.01", "-0.01", "NULL"]),
    ("DECIMAL(1,1)", "c", ["0.9", "-0.1", "0"]),
    ("DECIMAL(40,2)", "c", ["-0.01", "12345678901234567890.10"]),
    ("YEAR", NUMBER, ["0", "1901", "2155", "NULL"]),
    ("DATE", "c", [
        "'0000-00-00'", "'2024-00-00'", "'2024-02-00'", "'0000-01-01'", "'9999-12-31'", "'2024-02-29'", "'2023-02-31'",
        "'0001-01-01'", "NULL",
    ]),
    ("VARCHAR(300)", "c", ["'x'", "''", "'ä漢😀'", "REPEAT('y', 300)", "NULL"]),
    ("CHAR(100)", "c", ["'  a  '", "''", "REPEAT('ä', 100)"]),
    ("TINYTEXT", "c", ["''", "'a'"]),
    ("MEDIUMTEXT", "c", ["REPEAT('abc', 100000)"]),
    ("LONGTEXT", "c", ["'q'"]),
    ("BINARY(16)", HEX, ["x'6162630000'", "x''", "x'00'", "NULL"]),
    ("VARBINARY(16)", HEX, ["x''", "x'6162630000'"]),
    ("BLOB", HEX, ["x''", "x'ff00'"]),
    ("ENUM('a','bä','c')", "c", ["'a'", "'bä'", "3", "NULL"]),
    ("SET('a','b','cä')", "c", ["''", "'a,cä'", "'b'", "NULL"]),
    ("ENUM('x','ü') CHARACTER SET latin1", "c", ["2"]),
    ("SET('x','ü') CHARACTER SET utf16", "c", ["3", "2"]),
    ("GEOMETRY", HEX, ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)", "NULL"]),
]  # fmt: skip
for digits, tail in enumerate(FRACTIONS):
    zeros = ["'0000-00-00 00:00:00'", "NULL"]
    COMMON += [
        (f"DATETIME({digits})", "c", [
            *zeros, f"'9999-12-31 23:59:59{tail}'", f"'2024-02-00 10:00:00{tail}'", f"'1969-12-31 23:59:59{tail}'",
            "'2023-02-31 00:00:00'",
        ]),
        (f"TIMESTAMP({digits}) NULL", "c", [
            *zeros, f"'2038-01-19 03:14:07{tail}'", "'1970-01-01 00:00:01'", f"'2001-09-09 01:46:40{tail}'",
        ]),
        (f"TIME({digits})", "c", [*(f"'{time}'" for time in TIMES), f"'-00:00:01{tail}'"]),
    ]  # fmt: skip

VECTOR = ("VECTOR(3)", "VECTOR_TO_STRING(c)", ["STRING_TO_VECTOR('[1,2.5,-0.125]')", "NULL"])


def json_values() -> Iterator[str]:
    """Literals and expressions that make JSON values."""
    yield from (
        "'null'", "'true'", "'[]'", "'{}'", "'-32769'", "'4294967296'", "'18446744073709551615'",
        "'-9223372036854775808'", "'1e300'", "'1.0'", "'1e15'", "'123456789012345.0'", "'1e-15'", "'1e-16'", "NULL",
        r"""'"a\\"b\\u0001\\n\\t\\\\/é😀\\u007f"'""",
        r"""'{"b": 1, "aa": [1, 2, {"c": "d"}], "": 65536}'""",
        "CAST(CAST('12.340' AS DECIMAL(10,3)) AS JSON)", "CAST(CAST('-0.5' AS DECIMAL(65,30)) AS JSON)",
        "CAST(CAST('2024-01-02' AS DATE) AS JSON)", "CAST(CAST('-100:01:02.000003' AS TIME(6)) AS JSON)",
        "CAST(CAST('-12:34:56.987654' AS TIME(6)) AS JSON)", "JSON_ARRAY(CAST('838:59:59' AS TIME))",
        "CAST(CAST('2024-01-02 03:04:05.123' AS DATETIME(3)) AS JSON)", "JSON_ARRAY(TIMESTAMP'2024-01-01 00:00:00')",
        "CAST(x'00ff10' AS JSON)", "CAST(b'101' AS JSON)", "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
        "JSON_ARRAY(CAST(REPEAT('A', 57) AS BINARY), CAST(REPEAT('A', 58) AS BINARY))",
        "JSON_ARRAY(CAST(2024 AS YEAR))",
        "JSON_ARRAY(REPEAT('x', 70000), 70000, -70000, 5, JSON_OBJECT('k', REPEAT('y', 200)))",
        "CAST(CAST(0.1 AS FLOAT) AS JSON)",
    )  # fmt: skip
    source = random.Random(11)
    for _ in range(60):
        yield f"'{source.uniform(-1, 1) * 10.0 ** source.randint(-300, 300)!r}'"
        yield f"'{round(source.uniform(-1e9, 1e9), 3)!r}'"


def decode_type(
    server: Server, database: str, declared: str, expression: str, values: list[str]
) -> tuple[list[Any], ...]:
    """Rows of one type: what the server prints, what we print, and which rows are invalid."""
    with closing(server.root_connection(database=database)) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {declared}) CHARACTER SET utf8mb4")
        for number, value in enumerate(values):
            cursor.execute(f"INSERT INTO t VALUES ({number}, {value})")
        connection.commit()
        cursor.execute(f"SELECT CAST({expression} AS CHAR) FROM t ORDER BY id")
        expected = [value.decode() if isinstance(value, bytes) else value for (value,) in cursor.fetchall()]
    rows = decode_last(server, f"{database}.t")
    rows.after.validate(full=True)
    got = text_values(rows.schema.columns[1], rows.after.column(1))
    for value in rows.invalid:
        assert got[value.row] is None
        got[value.row] = value.text
    return expected, [None if value is None else str(value) for value in got], [value.row for value in rows.invalid]


@pytest.mark.parametrize(("declared", "expression", "values"), COMMON, ids=[case[0] for case in COMMON])
def test_select_and_journal_agree(
    server: Server, fresh_database: str, declared: str, expression: str, values: list[str]
) -> None:
    expected, got, invalid = decode_type(server, fresh_database, declared, expression, values)
    assert got == expected
    if declared.startswith("DATE"):
        assert invalid, "zero and partial dates are in the list, and no Arrow value can hold them"


@pytest.mark.mysql
def test_json_as_the_server_casts_it(mysql_server: Server, mysql_database: str) -> None:
    expected, got, invalid = decode_type(mysql_server, mysql_database, "JSON", "c", list(json_values()))
    assert got == expected
    assert invalid == []


@pytest.mark.mysql
def test_vector(mysql_server: Server, mysql_database: str) -> None:
    expected, got, _ = decode_type(mysql_server, mysql_database, *VECTOR)
    assert [value and json.loads(value) for value in got] == [value and json.loads(value) for value in expected]


@pytest.mark.parametrize("declared", ["FLOAT", "DOUBLE"])
def test_reals_keep_every_bit(server: Server, fresh_database: str, declared: str) -> None:
    values = ["0.1", "-3.4028234e38", "1.1754944e-38", "16777216", "1e-45", "123456.789"]
    expected, got, _ = decode_type(server, fresh_database, declared, "c + 0e0", values)
    width = np.float32 if declared == "FLOAT" else np.float64
    assert [width(value) for value in got] == [width(value) for value in expected]


TABLE_CHARSETS = [
    name for name in charsets.known_charsets()
    if charsets.find_charset(name, is_mariadb=True).mode in (text_kernels.TABLE, text_kernels.GB18030)
]  # fmt: skip


def codes_of(name: str, is_mariadb: bool) -> list[bytes]:
    """Codes of a charset: all of one byte, a sample of longer ones; unknown characters included."""
    charset = charsets.find_charset(name, is_mariadb=is_mariadb)
    if charset.mode not in (text_kernels.TABLE, text_kernels.GB18030):
        return [bytes([code]) for code in range(128)]
    found = [bytes([code]) for code in range(256) if charset.one[code] < text_kernels.LEAD_BYTE]
    source = random.Random(name)
    pairs = np.flatnonzero(charset.two < text_kernels.LEAD_BYTE).tolist() if len(charset.two) > 1 else []
    found += [code.to_bytes(2, "big") for code in source.sample(pairs, min(200, len(pairs)))]
    if name == "gb18030":
        four = [b"\x81\x35\xf4\x37", b"\x84\x31\xa4\x39", b"\x84\x33\x81\x30", b"\x90\x30\x81\x30", b"\xe3\x32\x9a\x36"]
        return found + four
    triples = np.flatnonzero(charset.three < text_kernels.LEAD_BYTE).tolist() if len(charset.three) > 1 else []
    return found + [b"\x8f" + code.to_bytes(2, "big") for code in source.sample(triples, min(100, len(triples)))]


def test_facts_a14_every_table_charset(server: Server, fresh_database: str) -> None:
    """Every charset with a table, against the server's own conversion."""
    is_mariadb = server.flavor == "mariadb"
    expected: dict[str, list[str]] = {}
    with closing(server.root_connection(database=fresh_database)) as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET sql_mode = ''")
        for name in TABLE_CHARSETS:
            if is_mariadb and name == "gb18030":
                continue
            codes = codes_of(name, is_mariadb)
            cursor.execute(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET {name})")
            rows = ", ".join(f"({number}, x'{code.hex()}')" for number, code in enumerate(codes))
            cursor.execute(f"INSERT INTO `{name}` VALUES {rows}")
            connection.commit()
            cursor.execute(f"SELECT CONVERT(c USING utf8mb4) FROM `{name}` ORDER BY id")
            expected[name] = [value for (value,) in cursor.fetchall()]
    server.flush_journal()
    journal = server.journals()[-2]
    for name, texts in expected.items():
        decoded = decode_journal(journal, f"{fresh_database}.{name}")
        assert decoded.after.column("c").to_pylist() == texts, name
        assert decoded.invalid == []


@pytest.mark.parametrize("charset", ["ucs2", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"])
def test_facts_a11_to_a13_unicode_charsets(server: Server, fresh_database: str, charset: str) -> None:
    values = ["'abc'", "'ä漢'", "''"] + (["'😀x'"] if charset not in ("ucs2", "utf8mb3") else [])
    declared = f"VARCHAR(20) CHARACTER SET {charset}"
    expected, got, _ = decode_type(server, fresh_database, declared, "CONVERT(c USING utf8mb4)", values)
    assert got == expected


def image_rows(server: Server, database: str, image: str) -> DecodedRows:
    with closing(server.root_connection(database=database)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT DEFAULT 7, note TEXT, c VARCHAR(9))")
        cursor.execute(f"SET SESSION binlog_row_image = {image}")
        cursor.execute("INSERT INTO t (id, a, note, c) VALUES (1, 1, 'long', 'x')")
        cursor.execute("UPDATE t SET a = NULL WHERE id = 1")
        cursor.execute("DELETE FROM t WHERE id = 1")
        connection.commit()
    return decode_last(server, f"{database}.t")


def lines_of(rows: DecodedRows) -> list[dict[str, Any]]:
    events = int(rows.event_row.max()) + 1
    offsets = np.arange(events) * 10
    return [
        json.loads(line) for line in jsonl_lines(rows, journal="binlog.000001", offsets=offsets, gtids=["g"] * events)
    ]


def test_minimal_images_leave_columns_out(server: Server, fresh_database: str) -> None:
    rows = image_rows(server, fresh_database, "MINIMAL")
    insert, update, delete = lines_of(rows)
    assert insert["after"] == {"id": 1, "a": 1, "note": "long", "c": "x"}
    assert (update["before"], update["after"]) == ({"id": 1}, {"a": None})
    assert (delete["op"], delete["before"], delete["after"]) == ("delete", {"id": 1}, None)
    assert not rows.all_present


def test_noblob_images_leave_the_text_out(server: Server, fresh_database: str) -> None:
    rows = image_rows(server, fresh_database, "NOBLOB")
    _, update, _ = lines_of(rows)
    assert update["before"] == {"id": 1, "a": 1, "c": "x"}
    assert update["after"] == {"id": 1, "a": None, "c": "x"}


def test_full_images_and_the_line_of_a_change(server: Server, fresh_database: str) -> None:
    rows = image_rows(server, fresh_database, "FULL")
    assert rows.all_present
    update = lines_of(rows)[1]
    assert update.pop("ts").endswith("Z")
    assert update == {
        "schema": fresh_database, "table": "t", "op": "update", "journal": "binlog.000001", "offset": 10, "gtid": "g",
        "before": {"id": 1, "a": 1, "note": "long", "c": "x"}, "after": {"id": 1, "a": None, "note": "long", "c": "x"},
    }  # fmt: skip


@pytest.mark.mysql
def test_an_insert_of_defaults_only_under_minimal_images(mysql_server: Server) -> None:
    """MySQL writes a rows event without a byte of rows for it."""
    with temporary_database(mysql_server) as database:
        with closing(mysql_server.root_connection(database=database)) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a INT DEFAULT 7, b INT DEFAULT 8)")
            cursor.execute("SET SESSION binlog_row_image = MINIMAL")
            cursor.execute("INSERT INTO t VALUES ()")
            connection.commit()
        assert len(decode_last(mysql_server, f"{database}.t")) == 1
