"""JSON and row images on real servers. All other types at their edges: tests/campaigns/edges."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from cdc_pipeline.binlog.rows.text_jsonl import json_texts
from tests.conftest import temporary_database
from tests.servers import Server
from tests.support.decoded_journals import decode_last


def json_values() -> Iterator[str]:
    """Literals and expressions that make JSON values."""
    yield from (
        "'null'", "'true'", "'[]'", "'{}'", "'-32769'", "'4294967296'", "'18446744073709551615'",
        "'-9223372036854775808'", "'1e300'", "'1.0'", "'1e15'", "'123456789012345.0'", "'1e-15'",
        "'1e-16'", "NULL",
        r"""'"a\\"b\\u0001\\n\\t\\\\/é😀\\u007f"'""",
        r"""'{"b": 1, "aa": [1, 2, {"c": "d"}], "": 65536}'""",
        "CAST(CAST('12.340' AS DECIMAL(10,3)) AS JSON)",
        "CAST(CAST('-0.5' AS DECIMAL(65,30)) AS JSON)",
        "CAST(CAST('2024-01-02' AS DATE) AS JSON)",
        "CAST(CAST('-100:01:02.000003' AS TIME(6)) AS JSON)",
        "CAST(CAST('-12:34:56.987654' AS TIME(6)) AS JSON)",
        "JSON_ARRAY(CAST('838:59:59' AS TIME))",
        "CAST(CAST('2024-01-02 03:04:05.123' AS DATETIME(3)) AS JSON)",
        "JSON_ARRAY(TIMESTAMP'2024-01-01 00:00:00')",
        "CAST(x'00ff10' AS JSON)", "CAST(b'101' AS JSON)",
        "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
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
    with (
        closing(server.root_connection(database=database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {declared}) CHARACTER SET utf8mb4")
        for number, value in enumerate(values):
            cursor.execute(f"INSERT INTO t VALUES ({number}, {value})")
        connection.commit()
        cursor.execute(f"SELECT CAST({expression} AS CHAR) FROM t ORDER BY id")
        expected = [
            value.decode() if isinstance(value, bytes) else value for (value,) in cursor.fetchall()
        ]
    rows = decode_last(server, f"{database}.t")
    rows.after.validate(full=True)
    texts = json_texts(rows.schema.columns[1], rows.after.column(1))
    got = [json.loads(text) for text in texts]
    for value in rows.invalid:
        assert got[value.row] is None
        got[value.row] = value.text
    return (
        expected,
        [None if value is None else str(value) for value in got],
        [value.row for value in rows.invalid],
    )


def test_json_as_the_server_casts_it(mysql_server: Server, mysql_database: str) -> None:
    expected, got, invalid = decode_type(
        mysql_server, mysql_database, "JSON", "c", list(json_values())
    )
    assert got == expected
    assert invalid == []


def test_an_insert_of_defaults_only_under_minimal_images(mysql_server: Server) -> None:
    """MySQL writes a rows event without a byte of rows for it."""
    with temporary_database(mysql_server) as database:
        with (
            closing(mysql_server.root_connection(database=database)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE TABLE t (a INT DEFAULT 7, b INT DEFAULT 8)")
            cursor.execute("SET SESSION binlog_row_image = MINIMAL")
            cursor.execute("INSERT INTO t VALUES ()")
            connection.commit()
        assert len(decode_last(mysql_server, f"{database}.t")) == 1
