"""Changes that stand in the log as statements: every kind, on both servers, is an error of each
captured table that it may have reached, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.errors import CdcError, ContentUnknownError
from tests.campaigns.events.replay import closed_journal, decisions
from tests.servers import Server

# Kind, statement, whether its text tells its tables. {file} is a file of two lines.
CHANGES = [
    ("INSERT", "INSERT INTO t VALUES (1, 'a')", True),
    ("INSERT", "INSERT INTO t SELECT id + 100, v FROM other", True),
    ("INSERT", "INSERT INTO t (v) VALUES (RAND())", True),  # with INTVAR and RAND before it
    ("INSERT", "INSERT INTO t VALUES (1, 'x') ON DUPLICATE KEY UPDATE v = 'y'", True),
    ("REPLACE", "REPLACE INTO t VALUES (1, 'b')", True),
    ("UPDATE", "UPDATE t SET v = @a WHERE id = 1", True),  # with USER_VAR before it
    ("UPDATE", "UPDATE other JOIN t ON t.id = other.id + 100 SET t.v = 'j', other.v = 'k'", True),
    ("DELETE", "DELETE FROM t WHERE id = 1", True),
    ("LOAD", "LOAD DATA LOCAL INFILE '{file}' INTO TABLE t", True),
    (
        "LOAD",
        "LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE t (id, @b) SET v = CONCAT(@b, @a)",
        True,
    ),
    ("INSERT", "CALL p()", True),  # logged as the statement that it ran
    ("SELECT", "SELECT f()", False),  # logged as the call
]
SAFE = [CHANGES[index] for index in (0, 4, 5, 7)]  # what MIXED does not turn into rows


@pytest.fixture
def lines(tmp_path: Path, server: Server) -> Iterator[Path]:
    file = tmp_path / "lines.txt"
    file.write_text("1\tone\n2\ttwo\n")
    before = server.variable("local_infile")
    server.execute("SET GLOBAL local_infile = 1")
    yield file
    server.execute(f"SET GLOBAL local_infile = {before}")


def _prepare(server: Server, database: str) -> None:
    server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(30)) ENGINE=InnoDB",
        "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(30)) ENGINE=InnoDB",
        "INSERT INTO other VALUES (1, 'o')",
        "CREATE PROCEDURE p() INSERT INTO t VALUES (77, @a)",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
        "BEGIN INSERT INTO t VALUES (88, 'f'); RETURN 1; END",
    )


@pytest.mark.parametrize("binlog_format", ["STATEMENT", "MIXED"])
def test_b14_statement_format_changes_of_a_captured_table_stop_with_kind_and_setting(
    server: Server, fresh_database: str, lines: Path, binlog_format: str
) -> None:
    _prepare(server, fresh_database)
    changes = CHANGES if binlog_format == "STATEMENT" else SAFE
    server.flush_journal()
    with server.root_connection(database=fresh_database, local_infile=True) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SET SESSION binlog_format = {binlog_format}, @a = 'user variable'")
        for _, statement, _ in changes:
            cursor.execute(statement.format(file=lines))
    chunk = closed_journal(server)
    t, elsewhere = (fresh_database, "t"), ("elsewhere", "z")
    found = decisions(chunk, lambda _, table: table == "t", [t])
    assert len(found) == len(changes)
    for (kind, statement, told), (said, outcome) in zip(changes, found, strict=True):
        assert said.unknown_variable == -1
        assert isinstance(outcome, ContentUnknownError), statement
        assert f"the journal holds {kind} as a statement" in outcome.what
        assert ("instead of rows" in outcome.what) is told
        assert outcome.setting == "binlog_format"
        assert "SET GLOBAL binlog_format = 'ROW'" in outcome.next_step
        assert outcome.table == f"{fresh_database}.t"
        assert outcome.journal == chunk.journal
        assert outcome.offset is not None
    # The same statements where a table of another database is captured: MySQL's events list theirs.
    for (_, statement, _), (_, outcome) in zip(
        changes, decisions(chunk, lambda _, table: table == "z", [elsewhere]), strict=True
    ):
        assert isinstance(outcome, CdcError) is (server.flavor == "mariadb"), statement
    if binlog_format == "STATEMENT":
        types = set(chunk.events["event_type"].tolist())
        assert {
            EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.BEGIN_LOAD_QUERY,
            EventType.EXECUTE_LOAD_QUERY,
        } <= types  # fmt: skip


def test_b14_truncate_is_ddl_in_every_format(server: Server, fresh_database: str) -> None:
    _prepare(server, fresh_database)
    server.flush_journal()
    server.execute_all(
        f"USE `{fresh_database}`", "SET SESSION binlog_format = STATEMENT", "TRUNCATE TABLE t"
    )
    server.new_session()
    ((said, outcome),) = decisions(closed_journal(server), lambda *_: True)
    assert said.sql.upper() == "TRUNCATE TABLE T"
    assert not isinstance(outcome, CdcError)
    assert outcome.statement.verb.startswith("TRUNCATE")


def test_b14_load_data_in_several_blocks_is_one_statement(
    server: Server, fresh_database: str, tmp_path: Path, lines: Path
) -> None:
    """A file larger than a block: BEGIN_LOAD_QUERY, APPEND_BLOCK ..., EXECUTE_LOAD_QUERY."""
    _prepare(server, fresh_database)
    file = tmp_path / "many.txt"
    file.write_text("".join(f"{n}\t{'x' * 20}\n" for n in range(1, 12_000)))
    server.flush_journal()
    with server.root_connection(database=fresh_database, local_infile=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t")
    chunk = closed_journal(server)
    assert EventType.APPEND_BLOCK in chunk.events["event_type"]
    ((said, outcome),) = decisions(chunk, lambda *_: True)
    assert said.sql.startswith("LOAD DATA")
    assert said.database == fresh_database
    assert isinstance(outcome, ContentUnknownError)
