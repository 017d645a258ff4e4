"""JSON columns of a real MySQL, whole and as differences: expected texts are the server's own
SELECT."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.chunk import EventSlice
from cdc_pipeline.binlog.decoded import UPDATE, DecodedRows
from cdc_pipeline.binlog.rows.partial_rows import NO_DOCUMENT
from cdc_pipeline.errors import IncompleteRowsError
from cdc_pipeline.run.decode.decoding import RunDecoder
from cdc_pipeline.targets.targets import targets_at
from tests.binlog.rows.json_updates import Updates, quoted
from tests.binlog.rows.test_on_servers import decode_type
from tests.servers import Server
from tests.support.decoded_journals import decode_last, read_chunk
from tests.support.shown_journals import changes
from tests.support.sink_values import NOTHING_ERASED
from tests.targets.test_exact import config

DOCUMENTS = 20
UPDATES = 150


def test_json_null_is_not_sql_null(mysql_server: Server, mysql_database: str) -> None:
    values = [
        "'null'",
        "NULL",
        "JSON_ARRAY(NULL)",
        "'{\"a\": null}'",
        "JSON_OBJECT('a', NULL)",
        "CAST('null' AS JSON)",
    ]
    expected, got, invalid = decode_type(mysql_server, mysql_database, "JSON", "c", values)
    assert got == expected == ["null", None, "[null]", '{"a": null}', '{"a": null}', "null"]
    assert invalid == []


def test_opaque_values_as_the_server_prints_them(mysql_server: Server, mysql_database: str) -> None:
    fractions = ["", "(1)", "(3)", "(6)"]
    times = [
        "-838:59:59",
        "838:59:59",
        "24:00:00",
        "-24:00:00.5",
        "-00:00:00.1",
        "00:00:00",
        "-12:34:56.987654",
    ]
    values = [f"CAST('{time}' AS TIME{digits})" for time in times for digits in fractions]
    values += [f"CAST('2024-02-29 23:59:59.987654' AS DATETIME{digits})" for digits in fractions]
    values += [
        "CAST('0001-01-01' AS DATE)",
        "CAST('9999-12-31' AS DATE)",
        "TIMESTAMP'2038-01-19 03:14:07.5'",
    ]
    values += [f"CAST('{number}' AS DECIMAL({kind}))" for number, kind in [
        ("-0.5", "65,30"), ("9" * 35 + "." + "9" * 30, "65,30"), ("0", "1,0"), ("-7", "9,9"),
        ("0.000000001", "18,9"),
        ("1" * 65, "65,0"), ("-0.10", "2,2"), ("123456789.123456789", "18,9"),
    ]]  # fmt: skip
    values += [f"b'{bits}'" for bits in ("0", "1", "101", "1" * 64)]
    values += [
        f"CAST(REPEAT('A', {size}) AS BINARY)" for size in (0, 1, 2, 3, 56, 57, 58, 114, 115, 1000)
    ]
    values += [
        "CAST(2024 AS YEAR)",
        "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)",
        "x'00ff10'",
        "0xff",
    ]
    wrapped = [f"JSON_ARRAY({value})" for value in values] + [
        f"JSON_OBJECT('k', {value}, 'é', 1)" for value in values
    ]
    expected, got, invalid = decode_type(mysql_server, mysql_database, "JSON", "c", wrapped)
    assert got == expected
    assert invalid == []
    assert sum("base64:type" in text for text in expected) > 25
    with (
        closing(mysql_server.root_connection(database=mysql_database)) as connection,
        connection.cursor() as cursor,
    ):
        columns = (
            "b BIT(13), l BLOB, e ENUM('x','y'), s SET('x','y'), y YEAR, g GEOMETRY, f FLOAT, u "
            "BIGINT UNSIGNED, t VARCHAR(9) CHARACTER SET latin1"
        )
        cursor.execute(f"CREATE TABLE o ({columns})")
        point = "ST_GeomFromText('POINT(1 2)')"
        cursor.execute(f"INSERT INTO o VALUES (5, x'00', 'y', 'x,y', 2024, {point}, 0.1, ~0, 'ü')")
        cursor.execute("CREATE TABLE j (c JSON)")
        cursor.execute("INSERT INTO j SELECT JSON_ARRAY(b, l, e, s, y, g, f, u, t) FROM o")
        connection.commit()
        cursor.execute("SELECT CAST(c AS CHAR) FROM j")
        (text,) = cursor.fetchone()
    assert decode_last(mysql_server, f"{mysql_database}.j").after.column("c").to_pylist() == [text]


def test_strings_and_keys_are_text(mysql_server: Server, mysql_database: str) -> None:
    characters = [
        chr(code)
        for code in (*range(1, 0x80), 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10FFFF)
    ]
    values = [f"JSON_OBJECT({quoted(one)}, {quoted(one * 3)})" for one in characters if one != "%"]
    values += ["CAST(" + quoted('"\\ud83d\\ude00\\u0000\\u001f\\u2028"') + " AS JSON)", "'\"😀\"'"]
    values += [
        "JSON_OBJECT(REPEAT('k', 65535), 1, REPEAT('é', 32767), 2, '', 3)",
        "JSON_OBJECT('bb', 1, 'a', 2, 'B', 3)",
    ]
    values += [
        f"JSON_ARRAY(REPEAT('x', {size}), {size})"
        for size in (127, 128, 16383, 16384, 65535, 65536, 2_097_152)
    ]
    expected, got, invalid = decode_type(mysql_server, mysql_database, "JSON", "c", values)
    assert got == expected
    assert invalid == []


def test_doubles_as_the_server_prints_them(mysql_server: Server, mysql_database: str) -> None:
    """All counts of digits on both sides of every change of layout."""
    digits = "12345678901234567"
    values = [f"'{sign}0.{digits[:count]}e{power}'" for power in range(-17,
        20) for count in range(1, 18)
              for sign in ("", "-")]  # fmt: skip
    values += [
        "'2649872665531760.5'",
        "'5e-324'",
        "'1.7976931348623157e308'",
        "'-0.0'",
        "'1e15'",
        "'1e16'",
        "'0.1e-13'",
    ]
    joined = [f"JSON_ARRAY({', '.join(f'CAST({value} AS DOUBLE)' for value in values[at : at + 100])})"  # noqa: E501
              for at in range(0, len(values), 100)]  # fmt: skip
    expected, got, _ = decode_type(mysql_server, mysql_database, "JSON", "c", joined)
    assert got == expected


def test_large_documents(mysql_server: Server, mysql_database: str) -> None:
    """16 MB in the large form, a hundred levels, 300,000 elements and members."""
    with (
        closing(mysql_server.root_connection(database=mysql_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, c JSON)")
        cursor.execute("SET cte_max_recursion_depth = 1000000")
        series = (
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n "
            "< 300000) SELECT"
        )
        cursor.execute(f"INSERT INTO t {series} 1, JSON_ARRAYAGG(n * 7919) FROM n")
        cursor.execute(f"INSERT INTO t {series} 2, JSON_OBJECTAGG(CONCAT('key', n), n / 7) FROM n")
        long = "JSON_ARRAY(REPEAT('\\n', 8000000), JSON_OBJECT('k', REPEAT('é', 4000000)))"
        cursor.execute(f"INSERT INTO t VALUES (3, {long})")
        for number, deep in enumerate(["[" * 100 + "]" * 100, '{"a": ' * 99 + "{}" + "}" * 99], 4):
            cursor.execute(f"INSERT INTO t VALUES ({number}, '{deep}')")
        connection.commit()
        cursor.execute("SELECT CAST(c AS CHAR) FROM t ORDER BY id")
        expected = [text for (text,) in cursor.fetchall()]
    got = decode_last(mysql_server, f"{mysql_database}.t").after.column("c").to_pylist()
    assert [len(text) for text in got] == [len(text) for text in expected]
    assert got == expected


def run_updates(
    server: Server, database: str, *settings: str, seed: int = 1
) -> list[tuple[Any, ...]]:
    """Random changes of the JSON columns of `t`; what SELECT gave after each."""
    updates = Updates(seed)
    found = []
    with (
        closing(server.root_connection(database=database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a JSON, n INT, b JSON, note LONGTEXT)")
        for setting in ("NAMES utf8mb4", "binlog_row_value_options = 'PARTIAL_JSON'", *settings):
            cursor.execute(f"SET {setting}")
        for number in range(DOCUMENTS):
            text = quoted(json.dumps(updates.document()))
            cursor.execute(f"INSERT INTO t VALUES ({number}, {text}, 0, {text}, 'note')")
        for _ in range(UPDATES):
            number = updates.choice(DOCUMENTS)
            cursor.execute(f"SELECT CAST(a AS CHAR), CAST(b AS CHAR) FROM t WHERE id = {number}")
            texts = dict(zip("ab", cursor.fetchone(), strict=True))
            changed = [
                f"{name} = {updates.expression(name, text)}"
                for name, text in texts.items()
                if updates.choice(2)
            ]
            if cursor.execute(
                f"UPDATE t SET {', '.join([*changed, 'n = n + 1'])} WHERE id = {number}"
            ):
                cursor.execute(
                    f"SELECT id, CAST(a AS CHAR), n, CAST(b AS CHAR) FROM t WHERE id = {number}"
                )
                found.append(cursor.fetchone())
        connection.commit()
    return found


def updated(rows: DecodedRows) -> list[tuple[Any, ...]]:
    columns = [rows.after.column(name).to_pylist() for name in ("id", "a", "n", "b")]
    return [
        values
        for values, op in zip(zip(*columns, strict=True), rows.op, strict=True)
        if op == UPDATE
    ]


@pytest.mark.parametrize(
    "settings",
    [
        ("binlog_row_image = 'FULL'",),
        ("binlog_row_image = 'NOBLOB'",),
        ("binlog_transaction_compression = ON",),
    ],
    ids=["full", "noblob", "compressed"],
)
def test_differences_equal_the_servers_documents(
    mysql_server: Server, mysql_database: str, settings: tuple[str, ...]
) -> None:
    expected = run_updates(mysql_server, mysql_database, *settings)
    rows = decode_last(mysql_server, f"{mysql_database}.t")
    assert rows.invalid == []
    assert updated(rows) == expected
    there = np.unpackbits(rows.after_present, axis=1, bitorder="little", count=5)[rows.op == UPDATE]
    assert there[:, :4].all()
    assert there[:, 4].any() == ("NOBLOB" not in settings[0])
    journal = mysql_server.journals()[-2]
    lines = [
        json.loads(line) for line in changes([journal], table_patterns=[f"{mysql_database}.t"])
    ]
    assert [line["after"]["b"] for line in lines if line["op"] == "update"] == [
        row[3] for row in expected
    ]
    types = read_chunk(journal).events["event_type"]
    assert np.count_nonzero(types == 39) == len(expected)


def test_minimal_rows_are_refused_by_name(mysql_server: Server, mysql_database: str) -> None:
    """MINIMAL images hold no document before the change: the table stops, with the setting that
    mends it."""
    with (
        closing(mysql_server.root_connection(database=mysql_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a JSON, n INT, b JSON)")
        cursor.execute(
            """INSERT INTO t VALUES (1, '[1, 2, 3, "aaaaaaaaaaaaaaaaaaaaaaaaaa"]', 1, '{"a": 1}')"""
        )
        cursor.execute(
            "SET binlog_row_value_options = 'PARTIAL_JSON', binlog_row_image = 'MINIMAL'"
        )
        cursor.execute("UPDATE t SET n = 2")
        cursor.execute("UPDATE t SET b = b, n = 3")
        cursor.execute("UPDATE t SET a = JSON_SET(a, '$[1]', 9), n = 4")
        connection.commit()
    rows = decode_last(mysql_server, f"{mysql_database}.t")
    assert rows.after.column("n").to_pylist() == [1, 2, 3, 4]
    assert rows.after_present.ravel().tolist() == [0b1111, 0b100, 0b100, 0b110]
    assert [(value.row, value.column, value.reason, value.text) for value in rows.invalid] == [
        (3, 1, NO_DOCUMENT, '[{"op": "replace", "path": "$[1]", "value": 9}]')
    ]
    journal = mysql_server.journals()[-2]
    assert list(changes([journal], table_patterns=[f"{mysql_database}.t"]))
    chunk = read_chunk(journal)
    targets = targets_at(config(tables={"include": [f"{mysql_database}.*"]}), None)
    decoder = RunDecoder(epoch=0, erased=NOTHING_ERASED)
    with pytest.raises(IncompleteRowsError, match="column a changed by differences") as caught:
        decoder.decode([EventSlice(chunk, 0, len(chunk.events))], targets)
    assert caught.value.setting == "binlog_row_image"
    assert "binlog_row_value_options = ''" in str(caught.value.next_step)
    assert caught.value.table == f"{mysql_database}.t"
    assert (caught.value.journal, bool(caught.value.offset)) == (journal.name, True)
