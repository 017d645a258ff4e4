"""Generated columns follow the DDL of their bases on the server: no decision says that their values
stay (K23)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.errors import UnsupportedDdlError
from cdc_pipeline.schema.catalog import catalog
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import Decision, KnownTable, StatementContext
from cdc_pipeline.schema.generated import GeneratedColumn, generated_column
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import SchemaHistory
from cdc_pipeline.schema.source_table import SourceTable
from cdc_pipeline.schema.target_spec import RecordedSource
from cdc_pipeline.schema.types import target_columns
from tests.schema.history.reading import Reading
from tests.schema.journal import Said, read_journal
from tests.servers import Server
from tests.support.live_source import live_source

MODES = SqlModes(
    strict=True, trims_char=True, explicit_defaults_for_timestamp=True, ansi_quotes=False
)


def state_after(*statements: str, is_mariadb: bool = False) -> SourceTable:
    history = SchemaHistory()
    for number, sql in enumerate(statements):
        logged = LoggedStatement(
            parse_statement(sql, "d", is_mariadb=is_mariadb, modes=MODES), pack_seq(1, 1, number)
        )
        apply(history, logged, lambda _database, _table: True)
    version = SchemaHistory.from_json(history.to_json()).at("d", "t", pack_seq(1, 1, 99))
    assert version is not None
    assert version.schema is not None
    return SourceTable(version.schema, version.charset or "utf8mb4", "utf8mb4", version.generated)


def decided(sql: str, state: SourceTable, *, is_mariadb: bool = False, **policy: Any) -> Decision:
    known = KnownTable(
        RecordedSource(columns=target_columns(state.schema), key=state.schema.key_names),
        name="d.t",
        policy=SchemaChangePolicy(**policy),
    )
    return decide(
        StatementContext(
            parse_statement(sql, "d", is_mariadb=is_mariadb, modes=MODES),
            captured=lambda _database, _table: True,
            known=lambda _database, _table: known,
            before=lambda _database, _table: state,
        )
    )


# columns | what changes a base of theirs
CHANGED = [
    (
        "c VARCHAR(10) CHARACTER SET latin1, g INT AS (LENGTH(c))",
        "MODIFY c VARCHAR(10) CHARACTER SET utf8mb4",
    ),
    (
        "c VARCHAR(10) CHARACTER SET latin1, g INT AS (LENGTH(c))",
        "CONVERT TO CHARACTER SET utf8mb4",
    ),
    ("c VARCHAR(10), g INT AS (c = 'A')", "MODIFY c VARCHAR(10) COLLATE utf8mb4_bin"),
    ("c ENUM('a','b'), g INT AS (c+0) STORED", "MODIFY c ENUM('b','a')"),
    ("c INT, g VARCHAR(30) AS (CONCAT(c)) VIRTUAL", "MODIFY c DECIMAL(12,2)"),
    ("c DATE, g VARCHAR(30) AS (CONCAT(`c`))", "CHANGE COLUMN C d DATETIME"),
    ("c INT UNSIGNED, g VARCHAR(30) AS (CONCAT(c))", "MODIFY c INT UNSIGNED ZEROFILL"),
    ("c INT, g INT AS (c + 1), h INT AS (g + 1)", "MODIFY g BIGINT AS (c + 1)"),
    ("`größe` INT, g INT AS (GRÖSSE + 1)", "MODIFY größe BIGINT"),
    ("c INT DEFAULT 5, g INT AS (DEFAULT(c)) STORED", "ALTER c SET DEFAULT 6"),
    ("c INT, x INT, g DECIMAL(20,9) AS (x / c) STORED", "ADD y INT"),
    ("c TIMESTAMP NULL, g DATETIME AS (c) STORED", "ADD y INT, ALGORITHM=COPY"),
    ("c INT, g INT AS (c) STORED", "ADD y INT AS (c + 2)"),
]
KEPT = [
    ("c INT, x INT, g VARCHAR(30) AS (CONCAT(c))", "MODIFY x BIGINT"),
    ("c INT, g VARCHAR(30) AS (CONCAT(c))", "MODIFY c INT NOT NULL DEFAULT 5 COMMENT 'base' FIRST"),
    ("c DECIMAL(9,2), g VARCHAR(30) AS (CONCAT(c)) STORED", "MODIFY c DECIMAL(9,2) NOT NULL"),
    (
        "c INT, g VARCHAR(30) AS (CONCAT(c)), n VARCHAR(5)",
        "CONVERT TO CHARACTER SET latin1, DROP COLUMN g",
    ),
    ("c INT, g VARCHAR(30) AS (CONCAT(c))", "MODIFY c BIGINT, DROP COLUMN g"),
    ("c INT, x INT, g DECIMAL(20,9) AS (x / c) STORED", "ADD y INT, ALGORITHM=INSTANT"),
    ("c INT, x INT, g DECIMAL(20,9) AS (x / c) STORED", "ADD INDEX (x)"),
    ("c INT, x INT, g DECIMAL(20,9) AS (x / c) VIRTUAL", "ADD y INT"),
    ("c INT, x INT, g INT AS (x * c + MOD(x, 7)) STORED", "ADD y INT"),
]


@pytest.mark.parametrize(("columns", "change"), CHANGED)
def test_k23_a_change_of_a_base_is_never_said_to_leave_the_table_as_it_is(
    columns: str, change: str
) -> None:
    state = state_after(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) DEFAULT CHARSET=utf8mb4")
    with pytest.raises(UnsupportedDdlError, match="generated column") as caught:
        decided(f"ALTER TABLE t {change}", state, incompatible="new_column")
    assert caught.value.next_step
    # Without the generated column the same statement passes, but for those that are about generated
    # columns alone.
    if "AS (" not in change and "SET DEFAULT" not in change:
        base = columns.partition(", g ")[0]
        decided(
            f"ALTER TABLE t {change}",
            state_after(f"CREATE TABLE t (id INT PRIMARY KEY, {base}) CHARSET=utf8mb4"),
        )


@pytest.mark.parametrize(("columns", "change"), KEPT)
def test_k23_what_no_generated_column_is_made_of_changes_as_before(
    columns: str, change: str
) -> None:
    state = state_after(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) DEFAULT CHARSET=utf8mb4")
    assert decided(f"ALTER TABLE t {change}", state).ddl.decision in ("applied", "recorded")


def test_k23_generated_columns_are_followed_through_ddl() -> None:
    create = (
        "CREATE TABLE s (id INT PRIMARY KEY, c INT, d INT, g INT AS (c + 1), h INT AS (id) STORED)"
    )
    steps = (
        create,
        "CREATE TABLE t LIKE s",
        "ALTER TABLE t RENAME COLUMN c TO x",
        "ALTER TABLE t CHANGE d e INT",
    )
    assert state_after(*steps).generated == (
        GeneratedColumn("g", ("x",), True),
        GeneratedColumn("h", ("id",), True),
    )
    later = (*steps, "ALTER TABLE t MODIFY g INT AS (e), DROP h, ADD k INT AS (x / 2) STORED",
        "RENAME TABLE t TO u",
             "RENAME TABLE u TO t")  # fmt: skip
    assert state_after(*later).generated == (
        GeneratedColumn("g", ("e",), True),
        GeneratedColumn("k", ("x",), False),
    )
    assert state_after(*later, "ALTER TABLE t MODIFY g INT, MODIFY k INT").generated == ()


def test_k23_a_table_that_may_have_generated_columns_stops() -> None:
    """Where nobody knows, a changed type stops the table (K23)."""
    known = state_after("CREATE TABLE t (id INT PRIMARY KEY, c INT, v VARCHAR(9))")
    state = SourceTable(known.schema, known.charset)
    with pytest.raises(UnsupportedDdlError, match="unknown whether"):
        decided("ALTER TABLE t MODIFY c BIGINT", state)
    for harmless in ("MODIFY c INT NOT NULL", "ADD y INT", "DROP COLUMN v", "RENAME COLUMN v TO w"):
        decided(f"ALTER TABLE t {harmless}", state)


def test_k23_the_catalogs_expressions_are_read_by_their_words() -> None:
    """A literal in it may hold quotes of any kind: a name in it counts, none is missed (K23)."""
    rows = [
        {"table_schema": "d", "table_name": "t", "column_name": name, "column_type": kind,
            "character_set_name": None,
         "is_nullable": "YES", "extra": extra, "expression": expression}
        for name, kind, extra, expression in (
            ("a", "int", "", ""), ("b", "int", "DEFAULT_GENERATED", None), ("c d", "int", "", ""),
            ("g", "int", "VIRTUAL GENERATED", "concat(_utf8mb4\\'x`\\',`a`)"),
            ("h", "int", "STORED GENERATED", "`A`/2"),
        )
    ]  # fmt: skip
    table = {"table_schema": "d", "table_name": "t", "table_type": "BASE TABLE",
             "engine": "InnoDB", "collation": "utf8mb4_bin"}  # fmt: skip
    found = catalog(columns=rows, keys=(), tables=[table], databases={}, is_mariadb=False)
    assert found.generated == {
        ("d", "t"): (
            GeneratedColumn("g", ("a", "c d"), True),
            GeneratedColumn("h", ("a", "c d"), False),
        )
    }


# -- on servers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["STORED", "VIRTUAL"])
@pytest.mark.parametrize(
    ("column", "value", "expression", "change"),
    [
        (
            "c VARCHAR(9) CHARACTER SET latin1",
            "'é'",
            "INT AS (LENGTH(c))",
            "MODIFY c VARCHAR(9) CHARACTER SET utf8mb4",
        ),
        ("c ENUM('a','b')", "'a'", "INT AS (c+0)", "MODIFY c ENUM('b','a')"),
        ("c INT", "5", "VARCHAR(30) AS (CONCAT(c))", "MODIFY c DECIMAL(12,2)"),
        ("c DATE", "'2024-02-29'", "VARCHAR(30) AS (CONCAT(c))", "MODIFY c DATETIME"),
    ],
    ids=["charset", "labels", "decimal", "datetime"],
)
def test_k23_a_generated_column_follows_its_base_at_the_server_so_the_table_stops(
    server: Server,
    fresh_database: str,
    storage: str,
    column: str,
    value: str,
    expression: str,
    change: str,
) -> None:
    """F3: the values change without a row event, and the decision says so (K23)."""
    server.execute_all(
        f"USE `{fresh_database}`",
        f"CREATE TABLE t (id INT PRIMARY KEY, {column}, g {expression} {storage}) "
        "DEFAULT CHARSET=utf8mb4",
        f"INSERT INTO t (id, c) VALUES (1, {value})",
    )
    before = server.query(f"SELECT g FROM `{fresh_database}`.t")
    server.execute(f"ALTER TABLE t {change}")
    assert server.query(f"SELECT g FROM `{fresh_database}`.t") != before
    is_mariadb = server.flavor == "mariadb"
    create, alter = (
        said.sql for said in read_journal(server) if isinstance(said, Said) and " t " in said.sql
    )
    with pytest.raises(UnsupportedDdlError, match="generated column `g`"):
        decided(alter, state_after(create, is_mariadb=is_mariadb), is_mariadb=is_mariadb)


def test_k23_a_stored_column_is_computed_again_by_a_copy(
    mysql_server: Server, mysql_database: str
) -> None:
    """One that asks the session for something is not steady: MySQL's copy proves it (K23)."""
    mysql_server.execute_all(
        f"USE `{mysql_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, g DECIMAL(20,10) AS (a / 3) STORED)",
        "INSERT INTO t (id, a) VALUES (1, 1)",
    )
    before = mysql_server.query("SELECT g FROM t")
    mysql_server.execute_all(
        "SET div_precision_increment = 9", "ALTER TABLE t ADD b INT, ALGORITHM=COPY"
    )
    assert mysql_server.query("SELECT g FROM t") != before
    assert not generated_column("g", "(a / 3)", (), is_stored=True).is_steady


