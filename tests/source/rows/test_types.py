"""A row that is selected and the same row of the log are the same Arrow values, for every type of
docs/reference/types.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.source.rows.table_reader import ALL_ROWS
from tests.campaigns.edges.cases import CASES, REALS
from tests.campaigns.edges.evidence import COLUMNS_A_TABLE, Case, Journal, told_by_catalog
from tests.campaigns.edges.test_mariadb import COMPRESSED
from tests.servers import Server
from tests.source.rows.helpers import catalog_schema, differences, selected, table_reader

EMPTY = "''"
SESSION = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"


def test_every_type_is_what_the_log_tells(server: Server, fresh_database: str) -> None:
    cases = [case for case in [*CASES, *REALS] if case.flavor in ("", server.flavor)]
    tables = {
        f"t{first}": cases[first : first + COLUMNS_A_TABLE]
        for first in range(0, len(cases), COLUMNS_A_TABLE)
    }
    with (
        closing(server.root_connection(database=fresh_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(SESSION)
        for table, chosen in tables.items():
            for statement in filling(table, chosen):
                cursor.execute(statement)
    catalog = {table: told_by_catalog(chosen) for table, chosen in tables.items()}
    journal = Journal(server, fresh_database, catalog=catalog)
    wrong, invalid = {}, 0
    for table, chosen in tables.items():
        found = differences(server, journal, table)
        invalid += len(journal.rows(table).invalid)
        if found:
            wrong[table] = [
                str(chosen[int(name[1:])]) if name[1:].isdigit() else name for name in found
            ]
    assert wrong == {}
    assert invalid > 60


def filling(table: str, cases: Sequence[Case]) -> list[str]:
    """Statements that make and fill one table with cases side by side."""
    columns = ", ".join(f"c{index} {case.declared}" for index, case in enumerate(cases))
    count = max(len(case.values) for case in cases)
    values = [[*case.values, *["NULL"] * (count - len(case.values))] for case in cases]
    rows = ", ".join(
        f"({number}, {', '.join(row)})" for number, row in enumerate(zip(*values, strict=True))
    )
    return [
        f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4",
        f"INSERT INTO {table} VALUES {rows}",
    ]


def test_every_type_by_the_catalog_alone(server: Server, fresh_database: str) -> None:
    """A table that no table map has told: its schema knows no wire types."""
    cases = [
        case for case in [*CASES, *REALS] if case.flavor in ("", server.flavor) and case.values
    ][::5]
    with (
        closing(server.root_connection(database=fresh_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(SESSION)
        for statement in filling("t", cases):
            cursor.execute(statement)
    schema = catalog_schema(server, fresh_database, "t")
    assert {column.wire_type for column in schema.columns} == {-1}
    assert differences(server, Journal(server, fresh_database), "t", schema=schema) == []


def test_json_is_the_decoders_text(mysql_server: Server, mysql_database: str) -> None:
    values = [
        "'null'",
        "NULL",
        '\'{"bb": 1, "a": [1.50, 1e300, -0.0, true, null]}\'',
        "JSON_ARRAY(CAST('24:00:00' AS TIME), CAST('-12:34:56.5' AS TIME(3)), "
        "TIMESTAMP'2038-01-19 03:14:07.5')",
        "JSON_OBJECT('é😀', '\\t\\\"\\u0001', '', CAST('0.10' AS DECIMAL(65,30)))",
        "JSON_ARRAY(b'101', x'00ff', 18446744073709551615, CAST('0001-01-01' AS DATE))",
        "JSON_OBJECT('k', CAST(REPEAT('A', 200) AS BINARY), 'g', ST_GeomFromText('POINT(1 2)'))",
        "JSON_ARRAY(REPEAT('x', 70000))",
    ]
    mysql_server.execute(
        f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY AUTO_INCREMENT, c JSON)"
    )
    for value in values:
        mysql_server.execute(
            f"INSERT INTO {mysql_database}.t (c) VALUES ({value.replace('%', '%%')})"
        )
    assert differences(mysql_server, Journal(mysql_server, mysql_database), "t") == []


def test_mariadbs_compressed_columns(mariadb_server: Server, mariadb_database: str) -> None:
    compressed = ", ".join(
        f"c{index} {declared} NULL" for index, (declared, _) in enumerate(COMPRESSED)
    )
    values = ", ".join(["REPEAT('ab', 25)"] * len(COMPRESSED))
    mariadb_server.execute_all(
        f"USE `{mariadb_database}`",
        f"CREATE TABLE c (id INT PRIMARY KEY, {compressed})",
        "SET column_compression_threshold = 0",
        f"INSERT INTO c VALUES (1, {values}), (2, {', '.join(['NULL'] * len(COMPRESSED))}), "
        f"(3, {', '.join([EMPTY] * len(COMPRESSED))})",
    )
    assert differences(mariadb_server, Journal(mariadb_server, mariadb_database), "c") == []


def test_columns_that_a_star_does_not_show(server: Server, fresh_database: str) -> None:
    names = {
        "mysql": "GENERATED ALWAYS AS (a * 2) VIRTUAL INVISIBLE",
        "mariadb": "AS (a * 2) VIRTUAL INVISIBLE",
    }
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE t (`a``b c` INT INVISIBLE DEFAULT 5, a INT PRIMARY KEY, g INT "
        f"{names[server.flavor]}, z INT(9) ZEROFILL, d DECIMAL(9,2) ZEROFILL, s INT "
        "AS (a + 1) STORED)",
        "INSERT INTO t (a, z, d) VALUES (1, 7, 1.5), (2, NULL, 1234567.89)",
    )
    assert differences(server, Journal(server, fresh_database), "t") == []


def test_many_columns_and_their_nulls(server: Server, fresh_database: str) -> None:
    columns = ", ".join(f"c{index} INT" for index in range(300))
    rows = ", ".join(
        (
            f"({row}, "
            f"{', '.join('NULL' if (row * 7 + index) % 5 == 0 else str(index - row) for index in range(300))})"  # noqa: E501
        )
        for row in range(40)
    )
    server.execute_all(
        f"USE `{fresh_database}`",
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO t VALUES {rows}",
    )
    assert differences(server, Journal(server, fresh_database), "t") == []


def test_undecodable_text_is_listed_as_the_decoder_lists_it(
    server: Server, fresh_database: str
) -> None:
    """A text in another charset than its column's: the schema says ascii, it holds more."""
    server.execute_all(
        f"USE `{fresh_database}`", "CREATE TABLE t (id INT PRIMARY KEY, c VARBINARY(20))",
        "INSERT INTO t VALUES (1, 'plain'), (2, x'ff41'), (3, NULL)",
    )  # fmt: skip
    journal = Journal(server, fresh_database)
    told = journal.rows("t").schema
    text = replace(told.columns[1], kind=Kind.TEXT, charset="binary")
    schema = replace(told, columns=(told.columns[0], text))
    assert differences(server, journal, "t", schema=schema) == []
    with table_reader(server) as reader:
        _, invalid = selected(reader, schema, ALL_ROWS)
    assert [(value.row, value.image, value.text) for value in invalid] == [(1, "after", "ff41")]
