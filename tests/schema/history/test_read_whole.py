"""A grammar is read whole or not at all (K33): charsets in every place, modes, what certainly
created a table, and names that come back."""

from __future__ import annotations

import pytest

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import SchemaHistory, Version


def history_of(
    *statements: str, is_mariadb: bool = True, sql_mode: int = 0, server_charset: str = "utf8mb4"
) -> SchemaHistory:
    history = SchemaHistory()
    modes = SqlModes.from_bits(sql_mode, is_mariadb=is_mariadb)
    for number, sql in enumerate(statements, 1):
        logged = LoggedStatement(
            parse_statement(sql, "d", is_mariadb=is_mariadb, modes=modes),
            pack_seq(1, 1, 10 * number),
            server_charset=server_charset,
        )
        apply(history, logged, lambda _database, _table: True)
    return history


def last(history: SchemaHistory, table: str = "t", database: str = "d") -> Version:
    found = history.at(database, table, pack_seq(1, 1, 10_000))
    assert found is not None
    return found


def charsets(history: SchemaHistory, table: str = "t") -> list[str]:
    schema = last(history, table).schema
    assert schema is not None, last(history, table).why
    return [column.charset for column in schema.columns if column.type.has_charset]


CLAUSES = [
    "CHARACTER SET cp1251", "CHARSET cp1251", "CHAR SET cp1251", "CHAR SET 'cp1251'",
    "CHARACTER/**/SET `cp1251`", "COLLATE cp1251_bin", "CHAR SET cp1251 COLLATE cp1251_bin",
]  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES)
def test_k33_f75_a_charset_is_read_in_every_place_in_every_spelling(clause: str) -> None:
    column = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) {})"
    plain = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9)) {}"
    assert charsets(history_of(column.format(clause))) == ["cp1251"]
    for option in (
        clause,
        f"DEFAULT {clause}",
        clause.replace("SET ", "SET = "),
        f"ENGINE=x {clause}",
    ):
        assert charsets(history_of(plain.format(option))) == ["cp1251"], option
        for before in ("CREATE DATABASE d", "CREATE DATABASE d CHARSET latin2; ALTER DATABASE d",
                       "CREATE DATABASE d CHARSET latin2; ALTER DATABASE"):  # fmt: skip
            if option.startswith("ENGINE"):
                continue
            databases = f"{before} {option}".split("; ")
            assert charsets(history_of(*databases, plain.format(""))) == ["cp1251"], option
        added = history_of(plain.format("CHARSET latin2"), f"ALTER TABLE t {option}, ADD e TEXT")
        assert charsets(added) == ["latin2", "cp1251"], option
    convert = f"ALTER TABLE t CONVERT TO {clause.replace('COLLATE cp1251_bin', 'CHARSET cp1251')}"
    assert charsets(history_of(plain.format("CHARSET latin2"), convert)) == ["cp1251"]


def test_k33_a_default_charset_is_that_of_what_is_above() -> None:
    database = "CREATE DATABASE d CHAR SET latin2"
    table = "CREATE TABLE t (id INT PRIMARY KEY, c TEXT) CHARSET cp1251"
    for clause, wanted in (
        ("CHAR SET DEFAULT", "latin2"),
        ("COLLATE DEFAULT", "cp1251"),
        ("COLLATE uca1400_ai_ci", "cp1251"),
    ):
        added = history_of(database, table, f"ALTER TABLE t {clause}, ADD e TEXT")
        assert charsets(added) == ["cp1251", wanted], clause
    converted = history_of(database, table, "ALTER TABLE t CONVERT TO CHAR SET DEFAULT")
    assert charsets(converted) == ["latin2"]
    unknown = history_of(table, "ALTER TABLE t CONVERT TO CHAR SET DEFAULT")
    assert last(unknown).schema is None
    # MariaDB takes both in one statement: columns, new ones too, and the table's default.
    both = history_of(table, "ALTER TABLE t CONVERT TO CHARSET latin1, CHARSET utf8mb4, ADD e TEXT")
    assert (charsets(both), last(both).charset) == (["latin1", "latin1"], "utf8mb4")


def test_k33_what_is_left_over_in_a_clause_is_never_certain() -> None:
    for sql in (
        "CREATE TABLE t (id INT PRIMARY KEY, c TEXT) FROBNICATE latin1",
        "CREATE TABLE t (id INT PRIMARY KEY, c TEXT) CHARSET latin1 FROBNICATE",
        "CREATE TABLE t (id INT PRIMARY KEY FROBNICATE, c TEXT)",
        "CREATE TABLE t (id INT, c TEXT, PRIMARY KEY (id) FROBNICATE)",
    ):
        assert last(history_of(sql)).schema is None, sql
    table = "CREATE TABLE t (id INT PRIMARY KEY, c TEXT) CHARSET latin1"
    for actions in ("CHARSET latin2 FROBNICATE", "CONVERT TO CHARSET latin2 FROBNICATE 'secret'"):
        altered = last(history_of(table, f"ALTER TABLE t {actions}"))
        assert altered.schema is None, actions
        assert "secret" not in altered.why
    database = history_of(
        "CREATE DATABASE d CHARSET latin1", "ALTER DATABASE d CHARSET x FROBNICATE"
    )
    assert last(database, "").charset == ""


def test_k33_ddl_under_a_mode_that_is_in_no_table_is_not_certain() -> None:
    table = "CREATE TABLE t (id INT PRIMARY KEY)"
    assert last(history_of(table, sql_mode=1 << 40)).schema is None
    assert last(history_of(table, sql_mode=1 << 34)).schema is not None
    assert last(history_of(table, sql_mode=1 << 34, is_mariadb=False)).schema is None


