"""Every kind of schema change on real servers: afterwards the lake's tables equal the server's
SELECT (K13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.schema.history.history import SchemaHistory
from tests.conftest import temporary_database
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows

pytestmark = [pytest.mark.spark]

MakeConfig = Callable[..., PipelineConfig]

FIRST = """
CREATE TABLE dropped (id INT PRIMARY KEY, a INT, b VARCHAR(10))
INSERT INTO dropped VALUES (1, 10, 'x'), (2, 20, 'y')
CREATE TABLE renamed (id INT PRIMARY KEY, a INT, b VARCHAR(10))
INSERT INTO renamed VALUES (1, 10, 'x'), (2, 20, 'y')
CREATE TABLE widened (id INT PRIMARY KEY AUTO_INCREMENT, a SMALLINT, d DECIMAL(5,2), f FLOAT, u INT
    UNSIGNED,
    e ENUM('a','b'), t DATETIME, v VARCHAR(5))
INSERT INTO widened VALUES (1, 10, 1.25, 0.5, 4000000000, 'a', '2024-01-01 10:00:00', 'v'),
    (2, -1, -1.5, NULL, NULL, NULL, NULL, NULL)
CREATE TABLE emptied (id INT PRIMARY KEY, a INT)
INSERT INTO emptied VALUES (1, 1), (2, 2)
CREATE TABLE again (id INT PRIMARY KEY, a INT)
INSERT INTO again VALUES (1, 1), (2, 2)
CREATE TABLE moved (id INT PRIMARY KEY, a INT)
INSERT INTO moved VALUES (1, 1), (2, 2)
CREATE TABLE ghost (id INT PRIMARY KEY, a INT)
INSERT INTO ghost VALUES (1, 1), (2, 2)
CREATE TABLE swapped (id INT PRIMARY KEY, a INT, c INT)
INSERT INTO swapped VALUES (1, 1, 1), (2, 2, 2)
CREATE TABLE keyed (a INT, b INT, c INT, PRIMARY KEY (a, b))
INSERT INTO keyed VALUES (1, 1, 1), (1, 2, 2)
"""
CHANGES = """
ALTER TABLE dropped DROP COLUMN b
INSERT INTO dropped VALUES (3, 30)
UPDATE dropped SET a = 11 WHERE id = 1
ALTER TABLE dropped ADD COLUMN b VARCHAR(10) NOT NULL DEFAULT 'new' FIRST
ALTER TABLE renamed CHANGE a b INT, CHANGE b a VARCHAR(20)
ALTER TABLE renamed RENAME COLUMN id TO ident
INSERT INTO renamed VALUES (3, 30, 'z')
DELETE FROM renamed WHERE ident = 2
ALTER TABLE widened MODIFY id BIGINT AUTO_INCREMENT, MODIFY a INT NOT NULL DEFAULT 3 AFTER v, MODIFY d DECIMAL(8,3),
    MODIFY f DOUBLE, MODIFY u BIGINT UNSIGNED, MODIFY e ENUM('a','b','c'), MODIFY t DATETIME(3),
    MODIFY v VARCHAR(50) COMMENT 'x'
INSERT INTO widened (a, d, f, u, e, t, v)
    VALUES (100000, 12345.678, 1e300, 18446744073709551615, 'c', '2024-01-01 10:00:00.125', 'long long')
