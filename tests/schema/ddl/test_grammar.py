"""The grammar of both servers (K33): generated statements are run, and what is read of each is what
the server's catalog says; every mode of the servers is in the table of modes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.errors import CdcError
from cdc_pipeline.schema.catalog import column_of
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.options import server_charset
from cdc_pipeline.schema.ddl.sql_modes import SQL_MODES
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.backfill import backfill
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import KnownTable, StatementContext
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import SchemaHistory
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import delta_type, target_columns
from tests.schema.ddl.generated_statements import Generated, Maker
from tests.schema.ddl.test_servers_agree import read_value, selected
from tests.servers import Server

FLAVORS = [
    pytest.param("mysql", marks=pytest.mark.mysql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]
SERVER_CHARSET = "utf8mb4"


class Grammar:
    """A session on a server, and the history of what it ran.

    Attributes:
        modes: of the session.
        modes_of_last: those in which the last statement ran that the server took.
    """

    def __init__(self, server: Server, *, sql_mode: str = "") -> None:
        self.is_mariadb = server.flavor == "mariadb"
        self.history = SchemaHistory()
        self.modes_of_last = SqlModes()
        self._database = ""
        self._connection = server.root_connection()
        self._cursor = self._connection.cursor()
        self._offset = 0
        self._cursor.execute("SET NAMES utf8mb4")
        self._cursor.execute("SET collation_server = 'utf8mb4_general_ci'")
        self.set_mode(sql_mode)
        for name in self._names("SHOW DATABASES"):
            if name == "g" or name.startswith("g_"):
                self._cursor.execute(f"DROP DATABASE `{name}`")

    def __enter__(self) -> Grammar:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names("SHOW DATABASES"):
            if name == "g" or name.startswith("g_"):
                self._cursor.execute(f"DROP DATABASE `{name}`")
        self._connection.close()

    def set_mode(self, sql_mode: str) -> None:
        self._cursor.execute("SET sql_mode = %s", (sql_mode,))
        (modes,) = self._names("SELECT @@sql_mode")
        other = "mysql" if self.is_mariadb else "mariadb"
        bits = {mode.name: 1 << mode.bit for mode in SQL_MODES if mode.flavor != other}
        self.modes = SqlModes.from_bits(
            sum(bits[name] for name in modes.split(",") if name),
            is_mariadb=self.is_mariadb,
            explicit_defaults_for_timestamp=True,
            time_zone="+00:00",
        )

    def _names(self, sql: str) -> list[str]:
        self._cursor.execute(sql)
        rows: Any = self._cursor.fetchall()
        return [str(row[0]) for row in rows]

    def run(self, sql: str) -> bool:
        """Run a statement and add it to the history; False if the server refuses it."""
        try:
            self._cursor.execute(sql)
            self._cursor.fetchall()
        except pymysql.err.MySQLError:
            return False
        if sql.startswith("USE "):
            self._database = sql.removeprefix("USE ").strip("`")
            return True
        self.modes_of_last = self.modes
        self._offset += 10
        place = pack_seq(1, 1, self._offset)
        logged = LoggedStatement(
            parse_statement(sql, self._database, is_mariadb=self.is_mariadb, modes=self.modes),
            place,
            server_charset=SERVER_CHARSET,
        )
        apply(self.history, logged, lambda _database, _table: True)
        return True

    def try_mode(self, sql_mode: str) -> bool:
        """Set a mode; False if the server does not have it any more."""
        try:
            self.set_mode(sql_mode)
        except pymysql.err.MySQLError:
            return False
        return True

    def fill(self, table: str, values: str = "1") -> None:
        self._cursor.execute(f"INSERT INTO {table} VALUES ({values})")
        self._connection.commit()

    def row(self, table: str) -> dict[str, str]:
        """The one row, each value as the text that the lake would have of it."""
        cursor: Any = self._connection.cursor(pymysql.cursors.DictCursor)
        cursor.execute(f"SELECT * FROM {table}")
        (row,) = cursor.fetchall()
        return {name: str(value) for name, value in row.items()}

    def kept(self, alter: str, table: str) -> set[str]:
        """Columns that an ALTER TABLE is decided to leave as they are; none if it is refused, or
        only a look at all rows could tell."""
        version = self.history.at("g", table, pack_seq(1, 1, self._offset))
        assert version is not None
        assert version.schema is not None
        state = SourceTable(
            version.schema, version.charset, self.read_charset("g"), version.generated
        )
        target = KnownTable(
            RecordedSource(columns=target_columns(state.schema), key=state.schema.key_names),
            name=f"g.{table}",
        )
        try:
            decision = decide(
                StatementContext(
                    parse_statement(alter, "g", is_mariadb=self.is_mariadb, modes=self.modes),
                    captured=lambda _database, _table: True,
                    known=lambda _database, name: target if name == table else None,
                    before=lambda _database, name: state if name == table else None,
                )
            )
        except CdcError:
            return set()
        if not decision.changes:
            return set(state.schema.column_names)
        (change,) = decision.changes
        if any(step.kind in ("check_rows", "fill_columns") for step in change.steps):
            return set()
        after = {column.name for column in change.known.source.columns}
        return after & set(state.schema.column_names)

    def data_type(self, table: str) -> str:
        (found,) = self._names(
            "SELECT lower(data_type) FROM information_schema.columns WHERE table_schema = 'g' AND "
            f"table_name = '{table}' AND column_name = 'a'"
        )
        return found

    def read_charset(self, database: str) -> str:
        version = self.history.at(database, "", pack_seq(1, 1, self._offset))
        return "" if version is None else version.charset

    def servers_charset(self, database: str) -> str:
        self._cursor.execute(
            "SELECT default_character_set_name FROM information_schema.schemata WHERE "
            "schema_name = %s",
            (database,),
        )
        row: Any = self._cursor.fetchone()
        return server_charset(row[0])

    def read_table(self, table: str) -> tuple[list[Column], tuple[str, ...], str] | str:
        """What is known of a table: columns, key and charset; or why nothing is."""
        version = self.history.at("g", table, pack_seq(1, 1, self._offset))
        assert version is not None
        if version.schema is None:
            return version.why
        return list(version.schema.columns), version.schema.key_names, version.charset

    def servers_table(self, table: str) -> tuple[list[Column], tuple[str, ...], str]:
        cursor: Any = self._connection.cursor(pymysql.cursors.DictCursor)
        cursor.execute(
            "SELECT column_name AS column_name, column_type AS column_type, extra AS extra, "
            "character_set_name AS character_set_name, is_nullable AS is_nullable FROM "
            "information_schema.columns WHERE table_schema = 'g' AND table_name = %s ORDER BY "
            "ordinal_position",
            (table,),
        )
        columns = [column_of(row, is_mariadb=self.is_mariadb) for row in cursor.fetchall()]
        assert all(columns), table
        key = self._names(
            "SELECT column_name FROM information_schema.statistics WHERE table_schema = 'g' AND "
            f"table_name = '{table}' AND index_name = 'PRIMARY' ORDER BY seq_in_index"
        )
        (collation,) = self._names(
            "SELECT table_collation FROM information_schema.tables WHERE table_schema = 'g' AND "
            f"table_name = '{table}'"
        )
        charset = server_charset(collation.split("_", 1)[0])
        return [column for column in columns if column is not None], tuple(key), charset


# CONVERT TO binary makes VARCHAR and CHAR of a known table VARBINARY and BINARY, which it does not
# tell apart; 0xe9 is no label in utf8mb4 and no text in binary.
_UNCERTAIN = re.compile(r"CONVERT TO CHAR[^,]*BINARY|0xe9", re.IGNORECASE)


def _compared(columns: list[Column]) -> list[Column]:
    return [replace(column, char_length_max=0) for column in columns]


def _differences(grammar: Grammar, one: Generated) -> str:
    """What is read otherwise than the server has it, after the statements ran; "" if nothing."""
    if not one.name:
        database = next(word for word in one.statements[0].split() if word.startswith("g_"))
        ours, theirs = grammar.read_charset(database), grammar.servers_charset(database)
        return "" if ours == theirs else f"charset {ours!r}, not {theirs!r}"
    read = grammar.read_table(one.name)
    if isinstance(read, str):
        return "" if _UNCERTAIN.search(one.statements[-1]) else f"not read: {read}"
    columns, key, charset = grammar.servers_table(one.name)
    if _compared(read[0]) != _compared(columns):
        return f"{_compared(read[0])}, not {_compared(columns)}"
    return "" if read[1:] == (key, charset) else f"{read[1:]}, not {(key, charset)}"


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 40), pytest.param(2, 400, marks=pytest.mark.whole)]
)
def test_k33_what_is_read_of_a_statement_is_what_the_server_has(
    request: pytest.FixtureRequest, flavor: str, seed: int, count: int
) -> None:
    wrong: list[str] = []
    taken = 0
    with Grammar(request.getfixturevalue(f"{flavor}_server")) as grammar:
        for sql in (
            "CREATE DATABASE g CHARACTER SET latin2",
            "USE g",
            "CREATE TABLE o (id INT PRIMARY KEY)",
        ):
            assert grammar.run(sql)
        for one in Maker(seed).statements(count):
            if all(grammar.run(sql) for sql in one.statements):
                taken += 1
                if difference := _differences(grammar, one):
                    wrong.append(f"{one.statements[-1]}\n    {difference}")
            grammar.run("USE g")
    assert not wrong, f"{len(wrong)} of {taken}:\n" + "\n".join(wrong[:40])
    assert taken > count // 4


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 60), pytest.param(3, 400, marks=pytest.mark.whole)]
)
def test_k33_values_that_a_decision_keeps_are_those_that_the_server_keeps(
    request: pytest.FixtureRequest, flavor: str, seed: int, count: int
) -> None:
    """Generated ALTER TABLE outside of strict mode, over a row whose texts few charsets have."""
    wrong: list[str] = []
    kept = 0
    with Grammar(request.getfixturevalue(f"{flavor}_server")) as grammar:
        for sql in (
            "CREATE DATABASE g CHARACTER SET latin2",
            "USE g",
            "CREATE TABLE o (id INT PRIMARY KEY)",
        ):
            assert grammar.run(sql)
        for one in Maker(seed).statements(count):
            if not one.statements[-1].startswith("ALTER TABLE"):
                continue
            base, alter = one.statements
            assert grammar.run(base)
            grammar.fill(one.name, "1, 'жz ', 'é', 300")
            before = grammar.row(one.name)
            columns = grammar.kept(alter, one.name)
            if not grammar.run(alter):
                continue
            after = grammar.row(one.name)
            kept += len(columns)
            wrong += [
                f"{alter}: {column} {before[column]!r}, not {after[column]!r}"
                for column in sorted(columns)
                if after[column] != before[column]
            ]
    assert not wrong, f"{len(wrong)} of {kept}:\n" + "\n".join(wrong[:40])
    assert kept > count // 4


@pytest.mark.parametrize("flavor", FLAVORS)
def test_k33_every_mode_of_a_server_is_in_the_table(
    request: pytest.FixtureRequest, flavor: str
) -> None:
    """Asked bit by bit; a mode that sets other modes, too, is a combination."""
    server: Server = request.getfixturevalue(f"{flavor}_server")
    listed = {mode.bit: mode.name for mode in SQL_MODES if mode.flavor in ("", flavor)}
    with server.root_connection() as connection, connection.cursor() as cursor:
        for bit in range(64):
            try:
                cursor.execute(f"SET sql_mode = {1 << bit}")
            except pymysql.err.MySQLError:
                continue
            cursor.execute("SELECT @@sql_mode")
            row: Any = cursor.fetchone()
            assert listed.get(bit) in row[0].split(","), f"bit {bit}: {row[0]}"


# mode | what is added to a table of one row | what that row has then
ADDED = """
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT ''
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT ""
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT N''
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT _latin1''
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT '' ''
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT '' 'x'
EMPTY_STRING_IS_NULL | a VARCHAR(5) DEFAULT ('')
EMPTY_STRING_IS_NULL | a VARCHAR(5) NOT NULL
EMPTY_STRING_IS_NULL | a ENUM('','x') DEFAULT ''
EMPTY_STRING_IS_NULL | a ENUM('','x') NOT NULL
EMPTY_STRING_IS_NULL | a VARBINARY(5) DEFAULT ''
EMPTY_STRING_IS_NULL | a BLOB DEFAULT ''
REAL_AS_FLOAT | a REAL DEFAULT 0.1
REAL_AS_FLOAT | a DOUBLE PRECISION DEFAULT 0.1
ANSI_QUOTES | "a" VARCHAR(5) DEFAULT '"'
NO_BACKSLASH_ESCAPES | a VARCHAR(5) DEFAULT 'a\\nb'
ANSI_QUOTES,NO_BACKSLASH_ESCAPES | "a" VARCHAR(5) DEFAULT 'a\\nb'
IGNORE_SPACE | a VARCHAR(5) CHARACTER SET latin1 DEFAULT 'x'
PIPES_AS_CONCAT | a VARCHAR(5) DEFAULT '||'
ORACLE | a DATE DEFAULT '2024-02-29 01:02:03'
ORACLE | a VARCHAR2(5) DEFAULT 'x'
ORACLE | a NUMBER(5,2) DEFAULT 1.5
ORACLE | a NUMBER DEFAULT 1.5
ORACLE | a RAW(5) DEFAULT 'x'
ORACLE | a CLOB CHAR SET latin1 DEFAULT 'x'
ORACLE | a mariadb_schema.date DEFAULT '2024-02-29'
MAXDB | a TIMESTAMP NULL DEFAULT '2024-02-29 01:02:03'
MAXDB | a TIMESTAMP(3) NULL DEFAULT '1001-02-28 01:02:03.5'
MAXDB | a mariadb_schema.timestamp NULL DEFAULT '2024-02-29 01:02:03'
ANSI | "a" REAL DEFAULT 0.5
ANSI | "a" VARCHAR(5) CHAR SET latin1
MSSQL | "a" VARCHAR(5) DEFAULT 'x'
TRADITIONAL | a DATETIME(2) DEFAULT '2024-02-29 01:02:03.45'
ALLOW_INVALID_DATES | a DATE DEFAULT '2024-02-29'
NO_UNSIGNED_SUBTRACTION | a INT UNSIGNED DEFAULT 5
HIGH_NOT_PRECEDENCE | a INT DEFAULT 5
TIME_ROUND_FRACTIONAL | a TIME(1) DEFAULT '01:02:03.4'
TIME_TRUNCATE_FRACTIONAL | a TIME(1) DEFAULT '01:02:03.4'
INTERPRET_UTF8_AS_UTF8MB4 | a VARCHAR(5) CHARSET utf8 DEFAULT 'x'
INTERPRET_UTF8_AS_UTF8MB4 | a VARCHAR(5) COLLATE utf8_bin DEFAULT 'x'
INTERPRET_UTF8_AS_UTF8MB4 | a NCHAR(5) DEFAULT 'x'
 | a ENUM(0x61,'b') NOT NULL
 | a ENUM(0x61,'b') CHARACTER SET utf16 NOT NULL
 | a SET(0x61,'b') DEFAULT 'a'
 | a FLOAT(7.4) DEFAULT 1.23456
 | a DECIMAL(19.5) DEFAULT 3
 | a TEXT(9.5)
