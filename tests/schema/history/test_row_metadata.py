"""Rows that were logged below full row metadata: what SELECT shows is what is decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.errors import MetadataMissingError, SchemaError
from cdc_pipeline.schema.history.history import Origin
from cdc_pipeline.source.archive.files import read_journal
from cdc_pipeline.targets.confirmed import confirmed
from tests.schema.history.reading import Reading, selected
from tests.servers import Server

# The servers' defaults. MINIMAL carries the same on both; MariaDB's is in the test of UUID and
# addresses.
LEVELS = [("mysql", "MINIMAL"), ("mariadb", "NO_LOG")]


@pytest.fixture(params=LEVELS, ids=["mysql-minimal", "mariadb-no_log"])
def below(request: pytest.FixtureRequest) -> Any:
    """A shared server that logs less than full row metadata while the test runs."""
    flavor, level = request.param
    server: Server = request.getfixturevalue(f"{flavor}_server")
    database: str = request.getfixturevalue(f"{flavor}_database")
    server.execute(f"SET GLOBAL binlog_row_metadata = '{level}'")
    server.new_session()
    server.execute(f"USE `{database}`")
    yield server, database
    server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


TABLE = (
    "CREATE TABLE t (id INT UNSIGNED NOT NULL, part SMALLINT UNSIGNED NOT NULL, u8 TINYINT "
    "UNSIGNED, i8 TINYINT, u24 MEDIUMINT UNSIGNED, u64 BIGINT UNSIGNED, d DECIMAL(12,3) UNSIGNED, "
    "f DOUBLE, y YEAR, l VARCHAR(20) CHARACTER SET latin1, own VARCHAR(30), c CHAR(5) CHARACTER "
    "SET cp1251, x TEXT CHARACTER SET utf16, e ENUM('a','ü','it''s','b\\\\c') CHARACTER SET "
    "latin1, s SET('x','ü','z') CHARACTER SET latin1, b BINARY(6), v VARBINARY(9), bl BLOB, at "
    "DATETIME(3), bi BIT(9), PRIMARY KEY (part, id))"
)
ROWS = (
    "INSERT INTO t VALUES (4294967295, 65535, 255, -128, 16777215, 18446744073709551615, "
    "999999999.999, -0.5, 2024, 'Äß\u0178', 'äő', 'жук', '漢字', 'ü', 'x,z', x'616200', x'00ff', "
    "x'80', '2024-02-29 01:02:03.456', b'101010101'), (1, 2, 0, 127, 1, 0, 0, 1e100, 1999, '', '', "
    "'', '', 'it''s', '', '', '', '', '1999-12-31 23:59:59.999', b'1'), (3, 4, NULL, NULL, NULL, "
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'b\\\\c', NULL, NULL, NULL, NULL, NULL, NULL)"
)


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of SELECT with BIT as a number and SET as the server writes it."""
    return [
        row | {"bi": None if row["bi"] is None else int.from_bytes(row["bi"], "big")}
        if "bi" in row
        else row
        for row in rows
    ]


@pytest.mark.mysql
@pytest.mark.mariadb
def test_every_value_is_what_select_shows(below: tuple[Server, str], tmp_path: Path) -> None:
    server, database = below
    server.execute_all("SET NAMES utf8mb4", TABLE)
    reading = Reading(server, database, tmp_path)
    reading.begin()
    server.execute(ROWS)
    reading.run()
    assert by_key(reading.of("t")) == shown(by_key(selected(server, database, "t")))
    (schema,) = reading.schemas
    assert schema.key_names == ("part", "id")
    assert [row["u8"] for row in by_key(reading.of("t"))] == [0, None, 255]
    assert {version.origin for version in reading.history().versions(database, "t")} == {
        Origin.CATALOG
    }