ALTER TABLE widened CONVERT TO CHARACTER SET utf8mb4
UPDATE widened SET a = 5, u = 5 WHERE id = 3
ALTER TABLE widened MODIFY u BIGINT, MODIFY a SMALLINT
UPDATE widened SET a = 7 WHERE id = 1
TRUNCATE TABLE emptied
INSERT INTO emptied VALUES (2, 22)
DROP TABLE again
CREATE TABLE again (k VARCHAR(5) PRIMARY KEY, z DATETIME(3))
INSERT INTO again VALUES ('x', NULL)
RENAME TABLE moved TO moved_on
ALTER TABLE moved_on ADD COLUMN n INT NOT NULL
UPDATE moved_on SET n = 5 WHERE id = 1
CREATE TABLE moved (id INT PRIMARY KEY, q INT)
INSERT INTO moved VALUES (7, 7)
CREATE TABLE _ghost_gho LIKE ghost
ALTER TABLE _ghost_gho ADD COLUMN x INT NOT NULL DEFAULT 5, MODIFY a BIGINT
INSERT INTO _ghost_gho (id, a) SELECT id, a FROM ghost
RENAME TABLE ghost TO _ghost_del, _ghost_gho TO ghost
DROP TABLE _ghost_del
INSERT INTO ghost VALUES (3, 3, 3)
CREATE TABLE _swapped_new (id INT PRIMARY KEY, a INT, c INT)
ALTER TABLE _swapped_new DROP COLUMN c
ALTER TABLE _swapped_new ADD COLUMN d VARCHAR(3)
INSERT INTO _swapped_new (id, a) SELECT id, a FROM swapped
RENAME TABLE swapped TO _swapped_old, _swapped_new TO swapped
DROP TABLE IF EXISTS _swapped_old
UPDATE swapped SET d = 'd' WHERE id = 1
ALTER TABLE keyed DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)
UPDATE keyed SET c = 9 WHERE b = 2
CREATE TABLE made (id INT PRIMARY KEY) SELECT 1 AS id, 'one' AS name
"""  # noqa: E501
COLUMNS = {
    "dropped": ["id", "a", "b"],
    "renamed": ["ident", "b", "a"],
    "widened": ["id", "a", "d", "f", "u", "e", "t", "v"],
    "emptied": ["id", "a"],
    "again": ["k", "z"],
    "moved_on": ["id", "a", "n"],
    "moved": ["id", "q"],
    "ghost": ["id", "a", "x"],
    "swapped": ["id", "a", "d"],
    "keyed": ["a", "b", "c"],
    "made": ["id", "name"],
}


def run(server: Server, database: str, script: str) -> None:
    with server.root_connection(database=database) as connection, connection.cursor() as cursor:
        for statement in filter(None, script.replace("\n    ", " ").splitlines()):
            cursor.execute(statement)
        connection.commit()


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A whole number is the same in a column that has become a decimal."""
    return [tuple(str(value) if isinstance(value, int) else value for value in row) for row in rows]


@pytest.mark.whole
def test_k13_every_kind_of_change_leaves_the_lake_equal_to_the_server(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, spark: Any
) -> None:
    config = make_config(
        live(mysql_server), include=[f"{mysql_database}.*"], start=here(mysql_server)
    )
    cursors = MemoryCursorStore()
    run(mysql_server, mysql_database, FIRST)
    capture(config, cursors=cursors)
    run(mysql_server, mysql_database, CHANGES)
    report = capture(config, cursors=cursors)
    for table, columns in COLUMNS.items():
        expected = server_rows(mysql_server, mysql_database, table, columns)
        found = lake_rows(spark, config.sink.lake_path, mysql_database, table, columns)
        assert plain(found) == plain(expected), table
    used = {policy for decision in report.ddl for policy in decision.policy.split(", ") if policy}
    assert used == {
        "schema_changes=evolve", "drop_column=keep", "drop_table=keep", "truncate=apply",
        "rename_table=by_name", "change_key=certain",
    }  # fmt: skip


POLICIES_FIRST = """
CREATE TABLE dropped (id INT PRIMARY KEY, a INT, b VARCHAR(10))
INSERT INTO dropped VALUES (1, 10, 'x'), (2, 20, 'y')
CREATE TABLE converted (id INT PRIMARY KEY, a INT, tm TIME, by4 BINARY(4), d DATE, dc DECIMAL(10,2),
    e ENUM('a', 'b'))
INSERT INTO converted VALUES (1, -5, '-10:20:30', 'ab', '2024-02-29', 1.25, 'a'), (2, 7, NULL, NULL,
    NULL, -1.15, 'b')
CREATE TABLE keyed (id INT PRIMARY KEY, a INT NOT NULL)
INSERT INTO keyed VALUES (1, 1), (2, 2)
CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN
    (10),
    PARTITION p1 VALUES LESS THAN (20))
INSERT INTO parted VALUES (1), (11)
CREATE TABLE stops (id INT PRIMARY KEY, b VARCHAR(10))
INSERT INTO stops VALUES (1, '2024-01-01')
CREATE TABLE cut_short (id INT PRIMARY KEY, a INT)
INSERT INTO cut_short VALUES (1, 100000)
"""
POLICIES_CHANGES = """
ALTER TABLE dropped DROP COLUMN b
INSERT INTO dropped VALUES (3, 30)
ALTER TABLE dropped ADD COLUMN b INT NOT NULL DEFAULT 4
ALTER TABLE converted MODIFY a VARCHAR(20), MODIFY tm TIME(3), MODIFY by4 BINARY(6), MODIFY d DATETIME,
    MODIFY dc DECIMAL(10,1), MODIFY e VARCHAR(9)
INSERT INTO converted VALUES (3, 'text', '10:00:00.5', 'abcdef', '2024-01-01 01:02:03', 0.1, 'other')
ALTER TABLE keyed DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)
INSERT INTO keyed VALUES (1, 7)
UPDATE keyed SET a = 9 WHERE id = 2
ALTER TABLE parted TRUNCATE PARTITION p0
INSERT INTO parted VALUES (12)
ALTER TABLE stops MODIFY b DATE
INSERT INTO stops VALUES (2, '2024-01-02')
SET SESSION sql_mode = ''
ALTER TABLE cut_short MODIFY a SMALLINT
"""  # noqa: E501
POLICIES = {
    "drop_column": "apply", "incompatible": "rewrite", "change_key": "apply", "truncate": "keep",
}  # fmt: skip