def test_k23_f62_a_table_map_that_agrees_leaves_generated_columns_known(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """Numbers have no charset, whatever the table's is: no map contradicts that (K23)."""
    reading = Reading(server, fresh_database, tmp_path)
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9), b BLOB, g INT AS (LENGTH(c)) VIRTUAL) "
        "CHARACTER SET utf8mb4",
        "INSERT INTO t (id, c) VALUES (1, 'é')",
    )
    reading.run()
    stored = reading.history().at(fresh_database, "t", pack_seq(1, *reading.at.order))
    assert stored is not None
    assert stored.generated == (GeneratedColumn("g", ("c",), True),)


def test_k23_the_server_is_asked_for_generated_columns_that_no_table_map_tells(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """With full metadata maps tell a table; the catalog tells its generated columns (K23)."""
    server.execute_all(
        f"USE `{fresh_database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9), n INT, g INT AS (LENGTH(c)) VIRTUAL)",
        "CREATE TABLE u (id INT PRIMARY KEY, c VARCHAR(9))",
    )
    reading = Reading(server, fresh_database, tmp_path)
    server.execute_all("INSERT INTO t (id, c) VALUES (1, 'é')", "INSERT INTO u VALUES (1, 'a')")
    reading.run()
    stored = reading.history().at(fresh_database, "t", pack_seq(1, *reading.at.order))
    assert stored is not None
    assert stored.generated is None

    def generated(table: str, journal: str, offset: int) -> Any:
        state = reading.schemas_at(reading.at).before(fresh_database, table, journal, offset)
        assert state is not None
        return state.generated

    end = reading.at.journal, reading.at.offset
    assert generated("t", *end) == (GeneratedColumn("g", ("c",), True),)
    assert generated("u", *end) == ()
    # A statement that is the table's last one: the catalog behind it tells what was before.
    server.execute("ALTER TABLE t MODIFY c VARCHAR(20) CHARACTER SET latin1, ADD h INT")
    placed = live_source(server).catalog(
        lambda database, _: database == fresh_database, since=reading.at
    )
    assert placed is not None
    first = placed.last_ddl[fresh_database, "t"]
    assert generated("t", *first) == (GeneratedColumn("g", ("c",), True),)
    # Of two statements behind one another the first one finds a catalog that may be another by
    # then.
    server.execute("ALTER TABLE t ADD k INT")
    assert generated("t", *first) is None