@pytest.mark.mysql
@pytest.mark.mariadb
def test_columns_of_a_ddl_are_those_of_full_metadata(
    below: tuple[Server, str], tmp_path: Path
) -> None:
    """The same table: by its CREATE TABLE under the lower level, and by its map under FULL."""
    server, database = below
    server.execute("SET NAMES utf8mb4")
    reading = Reading(server, database, tmp_path, asks=False)
    server.execute_all(
        f"ALTER DATABASE `{database}` CHARACTER SET latin2", TABLE, ROWS,
        "SET GLOBAL binlog_row_metadata = 'FULL'", "FLUSH BINARY LOGS",
    )  # fmt: skip
    server.execute("UPDATE t SET u8 = 7")
    reading.run()
    logged, full = reading.schemas
    assert logged == full
    assert [v.origin for v in reading.history().versions(database, "t")] == [Origin.DDL]


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("runs", [1, 2])
def test_ddl_in_mid_stream(below: tuple[Server, str], tmp_path: Path, runs: int) -> None:
    server, database = below
    server.execute(
        "CREATE TABLE m (id INT PRIMARY KEY, a INT, b INT UNSIGNED, c VARCHAR(9) "
        "CHARACTER SET latin1)"
    )
    reading = Reading(server, database, tmp_path)
    reading.begin()
    wanted: list[dict[str, Any]] = []
    steps = [
        ("m", ""),
        ("m", "ALTER TABLE m ADD COLUMN z INT UNSIGNED AFTER id, ADD COLUMN y INT FIRST"),
        ("m", "ALTER TABLE m DROP COLUMN a"),
        ("m", "ALTER TABLE m RENAME COLUMN b TO bb"),
        ("m", "ALTER TABLE m CHANGE z b INT UNSIGNED AFTER bb, MODIFY y BIGINT UNSIGNED AFTER id"),
        ("m", "ALTER TABLE m MODIFY c VARCHAR(9) CHARACTER SET utf8mb4 FIRST, ADD e ENUM('q','ü')"),
        ("n", "RENAME TABLE m TO n"),
        (
            "n",
            "ALTER TABLE n RENAME COLUMN b TO bb, RENAME COLUMN bb TO b, ADD UNIQUE "
            "(c), COMMENT 'x'",
        ),
    ]
    # After a rename the table has a new name, but its history goes on.
    for number, (table, ddl) in enumerate(steps):
        if ddl:
            server.execute(ddl)
        names = [
            row[0]
            for row in server.query(f"SHOW COLUMNS FROM `{table}`")
            if row[0] not in ("c", "e")
        ]
        base = {"b": 4000000000, "bb": 4100000000, "z": 4200000000}
        values = ", ".join(
            str(base.get(name, 0) + number * 10 + at) for at, name in enumerate(names)
        )
        server.execute(f"DELETE FROM `{table}`")
        server.execute(
            f"INSERT INTO `{table}` ({', '.join(names)}, c) VALUES ({values}, 'ä{number}')"
        )
        wanted += selected(server, database, table, "c")
        if runs == 2:
            reading.run()
    reading.run()
    inserted = [row for _, row in reading.rows if any(value is not None for value in row.values())]
    assert inserted == wanted


@pytest.mark.mysql
@pytest.mark.mariadb
def test_a_start_in_the_past_with_ddl_in_between(below: tuple[Server, str], tmp_path: Path) -> None:
    """The catalog of now is wrong for what came before the rename: that table alone stops."""
    server, database = below
    server.execute_all(
        "CREATE TABLE calm (id INT PRIMARY KEY, a INT UNSIGNED)",
        "CREATE TABLE moved (id INT PRIMARY KEY, a INT, b INT)",
    )
    calm, moved = (
        Reading(server, database, tmp_path / "calm"),
        Reading(server, database, tmp_path / "moved"),
    )
    server.execute("INSERT INTO calm VALUES (1, 4294967295)")
    calm.run()
    assert calm.of("calm") == selected(server, database, "calm")
    server.execute_all(
        "INSERT INTO moved VALUES (1, 10, 20)",
        "ALTER TABLE moved RENAME COLUMN a TO x, RENAME COLUMN b TO a",
        "ALTER TABLE moved RENAME COLUMN x TO b",
    )
    after = Reading(server, database, tmp_path / "after")
    server.execute("INSERT INTO moved VALUES (2, 30, 40)")
    with pytest.raises(MetadataMissingError, match="does not have full metadata") as caught:
        moved.run()
    assert caught.value.table == f"{database}.moved"
    assert "schema history" in str(caught.value)
    assert "binlog_row_metadata = 'FULL'" in str(caught.value)
    assert moved.of("moved") == []
    after.run()
    assert after.of("moved") == [{"id": 2, "b": 30, "a": 40}]


