"""DDL as both servers log it: decided, applied to a model of the lake, and confirmed by the table
maps (K13)."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import ContentUnknownError, UnsupportedDdlError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import confirm, decide
from cdc_pipeline.schema.evolution.statement_context import KnownTable, StatementContext
from cdc_pipeline.schema.evolution.steps import FillColumns
from cdc_pipeline.schema.types import delta_type
from tests.schema.ddl.test_servers_agree import BOTH, MARIADB, MYSQL, read_value
from tests.schema.journal import Deleted, Said, read_journal
from tests.schema.spark_names import spark_name
from tests.servers import Server


class Lake:
    """A model of the targets: what decisions make of them."""

    def __init__(self, server: Server, database: str) -> None:
        self.database = database
        self.is_mariadb = server.flavor == "mariadb"
        self.tables: dict[str, KnownTable] = {}
        self.backfills: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def captured(self, database: str, _table: str) -> bool:
        return database == self.database

    def apply(self, said: Said) -> str:
        decision = decide(
            StatementContext(
                parse_statement(
                    said.sql, said.database, is_mariadb=self.is_mariadb, modes=said.modes
                ),
                captured=self.captured,
                known=lambda _, table: self.tables.get(table),
                targets_in=lambda database: self.tables if database == self.database else (),
                journal="binlog.000001",
                offset=said.offset,
                reachable=lambda: [(self.database, table) for table in self.tables],
            )
        )
        for create in decision.creates:
            self.tables[create.table[1]] = KnownTable(create.source)
        for change in decision.changes:
            self.tables[change.table[1]] = change.known
            fills = [step for step in change.steps if isinstance(step, FillColumns)]
            self.backfills[change.table[1]] = fills[-1].values[-1][2] if fills else "NULL"
        return decision.ddl.decision


def _decoded(deleted: Deleted) -> Any:
    rows = decode_rows(
        [RowsSelection(deleted.chunk, np.array([deleted.row], np.int64))], deleted.schema, epoch=0
    )
    assert not rows.invalid
    value = rows.before.column("c")[0].as_py()
    return value.astimezone(UTC).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


@pytest.mark.parametrize("flavor", ["mysql", pytest.param("mariadb", marks=pytest.mark.whole)])
def test_k13_every_added_column_is_confirmed_and_old_rows_read_as_back_filled(
    request: pytest.FixtureRequest, flavor: str
) -> None:
    server: Server = request.getfixturevalue(f"{flavor}_server")
    database: str = request.getfixturevalue(f"{flavor}_database")
    lines = BOTH + (MYSQL if flavor == "mysql" else MARIADB)
    server.flush_journal()
    with server.root_connection(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET time_zone = '+00:00'")
        for number, line in enumerate(lines):
            cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY) DEFAULT CHARSET=utf8mb4")
            cursor.execute(f"INSERT INTO t{number} VALUES (1)")
            cursor.execute(f"ALTER TABLE t{number} ADD COLUMN c {line.removeprefix('refused: ')}")
            cursor.execute(f"DELETE FROM t{number}")
            connection.commit()
    lake = Lake(server, database)
    values: dict[str, Any] = {}
    for entry in read_journal(server):
        if isinstance(entry, Said):
            try:
                lake.apply(entry)
            except UnsupportedDdlError as error:
                lake.refused[str(error.table).partition(".")[2]] = error.what
        elif isinstance(entry, Deleted):
            values[entry.schema.table] = _decoded(entry)
        elif entry.table not in lake.refused:
            known = lake.tables[entry.table]
            confirm(known.source.columns, known.source.key, entry)
            for column in entry.columns:
                assert spark_name(arrow_type(column)) == delta_type(column)
    assert all("new snapshot" in what for what in lake.refused.values())
    for number, line in enumerate(lines):
        assert (f"t{number}" in lake.refused) == line.startswith("refused: "), line
        if not line.startswith("refused: "):
            assert read_value(lake.backfills[f"t{number}"]) == values[f"t{number}"], line


def _tables(server: Server, database: str, *statements: str) -> list[Said | TableSchema | Deleted]:
    server.flush_journal()
    server.execute_all(f"USE `{database}`", *statements)
    return list(read_journal(server))


CREATES = [
    "CREATE TABLE t (a INT, b VARCHAR(10), PRIMARY KEY (b, a))",
    "CREATE TABLE t (`a` INT NOT NULL, `b` INT, PRIMARY KEY USING BTREE (`b` DESC), KEY (a), "
    "UNIQUE KEY u (a, b))",
    "CREATE TABLE IF NOT EXISTS t (a SERIAL PRIMARY KEY, b TEXT CHARACTER SET latin1) COMMENT='x, "
    "(y' ENGINE=InnoDB",
    "CREATE TABLE t (A INT, b TEXT, primary key (a), FULLTEXT (b)) CHARSET = utf8mb4",
    "CREATE TABLE t (a INT PRIMARY KEY, b TEXT, c CHAR(3), d ENUM('x')) DEFAULT "
    "CHARACTER SET binary",
    "CREATE TABLE t (a INT KEY, b INT AS (a + 1) STORED, c INT GENERATED ALWAYS AS (a) "
    "VIRTUAL COMMENT 'z')",
    "CREATE TABLE t (a VARCHAR(300), b INT CHECK (b > 0), PRIMARY KEY (a(10)), CONSTRAINT "
    "k CHECK (b < 9))",
    "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)) PARTITION BY HASH (a) PARTITIONS 2",
    "CREATE TABLE `t` (a INT PRIMARY KEY, `b,c` INT) -- c",
]


@pytest.mark.parametrize("sql", CREATES[:-1])
def test_k13_create_table_is_confirmed_by_its_table_map(
    server: Server, fresh_database: str, sql: str
) -> None:
    lake = Lake(server, fresh_database)
    maps = 0
    for entry in _tables(server, fresh_database, "SET sql_mode = ''", sql,
        "INSERT INTO t (a, b) VALUES (1, 2)" if
                         " AS (" not in sql else "INSERT INTO t (a) VALUES (1)"):  # fmt: skip
        if isinstance(entry, Said):
            lake.apply(entry)
        elif isinstance(entry, TableSchema):
            confirm(lake.tables["t"].source.columns, lake.tables["t"].source.key, entry)
            maps += 1
    assert maps == 1


SETUP = (
    "CREATE TABLE t (a INT PRIMARY KEY, b INT, c VARCHAR(10))",
    "CREATE TABLE p (a INT PRIMARY KEY, b INT) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS "
    "THAN (10), PARTITION p1 VALUES LESS THAN (20))",
)
# expected outcome | statements; the last one's outcome counts
OUTCOMES = """
applied | ALTER TABLE t ADD COLUMN d INT
applied | ALTER TABLE t ADD d INT, ADD INDEX i (d), COMMENT='x'
applied | ALTER TABLE t ADD (d INT, e INT DEFAULT 5)
applied | ALTER TABLE t ADD COLUMN d INT FIRST, ADD COLUMN e INT AFTER a, ALGORITHM=COPY
applied | CREATE TABLE n (a INT PRIMARY KEY)
recorded | CREATE TABLE n LIKE t
recorded | CREATE TABLE n (a INT)
recorded | CREATE INDEX i ON t (b)
recorded | CREATE INDEX i ON t (b) ; DROP INDEX i ON t
recorded | ALTER TABLE t ADD INDEX i (b), ADD UNIQUE u (b), ADD FULLTEXT f (c), ADD CONSTRAINT k CHECK (b > 0)
recorded | ALTER TABLE t ADD INDEX i (b) ; ALTER TABLE t RENAME INDEX i TO j
recorded | ALTER TABLE t ADD INDEX i (b) ; ALTER TABLE t DROP KEY i
recorded | ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (b) REFERENCES t (a) ON DELETE SET NULL ON UPDATE CASCADE
applied | ALTER TABLE t COMMENT 'x' ENGINE=InnoDB ROW_FORMAT=DYNAMIC, AUTO_INCREMENT = 100
recorded | ALTER TABLE t ORDER BY b
recorded | ALTER TABLE t FORCE
recorded | ALTER TABLE t ALTER COLUMN b SET DEFAULT 7
recorded | ALTER TABLE t ALTER b DROP DEFAULT
recorded | ALTER TABLE t DEFAULT CHARACTER SET latin1 COLLATE latin1_bin
recorded | ALTER TABLE p ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))
recorded | ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (20))
recorded | ALTER TABLE p REMOVE PARTITIONING
recorded | ALTER TABLE t PARTITION BY HASH (a) PARTITIONS 2
recorded | ANALYZE TABLE t
recorded | OPTIMIZE TABLE t
recorded | DROP TABLE IF EXISTS nothing
recorded | ALTER TABLE t DROP COLUMN b
refused | ALTER TABLE t MODIFY b BIGINT
refused | ALTER TABLE t CHANGE b d BIGINT
applied | ALTER TABLE t RENAME COLUMN b TO d
applied | ALTER TABLE t RENAME TO u
refused | ALTER TABLE t CONVERT TO CHARACTER SET latin1
refused | ALTER TABLE t DROP PRIMARY KEY
refused | ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)
refused | DROP INDEX `PRIMARY` ON t
applied | ALTER TABLE t ADD COLUMN d INT, DROP COLUMN c
refused | ALTER TABLE p TRUNCATE PARTITION p0
refused | ALTER TABLE p DROP PARTITION p1
refused | ALTER TABLE t ENGINE=MEMORY
applied | TRUNCATE t
recorded | DROP TABLE t
recorded | DROP TABLE IF EXISTS t, p
applied | RENAME TABLE t TO u
applied | RENAME TABLE t TO u, p TO t
recorded | CREATE DATABASE IF NOT EXISTS other ; CREATE TABLE other.o (a INT PRIMARY KEY) ; RENAME TABLE other.o TO q
refused | ALTER TABLE t ADD COLUMN d DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
ignored | CREATE VIEW v AS SELECT * FROM t
ignored | CREATE VIEW v AS SELECT * FROM t ; DROP VIEW v
ignored | CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.b = 1
ignored | CREATE PROCEDURE pr() SELECT 1
ignored | CREATE FUNCTION fu() RETURNS INT DETERMINISTIC RETURN 1
ignored | CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO TRUNCATE t
ignored | CREATE DATABASE IF NOT EXISTS other ; CREATE TABLE IF NOT EXISTS other.o2 (a INT) ; DROP TABLE other.o2
ignored | CREATE USER IF NOT EXISTS 'schema_test'@'%'
ignored | CREATE USER IF NOT EXISTS 'schema_test'@'%' ; GRANT SELECT ON *.* TO 'schema_test'@'%'
ignored | CREATE USER IF NOT EXISTS 'schema_test'@'%' ; DROP USER 'schema_test'@'%'
ignored | FLUSH PRIVILEGES
statement | SET SESSION binlog_format = 'STATEMENT' ; INSERT INTO t VALUES (1, 2, 'x')
statement | SET SESSION binlog_format = 'STATEMENT' ; UPDATE t SET b = 3 WHERE a = 1
statement | SET SESSION binlog_format = 'STATEMENT' ; DELETE FROM t
ignored | CREATE DATABASE IF NOT EXISTS other ; CREATE OR REPLACE VIEW v AS SELECT 1
""".strip().splitlines()  # noqa: E501
# MariaDB does not log a CREATE TABLE IF NOT EXISTS that found its table.
MYSQL_OUTCOMES = ["recorded | CREATE TABLE IF NOT EXISTS t (a INT)"]
MARIADB_OUTCOMES = """
applied | ALTER TABLE t ADD COLUMN IF NOT EXISTS d INT
applied | SET STATEMENT max_statement_time = 100 FOR ALTER TABLE t ADD COLUMN d INT
recorded | ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT
recorded | CREATE SEQUENCE s
applied | CREATE OR REPLACE TABLE t (a INT PRIMARY KEY)
refused | ALTER IGNORE TABLE t ADD UNIQUE (b)
refused | ALTER IGNORE TABLE t ADD CHECK (b > 1)
refused | ALTER IGNORE TABLE t PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (2))
recorded | ALTER TABLE t ADD SYSTEM VERSIONING
applied | ALTER TABLE t ADD COLUMN d VARCHAR(10) COMPRESSED
""".strip().splitlines()


@pytest.mark.parametrize(
    ("flavor", "line"),
    [("mysql", line) for line in OUTCOMES + MYSQL_OUTCOMES]
    + [("mariadb", line) for line in OUTCOMES + MARIADB_OUTCOMES],
)
def test_every_statement_as_it_is_logged_ends_in_its_decision(
    request: pytest.FixtureRequest, flavor: str, line: str
) -> None:
    server: Server = request.getfixturevalue(f"{flavor}_server")
    database: str = request.getfixturevalue(f"{flavor}_database")
    wanted, _, statements = line.partition(" | ")
    lake = Lake(server, database)
    outcome, said = "", None
    try:
        entries = _tables(server, database, *SETUP, *statements.split(" ; "))
    finally:
        server.execute_all("DROP DATABASE IF EXISTS other", "DROP USER IF EXISTS 'schema_test'@'%'")
    ends = ("BEGIN", "COMMIT")
    for entry in entries:
        if not isinstance(entry, Said) or entry.sql in ends:
            continue
        said = entry
        outcome = _outcome(lake, entry)
    assert said is not None
    assert outcome == wanted, said.sql
    statement = parse_statement(said.sql, said.database, is_mariadb=lake.is_mariadb)
    changes_target = wanted in ("applied", "refused") or "INDEX" in said.sql
    if changes_target:
        assert statement.is_isolated(lake.captured)
    if wanted in ("ignored", "statement"):
        assert not statement.is_isolated(lake.captured)


def _outcome(lake: Lake, said: Said) -> str:
    """The decision's word; for an error "refused" or "statement", once its parts are checked."""
    failure: UnsupportedDdlError | ContentUnknownError
    try:
        return lake.apply(said)
    except UnsupportedDdlError as error:
        failure, outcome = error, "refused"
    except ContentUnknownError as error:
        failure, outcome = error, "statement"
        assert (error.setting, error.table) == ("binlog_format", f"{lake.database}.t")  # noqa: PT017 - not all raise
    assert (failure.journal, failure.offset) == ("binlog.000001", said.offset)
    assert failure.next_step
    return outcome