@pytest.mark.whole
def test_k13_values_are_converted_where_it_is_certain_and_else_the_table_stops(
    mariadb_server: Server, mariadb_database: str, make_config: MakeConfig, spark: Any
) -> None:
    config = make_config(
        live(mariadb_server),
        include=[f"{mariadb_database}.*"],
        start=here(mariadb_server),
        schema_changes=POLICIES,
    )
    cursors = MemoryCursorStore()
    run(mariadb_server, mariadb_database, POLICIES_FIRST + POLICIES_CHANGES)
    with pytest.raises(TargetSuspendedError) as caught:
        capture(config, cursors=cursors)
    assert "converts every value" in str(caught.value)
    assert "values were cut to the new range" in str(caught.value)
    cursor = cursors.cursor
    assert cursor is not None
    assert set(cursor.suspended) == {f"{mariadb_database}.stops", f"{mariadb_database}.cut_short"}
    for table, columns in {
        "dropped": ["id", "a", "b"],
        "converted": ["id", "a", "by4", "d", "dc", "e"],
        "keyed": ["id", "a"],
    }.items():
        expected = server_rows(mariadb_server, mariadb_database, table, columns)
        found = lake_rows(spark, config.sink.lake_path, mariadb_database, table, columns)
        assert plain(found) == plain(expected), table
    times = lake_rows(spark, config.sink.lake_path, mariadb_database, "converted", ["id", "tm"])
    told = f"SELECT id, CAST(tm AS CHAR) FROM `{mariadb_database}`.converted ORDER BY id"
    assert times == [tuple(row) for row in mariadb_server.query(told)]
    rows = lake_rows(spark, config.sink.lake_path, mariadb_database, "parted", ["id"])
    assert rows == [(1,), (11,), (12,)]
    assert not cursor.targets[f"{mariadb_database}.parted"].exact


CHANGED_TWICE = """
ALTER TABLE a MODIFY n BIGINT
UPDATE a SET n = n + 10
ALTER TABLE a MODIFY n INT
INSERT INTO a VALUES (3, 3)
"""


@pytest.mark.parametrize(
    "read_first",
    [
        pytest.param("", id="nothing"),
        pytest.param("CREATE TABLE other (id INT PRIMARY KEY)", id="no row of the table"),
        pytest.param("INSERT INTO a VALUES (2, 2)", id="a row of the table"),
    ],
)
def test_k23_f142_a_first_run_learns_of_its_tables_what_later_ddl_needs(
    server: Server, make_config: MakeConfig, spark: Any, read_first: str
) -> None:
    with temporary_database(server) as database:
        run(server, database, "CREATE TABLE a (id INT PRIMARY KEY, n INT)")
        run(server, database, "INSERT INTO a VALUES (1, 1)")
        config = make_config(live(server), include=[f"{database}.a"], start=here(server))
        cursors = MemoryCursorStore()
        run(server, database, read_first)
        capture(config, cursors=cursors)
        run(server, database, CHANGED_TWICE)
        capture(config, cursors=cursors)
        found = lake_rows(spark, config.sink.lake_path, database, "a", ["id", "n"])
        assert found == server_rows(server, database, "a", ["id", "n"])


def test_k23_a_run_that_knows_its_tables_reads_their_history_once(
    server: Server, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, count = SchemaHistoryFile.read, Counter[str]()

    def counted(file: SchemaHistoryFile) -> SchemaHistory:
        count["read"] += 1
        return read(file)

    with temporary_database(server) as database:
        run(server, database, "CREATE TABLE a (id INT PRIMARY KEY, n INT)")
        config = make_config(live(server), include=[f"{database}.a"], start=here(server))
        cursors = MemoryCursorStore()
        run(server, database, "INSERT INTO a VALUES (1, 1)")
        capture(config, cursors=cursors)
        run(server, database, "INSERT INTO a VALUES (2, 2)")
        monkeypatch.setattr(SchemaHistoryFile, "read", counted)
        capture(config, cursors=cursors)
    assert count == {"read": 1}