@pytest.mark.mysql
@pytest.mark.mariadb
def test_a_change_that_was_not_logged_is_a_contradiction(
    below: tuple[Server, str], tmp_path: Path
) -> None:
    server, database = below
    server.execute("CREATE TABLE k (id INT PRIMARY KEY, a INT)")
    reading = Reading(server, database, tmp_path)
    reading.begin()
    server.execute_all(
        "SET sql_log_bin = 0", "ALTER TABLE k ADD COLUMN b VARCHAR(3)", "SET sql_log_bin = 1",
        "INSERT INTO k VALUES (1, 2, 'x')",
    )  # fmt: skip
    with pytest.raises(SchemaError, match="contradicts the schema history") as caught:
        reading.run()
    error = caught.value
    assert error.table == f"{database}.k"
    assert (error.journal, str(error.expected)) == (reading.at.journal, "id int, a int")
    assert "3" in str(error.got)
    server.execute_all(
        "SET sql_log_bin = 0", "ALTER TABLE k DROP COLUMN b, MODIFY a BIGINT", "SET sql_log_bin = 1"
    )  # fmt: skip
    reading.at = type(reading.at)(*server.end_position())
    server.execute("INSERT INTO k VALUES (2, 3)")
    with pytest.raises(
        SchemaError, match="`a` is known as int, the table map has bigint"
    ) as caught:
        reading.run()
    assert str(caught.value.got) == "id int, a bigint"


@pytest.mark.mysql
@pytest.mark.mariadb
def test_the_event_decides_not_the_variable(below: tuple[Server, str], tmp_path: Path) -> None:
    server, database = below
    server.execute_all(
        "SET GLOBAL binlog_row_metadata = 'FULL'",
        "CREATE TABLE v (id INT PRIMARY KEY, a INT UNSIGNED)",
    )
    reading = Reading(server, database, tmp_path, asks=False)
    server.execute("INSERT INTO v VALUES (1, 4294967295)")
    level = "MINIMAL" if server.flavor == "mysql" else "NO_LOG"
    server.execute_all(
        f"SET GLOBAL binlog_row_metadata = '{level}'", "INSERT INTO v VALUES (2, 4294967294)"
    )
    reading.run()
    assert reading.of("v") == selected(server, database, "v")
    (version,) = reading.history().versions(database, "v")
    assert version.origin is Origin.TABLE_MAP


@pytest.mark.mysql
@pytest.mark.mariadb
def test_journals_alone_know_what_their_statements_create(
    below: tuple[Server, str], tmp_path: Path
) -> None:
    server, database = below
    server.execute("CREATE TABLE before_all (id INT PRIMARY KEY)")
    server.flush_journal()
    server.execute_all(
        "CREATE TABLE w (id INT PRIMARY KEY, a TINYINT UNSIGNED, s VARCHAR(3) "
        "CHARACTER SET latin1)",
        "INSERT INTO w VALUES (1, 255, 'ü')",
    )
    server.flush_journal()
    server.execute("INSERT INTO before_all VALUES (1)")
    server.flush_journal()
    files = server.journals()
    reading = Reading(server, database, tmp_path)
    reading.run_files([files[-3]])
    assert reading.of("w") == selected(server, database, "w")
    with pytest.raises(
        MetadataMissingError, match="no statement in the part of the log that was read created it"
    ):
        reading.run_files([files[-2]])


