"""Rules of targets, and what DDL and partial images do to the columns that they name, through whole
runs over a real server's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SchemaError, TargetSuspendedError
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.memory_shop import MemoryShop


class Shop:
    """A pipeline over a server's database under one rule, with tables in memory."""

    def __init__(self, server: Server, database: str, folder: Path, **rule: Any) -> None:
        self.server, self.database = server, database
        self._document = {
            "name": "shop",
            "source": live(server),
            "tables": {"include": [f"{database}.*"]},
            "start": here(server),
            "sink": {"lake_path": folder / "lake"},
        }
        server.execute(f"USE `{database}`")
        self.shop = MemoryShop(self._config(rule))

    def _config(self, rule: dict[str, Any]) -> PipelineConfig:
        of_table = {"tables": [f"{self.database}.*"], "name": f"{self.database}.kept", **rule}
        return PipelineConfig.model_validate({**self._document, "targets": [of_table]})

    def under(self, **rule: Any) -> None:
        """Another rule from now on."""
        self.shop.config = self._config(rule)

    def run(self, *statements: str) -> None:
        self.server.execute_all(*statements)
        self.shop.run()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = self.shop.rows(f"{self.database}.kept")
        return sorted((tuple(row[name] for name in columns) for row in found), key=repr)


@pytest.fixture
def database(mysql_server: Server, mysql_database: str) -> str:
    return mysql_database


def test_k10_f225_a_deleted_row_keeps_its_computed_values(
    mysql_server: Server, database: str, tmp_path: Path
) -> None:
    """Its image may hold the key alone."""
    computed = {"next": {"expression": "n + 1", "type": "bigint"}}
    shop = Shop(mysql_server, database, tmp_path, mode="soft_delete", computed=computed)
    minimal = "SET SESSION binlog_row_image = 'MINIMAL'"
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        minimal,
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "DELETE FROM t WHERE id = 1",
    )
    shop.run(minimal, "DELETE FROM t WHERE id = 2", "UPDATE t SET n = 7 WHERE id = 3")
    assert shop.rows("id", "n", "next", "_cdc_deleted") == [
        (1, 1, 2, True),
        (2, 2, 3, True),
        (3, 7, 8, False),
    ]


def test_k10_f228_a_tracked_column_that_is_renamed_begins_versions_or_stops(
    mysql_server: Server, database: str, tmp_path: Path
) -> None:
    history = {"mode": "history", "schema_changes": {"incompatible": "new_column"}}
    shop = Shop(mysql_server, database, tmp_path, **history, track=["status", "n"])
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, status VARCHAR(9), n INT, other INT)",
        "INSERT INTO t VALUES (1, 'a', 1, 1)",
        "UPDATE t SET status = '5'",
    )
    with pytest.raises(SchemaError, match="names columns that it does not have: status"):
        shop.run(
            "ALTER TABLE t RENAME COLUMN status TO state",
            "UPDATE t SET other = 2",
            "UPDATE t SET state = '6'",
        )
    shop.under(**history, track=["state", "n"])
    shop.run()
    assert shop.rows("state", "other") == [("5", 2), ("6", 2), ("a", 1)]
    shop.run("ALTER TABLE t MODIFY state INT", "UPDATE t SET state = 7, other = 3")
    assert shop.rows("state__v2", "other") == [(7, 3), (None, 1), (None, 2), (None, 2)]


def test_k13_f229_a_key_that_is_kept_as_text_finds_its_rows_or_stops(
    mysql_server: Server, database: str, tmp_path: Path
) -> None:
    shop = Shop(mysql_server, database, tmp_path, types={"d": "string"})
    shop.run(
        "CREATE TABLE t (d DATETIME PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2)",
    )
    with pytest.raises(SchemaError, match=r"types\.d"):
        shop.run(
            "ALTER TABLE t MODIFY d DATETIME(3)",
            "UPDATE t SET n = 3 WHERE n = 1",
            "DELETE FROM t WHERE n = 2",
        )


def test_k13_f231_rows_of_one_table_are_not_found_by_the_key_of_another(
    mysql_server: Server, database: str, tmp_path: Path
) -> None:
    policy = {"policy": "evolve", "change_key": "apply"}
    shop = Shop(mysql_server, database, tmp_path, shard_column="s", schema_changes=policy)
    columns = "(a INT NOT NULL, b INT NOT NULL, n INT, PRIMARY KEY (a))"
    shop.run(
        f"CREATE TABLE t {columns}",
        f"CREATE TABLE u {columns}",
        "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)",
        "INSERT INTO u VALUES (1, 1, 1), (2, 2, 2)",
    )
    with pytest.raises(TargetSuspendedError, match="gets another primary key"):
        shop.run(
            "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
            "INSERT INTO u VALUES (3, 2, 3)",
        )


def test_k11_f232_a_rules_key_follows_columns_that_exchange_their_names(
    mysql_server: Server, database: str, tmp_path: Path
) -> None:
    shop = Shop(mysql_server, database, tmp_path, key=["a"])
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL UNIQUE, b INT NOT NULL)",
        "INSERT INTO t VALUES (1, 10, 0), (2, 20, 0)",
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "UPDATE t SET a = 5 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    assert shop.rows("id", "a", "b") == [(1, 5, 10)]