def test_k33_modes_that_change_types_and_charsets() -> None:
    table = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARSET utf8, d TIMESTAMP NULL)"
    for bit, is_mariadb, charset, kind in (
        (33, False, "utf8mb4", Kind.TIMESTAMP),
        (33, True, "utf8mb3", Kind.TIMESTAMP),
        (12, True, "utf8mb3", Kind.DATETIME),
    ):
        schema = last(history_of(table, sql_mode=1 << bit, is_mariadb=is_mariadb)).schema
        assert schema is not None
        assert (schema.columns[1].charset, schema.columns[2].kind) == (charset, kind)
    # What a server writes of a temporary table's copy lacks the table's charset in mode ANSI.
    written = 'CREATE TABLE "t" (\n  "id" int NOT NULL,\n  "c" text,\n  PRIMARY KEY ("id")\n)'
    ansi = 1 << 18 | 1 << 2
    assert charsets(history_of("CREATE DATABASE d", written, sql_mode=ansi)) == [""]
    assert charsets(history_of("CREATE DATABASE d", written, sql_mode=1 << 2)) == ["utf8mb4"]
    typed = written.replace("\n", "")
    assert charsets(history_of("CREATE DATABASE d", typed, sql_mode=ansi)) == ["utf8mb4"]


def test_k33_f84_what_servers_accept_is_read() -> None:
    sql = (
        "CREATE TABLE t (t.id INT PRIMARY KEY, d.t.a DECIMAL(19.5), f FLOAT(7.4), g FLOAT(30.9), "
        "e ENUM(0x61,'b'), s SET(0xea) CHAR SET cp1251, KEY k (a) KEY_BLOCK_SIZE 8, KEY l (a) "
        "KEY_BLOCK_SIZE 8) KEY_BLOCK_SIZE 8"
    )
    schema = last(history_of("CREATE DATABASE d", sql)).schema
    assert schema is not None
    assert schema.column_names == ("id", "a", "f", "g", "e", "s")
    by_name = {column.name: column for column in schema.columns}
    assert (by_name["a"].precision, by_name["a"].scale) == (19, 0)
    assert (by_name["f"].kind, by_name["g"].kind) == (Kind.FLOAT, Kind.DOUBLE)
    assert (by_name["e"].labels, by_name["s"].labels) == (("a", "b"), ("к",))
    altered = history_of(
        "CREATE DATABASE d",
        sql,
        "ALTER TABLE t DROP t.a, CHANGE t.f t.ff INT FIRST, ADD d.t.z INT AFTER t.g",
    )
    after = last(altered).schema
    assert after is not None
    assert after.column_names == ("ff", "id", "g", "z", "e", "s")
    # Bytes are labels only in a charset that is known, and has them.
    assert last(history_of("CREATE TABLE t (id INT PRIMARY KEY, e ENUM(0x61))")).schema is None
    bad = "CREATE TABLE t (id INT PRIMARY KEY, e ENUM(0xff,'a') CHARACTER SET {})"
    assert last(history_of(bad.format("utf8mb4"))).schema is None
    assert last(history_of(bad.format("binary"))).schema is None


@pytest.mark.parametrize(
    ("before", "is_described"),
    [
        (["CREATE DATABASE d"], True),
        (["CREATE DATABASE d", "ALTER DATABASE d CHARSET latin1"], True),
        (["DROP DATABASE d", "CREATE DATABASE IF NOT EXISTS d"], True),
        (["CREATE OR REPLACE DATABASE d"], True),
        (["CREATE DATABASE d", "CREATE TABLE t (k INT PRIMARY KEY)", "RENAME TABLE t TO u"], True),
        (["CREATE DATABASE d", "CREATE TABLE t (k INT PRIMARY KEY)", "DROP TABLE t"], True),
        (["CREATE TABLE t (k INT PRIMARY KEY)", "CREATE OR REPLACE DATABASE d"], True),
        ([], False),
        (["CREATE DATABASE IF NOT EXISTS d CHARSET latin1"], False),
        (["CREATE DATABASE other"], False),
        (["CREATE DATABASE d", "RENAME TABLE x.y TO d.t"], False),
        (["CREATE DATABASE d", "CREATE TABLE t (k GIZMO)"], False),
        (["CREATE DATABASE d", "CREATE TABLE t LIKE x.y"], False),
    ],
)
def test_k33_f84_a_table_is_created_if_it_certainly_was_not_there(
    before: list[str], is_described: bool
) -> None:
    create = "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, c TEXT)"
    schema = last(history_of(*before, create)).schema
    assert (schema is not None and schema.column_names == ("id", "c")) is is_described
    kept = history_of("CREATE DATABASE d", "CREATE TABLE t (k INT PRIMARY KEY)", create)
    there = last(kept).schema
    assert there is not None
    assert there.column_names == ("k",)


def test_k33_f82_a_table_that_has_its_name_again_is_the_same() -> None:
    table = "CREATE TABLE a (id INT PRIMARY KEY, c TEXT)"
    history = history_of("CREATE DATABASE d", table, "RENAME TABLE a TO b, b TO a")
    schema = last(history, "a").schema
    assert schema is not None
    assert schema.column_names == ("id", "c")
    assert last(history, "b").schema is None
    swapped = history_of(
        "CREATE DATABASE d", table, "CREATE TABLE b (k INT PRIMARY KEY)",
        "RENAME TABLE a TO x, b TO a, x TO b",
    )  # fmt: skip
    names = [
        version.schema and version.schema.column_names
        for version in (last(swapped, "a"), last(swapped, "b"))
    ]
    assert names == [("k",), ("id", "c")]