@pytest.mark.parametrize("level", ["NO_LOG", "MINIMAL", "FULL"])
def test_uuid_and_addresses_are_told_by_the_catalog(
    mariadb_server: Server, mariadb_database: str, tmp_path: Path, level: str
) -> None:
    server, database = mariadb_server, mariadb_database
    server.execute_all(
        f"SET GLOBAL binlog_row_metadata = '{level}'", f"USE `{database}`",
        "CREATE TABLE g (id INT PRIMARY KEY, u UUID, four INET4, six INET6, b BINARY(16))",
        "CREATE TABLE kept (id INT PRIMARY KEY, u UUID)",
    )  # fmt: skip
    try:
        reading = Reading(server, database, tmp_path)
        binary = (Column("id", Kind.INT32, 3, 0, False), Column("u", Kind.BINARY, 254, 0, True))
        reading.targets, _ = confirmed(reading.targets, TableSchema(database, "kept", binary, (0,)))
        server.execute_all(
            "INSERT INTO g VALUES (1, '123e4567-e89b-12d3-a456-426655440000', '192.0.2.1', "
            "'2001:db8::ff00:42:8329', x'00ff'), (2, '00000000-0000-0000-0000-000000000000', "
            "'0.0.0.0', '::', x''), (3, NULL, NULL, NULL, NULL)",
            "INSERT INTO kept SELECT id, u FROM g WHERE id = 1",
        )
        reading.run()
        assert reading.of("g") == selected(server, database, "g")
        kinds = {schema.table: schema.columns[1].kind for schema in reading.schemas}
        assert kinds == {"g": Kind.UUID, "kept": Kind.BINARY}
        assert [len(row["u"]) for row in reading.of("kept")] == [16]
        assert reading.notes == [
            "column `u` is uuid at the source; its target was created with binary and keeps it"
        ]
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_a_generated_invisible_key_is_in_the_logged_text(
    mysql_server: Server, mysql_database: str, tmp_path: Path
) -> None:
    server = mysql_server
    server.execute_all("SET GLOBAL binlog_row_metadata = 'MINIMAL'", f"USE `{mysql_database}`")
    try:
        reading = Reading(server, mysql_database, tmp_path, asks=False)
        server.execute_all(
            "SET sql_generate_invisible_primary_key = ON", "CREATE TABLE i (a INT UNSIGNED)",
            "SET sql_generate_invisible_primary_key = OFF", "INSERT INTO i VALUES (4294967295)",
            "ALTER TABLE i ALTER COLUMN my_row_id SET VISIBLE, ADD b INT INVISIBLE",
            "INSERT INTO i (a, b) VALUES (1, 2)",
        )  # fmt: skip
        reading.run()
        first, second = reading.schemas
        assert first.key_names == second.key_names == ("my_row_id",)
        assert [column.visible for column in first.columns] == [False, True]
        assert [column.visible for column in second.columns] == [True, True, False]
        rows = server.query(f"SELECT my_row_id, a FROM `{mysql_database}`.i ORDER BY 1")
        assert [(row["my_row_id"], row["a"]) for row in reading.of("i")] == list(rows)
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_texts_of_the_same_width_are_told_by_their_charset(
    mariadb_server: Server, mariadb_database: str
) -> None:
    """Beyond a full table map for bytes of 4 or 16 alone: each question reads the log again."""
    server = mariadb_server
    server.flush_journal()
    server.execute_all(
        f"USE `{mariadb_database}`",
        "CREATE TABLE texts (a CHAR(4) CHARACTER SET latin1, b CHAR(1) CHARACTER SET utf8mb4, c "
        "BINARY(5), d INT)",
        "CREATE TABLE addresses (a CHAR(4) CHARACTER SET latin1, b INET4, d INT)",
        "INSERT INTO texts VALUES ('abcd', 'x', x'00', 1)",
        "INSERT INTO addresses VALUES ('abcd', '192.0.2.1', 1)",
    )
    asked = {}
    for chunk in read_journal(server.journals()[-1]):
        for row in np.flatnonzero(chunk.events["event_type"] == EventType.TABLE_MAP).tolist():
            body = chunk.body(row)
            asked[table_map.table_name(body).table] = table_map.needs_schema(body, is_mariadb=True)
    assert asked == {"texts": False, "addresses": True}