"""


@pytest.mark.parametrize("flavor", FLAVORS)
def test_k33_a_column_added_under_a_mode_is_read_as_the_server_reads_it(
    request: pytest.FixtureRequest, flavor: str
) -> None:
    """F76: definition and value of the existing row, in each mode that changes a text's meaning."""
    server: Server = request.getfixturevalue(f"{flavor}_server")
    names = {mode.name for mode in SQL_MODES if mode.flavor in ("", flavor)}
    compared = 0
    with Grammar(server) as grammar:
        assert grammar.run("CREATE DATABASE g CHARACTER SET latin2")
        assert grammar.run("USE g")
        for number, line in enumerate(ADDED.strip("\n").splitlines()):
            mode, definition = (part.strip() for part in line.split(" | "))
            table = f"t{number}"
            grammar.set_mode("")
            assert grammar.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
            grammar.fill(table)
            if not set(mode.split(",")) - {""} <= names or not grammar.try_mode(mode):
                continue
            alter = f"ALTER TABLE {table} ADD COLUMN {definition}"
            if not grammar.run(alter):
                continue
            grammar.set_mode("")
            assert not _differences(grammar, Generated(table, (alter,))), line
            (action,) = parse_statement(
                alter, "g", is_mariadb=grammar.is_mariadb, modes=grammar.modes_of_last
            ).actions
            assert action.column is not None, line
            column = action.column.in_charset("latin2", is_mariadb=grammar.is_mariadb)
            value = backfill(column, modes=grammar.modes_of_last)
            data_type = grammar.data_type(table)
            theirs = selected(server, "g", delta_type(column.column), data_type, f"{table}", "a")
            assert read_value(value) == theirs, line
            compared += 1
    assert compared > 20
