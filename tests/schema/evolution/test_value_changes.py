"""What real servers do to values when a column's type changes, against what `value_changes` says of
it (K13)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.schema.ddl.columns import ColumnDefinition
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes, Uncertain
from cdc_pipeline.schema.evolution.value_changes import (
    ValueChange,
    is_lossless,
    value_change,
)
from cdc_pipeline.schema.source_table import resolved_column
from cdc_pipeline.schema.types import common_type
from tests.servers import Server

# old definition | new definition | values, as SQL
KEPT = """
INT | BIGINT | -2147483648, 2147483647, NULL
INT UNSIGNED | BIGINT | 0, 4294967295
TINYINT UNSIGNED | SMALLINT | 0, 255
BIGINT | BIGINT UNSIGNED | 0, 9223372036854775807
BIGINT UNSIGNED | DECIMAL(30,2) | 18446744073709551615
SMALLINT | DECIMAL(7,1) | -32768, 32767
INT | DOUBLE | -2147483648, 2147483647
MEDIUMINT | INT | -8388608, 8388607
BIT(8) | INT | 255, 0
INT | SMALLINT | -32768, 32767
DECIMAL(10,2) | DECIMAL(12,4) | -99999999.99, 0.01
DECIMAL(10,2) | DECIMAL(5,2) | -999.99
FLOAT | DOUBLE | 0.1, -3.4e38, 1e-30
ENUM('a','b') | ENUM('c','b','a') | 'a', 'b'
ENUM('a','b') | VARCHAR(5) | 'a', 'b'
SET('a','b') | SET('a','b','c') | 'a,b', '', 'b'
SET('a','b') | TEXT | 'a,b', ''
VARCHAR(5) | ENUM('b','a') | 'a', 'b'
VARCHAR(5) | LONGTEXT | 'x  ', '', NULL
CHAR(5) | VARCHAR(9) | 'x', ''
TEXT | VARCHAR(9) | 'x ', 'y'
VARCHAR(5) | CHAR(9) | 'x', ' y'
VARCHAR(5) CHARACTER SET latin1 | VARCHAR(5) CHARACTER SET utf8mb4 | 'é', '€'
DATE | DATETIME | '2024-02-29', '1000-01-01'
DATETIME | DATETIME(3) | '2024-02-29 10:00:00'
DATETIME(6) | DATETIME(3) | '2024-02-29 10:00:00.125'
TIMESTAMP NULL | TIMESTAMP(6) NULL | '2024-02-29 10:00:00'
BINARY(4) | VARBINARY(9) | x'61000000', 'abcd'
VARBINARY(4) | BLOB | x'6100', ''
GEOMETRY | POINT | ST_GeomFromText('POINT(1 2)')
"""
MYSQL_KEPT = """
JSON | LONGTEXT | '{"b": 1, "a": [1.50, null, "x"]}'
"""
MARIADB_KEPT = """
UUID | VARCHAR(36) | '123e4567-e89b-12d3-a456-426655440000'
"""
# old definition | new definition | value | value afterwards
REWRITTEN = """
TIME | TIME(2) | '-10:20:30' | '-10:20:30.00'
BINARY(2) | BINARY(4) | x'6162' | x'61620000'
VARBINARY(4) | BINARY(4) | x'61' | x'61000000'
DECIMAL(10,2) | DECIMAL(10,1) | 1.25 | 1.3
DECIMAL(10,2) | DECIMAL(10,1) | -1.25 | -1.3
INT | VARCHAR(20) | -5 | '-5'
DATETIME | DATE | '2024-02-29 23:59:59' | '2024-02-29'
"""
# Strict mode refuses these: `value_change` relies on it.
REFUSED = """
INT | SMALLINT | 100000
INT | INT UNSIGNED | -1
BIGINT UNSIGNED | BIGINT | 18446744073709551615
DECIMAL(10,2) | DECIMAL(5,2) | 1000
INT | DECIMAL(3,1) | 100
FLOAT | FLOAT UNSIGNED | -1
VARCHAR(9) | VARCHAR(2) | 'abc'
VARCHAR(9) CHARACTER SET utf8mb4 | VARCHAR(9) CHARACTER SET latin1 | '日本'
VARCHAR(9) CHARACTER SET utf8mb4 | VARCHAR(9) CHARACTER SET utf8mb3 | '😀'
INT | INT NOT NULL | NULL
VARBINARY(9) | VARBINARY(2) | 'abc'
"""
# Values change in silence: `value_change` must say that they are not known, or check them.
SILENT = """
VARCHAR(5) | CHAR(9) | 'x '
DATETIME(6) | DATETIME | '2024-02-29 10:00:00.6'
TIME(3) | TIME | '10:00:00.6'
VARCHAR(5) | ENUM('A') | 'a'
ENUM('a') | ENUM('A') | 'a'
SET('a','b') | SET('b','a') | 'a,b'
DOUBLE | FLOAT | 0.123456789
DOUBLE | DOUBLE(9,1) | 0.15
DECIMAL(10,2) | INT | 1.5
BIGINT | BIT(64) | -1
INT | BIT(64) | -5
SET('ü','b') | SET('ü','b') CHARACTER SET ascii | 'ü'
VARCHAR(9) | VARCHAR(9) CHARACTER SET cp932 | '晡'
"""
MARIADB_SILENT = """
TEXT | TINYTEXT | REPEAT(' ', 300)
"""
# Not in strict mode: NULLs that get a value, and numbers that are rounded out of their type.
SILENT_WITHOUT_STRICT = """
INT | INT NOT NULL | NULL
VARCHAR(9) | VARCHAR(9) NOT NULL | NULL
ENUM('a','b') | ENUM('a','b') NOT NULL | NULL
DECIMAL(3,2) | DECIMAL(2,1) | 9.99
VARBINARY(9) | VARBINARY(2) | 'abc'
"""


def lines(text: str) -> list[list[str]]:
    return [[part.strip() for part in line.split(" | ")] for line in text.splitlines() if line]


def definition(text: str, *, is_mariadb: bool) -> tuple[Column, ColumnDefinition]:
    created = parse_statement(
        f"CREATE TABLE t (c {text}, id INT PRIMARY KEY)", "", is_mariadb=is_mariadb
    ).created
    assert created is not None, text
    found = created.columns[0]
    return resolved_column(found, "utf8mb4", is_mariadb=is_mariadb), found


def changed(
    old: str, new: str, *, strict: bool = True, is_mariadb: bool = False, trims_char: bool = True
) -> ValueChange | None:
    """None: the values afterwards are unknown."""
    before, _ = definition(old, is_mariadb=is_mariadb)
    column, after = definition(new, is_mariadb=is_mariadb)
    modes = SqlModes(strict=strict, trims_char=trims_char)
    try:
        return value_change(before, replace(after, column=column), modes)
    except Uncertain:
        return None


def checks(old: str, new: str) -> list[str]:
    change = changed(old, new)
    assert change is not None
    return [condition for condition, _ in change.checks]


class Session:
    """One table after the other on a server, in strict mode."""

    def __init__(self, server: Server, database: str, *, is_mariadb: bool) -> None:
        self._connection = server.root_connection(database=database)
        self._cursor = self._connection.cursor()
        self._cursor.execute("SET NAMES utf8mb4")
        self._cursor.execute("SET time_zone = '+00:00'")
        self._cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES'")
        self.is_mariadb = is_mariadb

    def values(self, old: str, values: str, new: str) -> tuple[list[Any], list[Any]]:
        run = self._cursor.execute
        run("DROP TABLE IF EXISTS t")
        run(
            f"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, c {old}) DEFAULT CHARSET = utf8mb4"
        )
        for value in values.split(", ") if "(" not in values and "{" not in values else [values]:
            run(f"INSERT INTO t (c) VALUES ({value})")
        before = self._read(old)
        run(f"ALTER TABLE t MODIFY c {new}")
        return before, self._read(new)

    def run(self, sql: str) -> Any:
        self._cursor.execute(sql)
        return self._cursor.fetchall()

    def _read(self, kind: str) -> list[Any]:
        shown = (
            "c + 0"
            if kind.startswith("BIT")
            else "ST_AsText(c)"
            if kind in ("GEOMETRY", "POINT")
            else "c"
        )
        shown = "CAST(c AS CHAR)" if kind.split()[0].split("(")[0] in _AS_TEXT else shown
        self._cursor.execute(f"SELECT {shown} FROM t ORDER BY id")
        return [row[0] for row in self._cursor.fetchall()]


_AS_TEXT = {"JSON", "TIME", "DATE", "DATETIME", "TIMESTAMP", "UUID"}


@pytest.fixture(params=["mysql", "mariadb"])
def session(request: pytest.FixtureRequest) -> Session:
    flavor = request.param
    server = request.getfixturevalue(f"{flavor}_server")
    return Session(
        server, request.getfixturevalue(f"{flavor}_database"), is_mariadb=flavor == "mariadb"
    )


def alike(old: Any, new: Any, *, kind: str) -> bool:
    if kind == "FLOAT" and old is not None:
        # FLOAT is shown with six digits.
        return struct.unpack("<f", struct.pack("<f", new))[0] == pytest.approx(old, rel=1e-6)
    if (
        isinstance(old, str)
        and isinstance(new, str)
        and kind in ("DATE", "DATETIME", "TIMESTAMP NULL", "DATETIME(6)")
    ):
        return new.split(".")[0].startswith(old.split(".")[0])
    return bool(old == new)


def test_k13_values_that_are_said_to_stay_stay(session: Session) -> None:
    for old, new, values in lines(KEPT + (MARIADB_KEPT if session.is_mariadb else MYSQL_KEPT)):
        change = changed(old, new, is_mariadb=session.is_mariadb)
        assert change is not None, (old, new)
        assert not change.value, (old, new, change)
        before, after = session.values(old, values, new)
        assert len(before) == len(after)
        assert all(alike(a, b, kind=old) for a, b in zip(before, after, strict=True)), (
            old,
            new,
            before,
            after,
        )


def test_k13_converted_values_are_what_the_server_makes_of_them(session: Session) -> None:
    for old, new, value, expected in lines(REWRITTEN):
        change = changed(old, new, is_mariadb=session.is_mariadb)
        assert change is not None, (old, new)
        assert change.value, (old, new, change)
        _, (after,) = session.values(old, value, new)
        _, (wanted,) = session.values(new, expected, new)
        assert after == wanted, (old, new)


def test_k13_strict_mode_refuses_what_is_not_checked_there(session: Session) -> None:
    for old, new, value in lines(REFUSED):
        with pytest.raises(pymysql.err.Error):
            session.values(old, value, new)
        loose = changed(old, new, strict=False, is_mariadb=session.is_mariadb)
        assert loose is None or loose.checks, (old, new, loose)


def test_k13_values_that_change_in_silence_are_never_said_to_stay(session: Session) -> None:
    for old, new, value in lines(SILENT + (MARIADB_SILENT if session.is_mariadb else "")):
        before, after = session.values(old, value, new)
        assert before != after, (old, new)
        change = changed(old, new, is_mariadb=session.is_mariadb)
        assert change is None or change.checks, (old, new, change)


def test_k23_outside_of_strict_mode_what_gets_a_value_is_checked(session: Session) -> None:
    session.run("SET sql_mode = ''")
    for old, new, value in lines(SILENT_WITHOUT_STRICT):
        before, after = session.values(old, value, new)
        assert before != after, (old, new)
        change = changed(old, new, strict=False, is_mariadb=session.is_mariadb)
        assert change is None or change.checks, (old, new, change)


def test_k23_bits_of_negative_numbers_are_another_number() -> None:
    """F4: a BIGINT -1 is 18446744073709551615 as BIT(64), in strict mode too (K23)."""
    for old in ("BIGINT", "INT", "TINYINT"):
        assert changed(old, "BIT(64)") is None
    assert changed("BIGINT UNSIGNED", "BIT(64)") == ValueChange()


def test_k23_auto_increment_numbers_nulls(session: Session) -> None:
    """F28: in strict mode too, AUTO_INCREMENT gives NULLs and zeros a number (K23)."""
    session.run("DROP TABLE IF EXISTS t")
    session.run("CREATE TABLE t (id INT PRIMARY KEY, c INT)")
    session.run("INSERT INTO t VALUES (1, NULL)")
    session.run("ALTER TABLE t MODIFY c INT AUTO_INCREMENT, ADD KEY (c)")
    assert session.run("SELECT c FROM t") == ((1,),)
    assert checks("INT", "INT AUTO_INCREMENT") == ["{c} IS NOT NULL", "{c} <> 0"]


def test_k23_a_timestamp_that_is_not_null_without_saying_so(session: Session) -> None:
    """F28: without explicit_defaults_for_timestamp the NULLs become the time of the ALTER (K23)."""
    session.run("SET explicit_defaults_for_timestamp = OFF")
    before, after = session.values("TIMESTAMP(3) NULL", "NULL", "TIMESTAMP(6)")
    assert before == [None]
    assert after != [None]
    for definition, is_checked in (
        ("TIMESTAMP(6)", True),
        ("TIMESTAMP(6) NOT NULL", True),
        ("TIMESTAMP(6) NULL", False),
    ):
        assert bool(checks("TIMESTAMP NULL", definition)) is is_checked


def test_k23_a_char_that_is_read_with_its_blanks_is_copied_with_them(session: Session) -> None:
    """PAD_CHAR_TO_FULL_LENGTH is in the statement's sql_mode; where unknown, it may be on (K23)."""
    session.run("SET sql_mode = 'STRICT_TRANS_TABLES,PAD_CHAR_TO_FULL_LENGTH'")
    _, after = session.values("CHAR(5)", "'a'", "VARCHAR(9)")
    assert after == ["a    "]
    assert changed("CHAR(5)", "VARCHAR(9)", trims_char=False) is None
    assert not SqlModes.from_bits(1 << 31).trims_char
    assert SqlModes.from_bits(1 << 22).trims_char


def test_types_that_hold_two_others() -> None:
    assert common_type("int", "bigint") == "bigint"
    assert common_type("decimal(20,0)", "bigint") == "decimal(20,0)"
    assert common_type("bigint", "decimal(10,2)") == "decimal(22,2)"
    assert common_type("decimal(38,0)", "decimal(38,10)") is None
    assert common_type("string", "int") is None
    assert common_type("date", "timestamp_ntz") == "timestamp_ntz"
    assert (is_lossless("latin1", "utf8mb3"), is_lossless("utf8mb4", "utf8mb3")) == (True, False)
