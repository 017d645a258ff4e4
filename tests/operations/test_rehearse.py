"""What is rehearsed is what then happens, over a real server's log."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.operations.rehearse.rehearse import rehearse
from cdc_pipeline.operations.rehearse.script import Session, statements_of
from tests.campaigns.rehearsed.campaign import place_free
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.memory_shop import MemoryShop

TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, n INT, t VARCHAR(10))",
    "CREATE TABLE b (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE h (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 3)",
    "CREATE TABLE k (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE gone (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE old (id INT PRIMARY KEY, n INT)",
    *(f"INSERT INTO {name} (id, n) VALUES (1, 2)" for name in ("a", "b", "h", "k", "gone", "old")),
)
SCRIPT = """
-- a migration; its first statement
ALTER TABLE a ADD COLUMN c INT NOT NULL DEFAULT 7, ADD COLUMN other TEXT;
INSERT INTO a (id, n, c, other) VALUES (2, 3, 4, 'it''s ; one \\' value');
/* several; */ ALTER TABLE a MODIFY n BIGINT, ALGORITHM=COPY;
ALTER TABLE a CHANGE t u VARCHAR(20);
ALTER TABLE a DROP COLUMN u;
CREATE INDEX i ON a (n);
CREATE TABLE new_one (id INT PRIMARY KEY, at DATETIME(3));
INSERT INTO new_one VALUES (1, '2024-02-29 01:02:03.004');
ALTER TABLE new_one ADD COLUMN j JSON;
CREATE TABLE like_it LIKE new_one;
ALTER TABLE b ADD COLUMN x INT;
RENAME TABLE b TO c;
TRUNCATE TABLE h;
ALTER TABLE h ADD COLUMN y VARCHAR(5) DEFAULT 'y';
DROP TABLE gone;
CREATE TABLE gone (id INT PRIMARY KEY, other TEXT);
RENAME TABLE old TO spare, c TO old;
DELIMITER //
CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END//
DELIMITER ;
DROP PROCEDURE p;
ALTER TABLE k ADD COLUMN more INT;
INSERT INTO a (id, n) VALUES (9, 9)
"""


def shop_on(server: Server, database: str, folder: Path) -> MemoryShop:
    return MemoryShop(
        PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": live(server),
                "tables": {"include": [f"{database}.*"]},
                "start": here(server),
                "targets": [{"tables": [f"{database}.h"], "mode": "history"}],
                "sink": {"lake_path": folder / "lake"},
            }
        )
    )


@pytest.fixture
def shop(server: Server, fresh_database: str, tmp_path: Path) -> MemoryShop:
    shop = shop_on(server, fresh_database, tmp_path)
    server.execute(f"USE `{fresh_database}`")
    server.execute_all(*TABLES)
    shop.run()
    return shop


def test_what_is_rehearsed_is_what_then_happens(
    shop: MemoryShop, server: Server, fresh_database: str
) -> None:
    rehearsal = rehearse(shop.config, SCRIPT, cursors=shop.cursors, database=fresh_database)
    assert rehearse(shop.config, SCRIPT, cursors=shop.cursors, database=fresh_database) == rehearsal
    assert rehearsal.warnings == ()
    assert rehearsal.is_harmless
    script = [sql for _, sql in statements_of(SCRIPT)]
    assert [made.line for made in rehearsal.statements] == [
        line for line, _ in statements_of(SCRIPT)
    ]
    assert {made.outcome for made in rehearsal.statements} == {
        "applied", "recorded", "ignored", "rows",
    }  # fmt: skip

    server.execute_all(*script)
    report = shop.run()
    assert shop.suspended() == {}
    # Servers log some texts in words of their own.
    logged = [
        (ddl.decision, ddl.reason, ddl.policy) for ddl in report.ddl if ddl.decision != "ignored"
    ]
    assert logged == [
        (made.outcome, made.reason, made.policy)
        for made in rehearsal.statements
        if made.outcome in ("applied", "recorded")
    ]


def test_k31_f175_behind_the_copy_of_a_query_a_table_is_suspended_as_in_the_run(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    shop = shop_on(server, fresh_database, tmp_path)
    server.execute(f"USE `{fresh_database}`")
    server.execute_all(
        "CREATE TABLE a (id INT PRIMARY KEY, t VARCHAR(10))", "INSERT INTO a VALUES (1, '7')"
    )
    shop.run()
    script = "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT * FROM a; ALTER TABLE a MODIFY t INT"
    told = rehearse(shop.config, script, cursors=shop.cursors, database=fresh_database).statements
    assert [made.outcome for made in told] == ["rows", "suspends"]
    server.execute_all(*script.split("; "))
    with pytest.raises(TargetSuspendedError):
        shop.run()
    assert list(shop.suspended()) == [f"{fresh_database}.a"]


def test_k13_f146_the_copy_of_a_query_comes_with_its_rows(
    shop: MemoryShop, server: Server, fresh_database: str
) -> None:
    script = "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT * FROM a; DROP TABLE copied"
    made, dropped = rehearse(
        shop.config, script, cursors=shop.cursors, database=fresh_database
    ).statements
    assert (made.outcome, dropped.outcome) == ("rows", "uncertain")
    server.execute(script.split(";")[0])
    shop.run()
    assert shop.suspended() == {}
    assert f"{fresh_database}.copied" in shop.last_cut().tables


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("ALTER TABLE k DROP PRIMARY KEY", "suspends"),
        ("ALTER TABLE a ADD COLUMN `odd ; name` INT", "suspends"),
        ("ALTER TABLE h ADD COLUMN `__END_AT` INT", "suspends"),
    ],
)
def test_what_would_suspend_a_table_does(
    shop: MemoryShop, server: Server, fresh_database: str, statement: str, outcome: str
) -> None:
    rehearsal = rehearse(shop.config, f"USE {fresh_database}; {statement}", cursors=shop.cursors)
    used, made = rehearsal.statements
    assert (used.outcome, made.outcome) == ("ignored", outcome)
    assert not rehearsal.is_harmless
    server.execute(statement)
    with pytest.raises(TargetSuspendedError):
        shop.run()
    assert set(shop.suspended()) == set(made.suspends)
    assert shop.cursors.cursor is not None
    for name in made.suspends:
        held = shop.cursors.cursor.suspended[name]
        assert held.next_step == made.next_step
        assert made.reason == place_free(held.what)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SET/**/sql_log_bin=(0)", {"is_logged": False}),
        ("SET @@session . sql_log_bin := OFF", {"is_logged": False}),
        ("SET sql_log_bin = @saved", {"is_logged": None}),
        ("SET sql_log_bin = DEFAULT", {}),
        ("SET GLOBAL  sql_mode = 'ANSI_QUOTES', sql_mode = ''", {}),
        ("SET @@GLOBAL.sql_mode = '', sql_mode = ANSI_QUOTES", {"sql_mode": 4}),
        ("SET GLOBAL max_connections = 5, SESSION `sql_mode` = 'ANSI_QUOTES'", {"sql_mode": 4}),
        ("SET sql_mode = 'ANSI'", {"sql_mode": None}),
        ("SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')", {"sql_mode": None}),
        ("SET sql_mode = 4, time_zone = '+02:00'", {"sql_mode": 4, "time_zone": "+02:00"}),
        ("SET @sql_mode = 'ANSI_QUOTES', @x = (1, sql_log_bin = 0)", {}),
        ("SET NAMES utf8mb4", {}),
        ("USE `a``b`", {"database": "a`b"}),
        ("use my-db;", {"database": "my-db"}),
    ],
)
def test_a_session_is_what_its_statements_set(sql: str, expected: dict[str, object]) -> None:
    session = Session("d", sql_mode=0, time_zone="SYSTEM")
    assert session.after(sql, is_mariadb=False) == replace(session, **expected)


def test_what_a_text_does_not_show_is_uncertain(shop: MemoryShop, fresh_database: str) -> None:
    script = """
        SET SESSION sql_mode = 'ANSI_QUOTES';
        ALTER TABLE "a" ADD COLUMN "c" INT; -- a name
        SET sql_mode = '';
        ALTER TABLE a ADD COLUMN d INT DEFAULT "5";
        SET GLOBAL sql_mode = 'ANSI_QUOTES', @x = 'sql_log_bin = 0';
        CALL p(); EXECUTE s;
        SET sql_log_bin = 0;
        ALTER TABLE a ADD COLUMN e INT;
        UPDATE a SET n = 1;
        CREATE TABLE other.t (a INT);
        SET sql_log_bin = 1;
        UPDATE a JOIN b SET a.n = 1;
        CREATE TABLE other.t (a INT);
        SET sql_log_bin = @saved;
        ALTER TABLE a ADD COLUMN f INT;
        UPDATE a SET n = 1;
        CREATE TABLE other.t (a INT);
        SET sql_log_bin = 1;
        ALTER TABLE a DROP COLUMN f
    """
    rehearsal = rehearse(shop.config, script, cursors=shop.cursors, database=fresh_database)
    assert [(made.line, made.outcome) for made in rehearsal.statements] == [
        (2, "ignored"),
        (3, "applied"),
        (4, "ignored"),
        (5, "applied"),
        (6, "ignored"),
        (7, "uncertain"),
        (7, "uncertain"),
        (8, "ignored"),
        (9, "not_logged"),
        (10, "not_logged"),
        (11, "ignored"),
        (12, "ignored"),
        (13, "rows"),
        (14, "ignored"),
        (15, "ignored"),
        (16, "uncertain"),
        (17, "uncertain"),
        (18, "ignored"),
        (19, "ignored"),
        (20, "recorded"),
    ]
    _, added, *_ = (made for made in rehearsal.statements if made.line >= 15)
    assert added.changes, "it is decided as if it were logged"
    assert "if it is: applied" in added.reason


@pytest.mark.parametrize(
    ("setting", "outcomes"),
    [("1", ["stops", "not_reached"]), ("@saved", ["uncertain", "uncertain"])],
)
def test_what_follows_a_stop_is_as_certain_as_the_stop(
    shop: MemoryShop, fresh_database: str, setting: str, outcomes: list[str]
) -> None:
    """A run stops where no captured table would follow any more."""
    names = [match[1] for sql in TABLES if (match := re.match(r"CREATE TABLE (\w+)", sql))]
    script = [f"ALTER TABLE {name} ADD COLUMN `odd ; name` INT" for name in names]
    script = [f"SET sql_log_bin = {setting}", *script, "UPDATE a SET n = 1"]
    rehearsal = rehearse(
        shop.config, ";\n".join(script), cursors=shop.cursors, database=fresh_database
    )
    assert [made.outcome for made in rehearsal.statements[-2:]] == outcomes
    assert "stops every run" in rehearsal.statements[-1].reason


def test_k26_what_is_shown_of_a_statement_has_no_secret(shop: MemoryShop) -> None:
    rehearsal = rehearse(shop.config, "CREATE USER u IDENTIFIED BY 'canary'", cursors=shop.cursors)
    assert "canary" not in rehearsal.model_dump_json()


def test_ddl_that_no_run_has_applied_is_told(
    shop: MemoryShop, server: Server, fresh_database: str
) -> None:
    server.execute("ALTER TABLE a ADD COLUMN c INT")
    script = "ALTER TABLE a ADD COLUMN c INT"
    (warning,) = rehearse(
        shop.config, script, cursors=shop.cursors, database=fresh_database
    ).warnings
    assert f"the log has DDL of {fresh_database}.a that no run has applied" in warning
    shop.run()
    assert rehearse(shop.config, "DROP TABLE b", cursors=shop.cursors).warnings == ()


def test_a_batch_that_no_run_has_finished_is_told(shop: MemoryShop, server: Server) -> None:
    server.execute("INSERT INTO a (id, n) VALUES (7, 7)")
    shop.stop_at("after_record")
    (warning, *_) = rehearse(shop.config, "DROP TABLE b", cursors=shop.cursors).warnings
    assert "is recorded but unfinished, so that the outcome is uncertain" in warning


def test_a_script_is_divided_as_the_servers_clients_do() -> None:
    script = """-- first; a comment
/* another; */ ALTER TABLE a ADD b INT; /*!40101 SET sql_mode='x;y' */;
DELIMITER $$
CREATE PROCEDURE p() BEGIN SELECT 1; END$$
delimiter ;
INSERT INTO t VALUES ('a;\\';b', `c;d`, "e;", 'it''s;', ''); # tail;
;;
DROP TABLE x"""
    assert list(statements_of(script)) == [
        (2, "ALTER TABLE a ADD b INT"),
        (2, "/*!40101 SET sql_mode='x;y' */"),
        (4, "CREATE PROCEDURE p() BEGIN SELECT 1; END"),
        (6, "INSERT INTO t VALUES ('a;\\';b', `c;d`, \"e;\", 'it''s;', '')"),
        (8, "DROP TABLE x"),
    ]
    assert list(statements_of("SELECT 'open; ")) == [(1, "SELECT 'open;")]
    assert list(statements_of(" ; -- nothing")) == []
