"""DDL as a session may write it, through whole runs over a real server's log (K33)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import TargetSuspendedError
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.memory_shop import MemoryShop


class Shop:
    """A pipeline over a server's database, in modes by table, with tables in memory."""

    def __init__(self, server: Server, database: str, folder: Path, **modes: str) -> None:
        self.server, self.database = server, database
        rules = [
            {"tables": [f"{database}.{table}"], "mode": mode, "name": f"{database}.{table}"}
            for table, mode in modes.items()
        ]
        self.shop = MemoryShop(
            PipelineConfig.model_validate(
                {
                    "name": "shop",
                    "source": live(server),
                    "tables": {"include": [f"{database}.*"]},
                    "start": here(server),
                    "targets": rules,
                    "sink": {"lake_path": folder / "lake"},
                }
            )
        )
        server.execute(f"USE `{database}`")

    def run(self, *statements: str) -> None:
        self.server.execute_all(*statements)
        self.shop.run()

    def suspended(self) -> dict[str, str]:
        """The reason of each suspended table."""
        cursor = self.shop.cursors.cursor
        assert cursor is not None
        return {
            name.removeprefix(f"{self.database}."): held.what
            for name, held in cursor.suspended.items()
        }

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = self.shop.rows(f"{self.database}.{table}")
        return sorted(tuple(row[name] for name in columns) for row in found)

    def fails(self, *statements: str) -> str:
        """What the run says that suspends a table."""
        self.server.execute_all(*statements)
        with pytest.raises(TargetSuspendedError) as caught:
            self.shop.run()
        return str(caught.value)


def test_k33_f82_what_is_wrong_with_one_table_suspends_it_with_its_reason(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    """A column that the mode needs itself, labels that are no text, a key that was a unique index
    and is none any more: each costs its table alone."""
    shop = Shop(server, fresh_database, tmp_path, h="history", i="history")
    shop.fails(
        "CREATE TABLE o (id INT PRIMARY KEY)", "INSERT INTO o VALUES (1)",
        "CREATE TABLE h (id INT PRIMARY KEY, `__START_AT` INT)", "INSERT INTO h VALUES (1, 2)",
        "CREATE TABLE i (id INT PRIMARY KEY)", "INSERT INTO i VALUES (1)",
        "CREATE TABLE e (id INT PRIMARY KEY, e ENUM(0xFF,'a') CHARACTER SET binary)",
        "INSERT INTO e VALUES (1, 'a')",
        "CREATE TABLE f (id INT PRIMARY KEY, e ENUM(0xC3A9,'a') CHARACTER SET binary)",
        "INSERT INTO f VALUES (1, 'a'), (2, 0xC3A9)",
        "CREATE TABLE u (a INT NOT NULL, b INT, UNIQUE KEY k (a))", "INSERT INTO u VALUES (1, 2)",
        "CREATE TABLE v (a INT NOT NULL, b INT, UNIQUE KEY k (a))", "INSERT INTO v VALUES (1, 2)",
    )  # fmt: skip
    held = shop.suspended()
    assert sorted(held) == ["e", "h"]
    assert "a label of column 'e' is no text" in held["e"]
    assert "`__START_AT` has a name that is reserved in a history" in held["h"]
    assert shop.rows("f", "id", "e") == [(1, "a"), (2, "é")]
    shop.fails(
        "ALTER TABLE i ADD COLUMN `__end_at` INT", "INSERT INTO i VALUES (2, 2)",
        "DROP INDEX k ON u", "INSERT INTO u VALUES (3, 4)",
        "ALTER TABLE v MODIFY a INT NULL", "INSERT INTO v VALUES (5, 6)",
        "INSERT INTO o VALUES (2)",
    )  # fmt: skip
    held = shop.suspended()
    assert sorted(held) == ["e", "h", "i", "u", "v"]
    assert "`__end_at` has a name that is reserved" in held["i"]
    assert "the unique index that stood in for" in held["u"]
    assert "the unique index that stood in for" in held["v"]
    assert shop.rows("o", "id") == [(1,), (2,)]
    assert shop.rows("u", "a", "b") == [(1, 2)]


def test_k33_f75_a_lossy_conversion_is_seen_and_renames_to_and_fro_are_none(
    server: Server, fresh_database: str, tmp_path: Path
) -> None:
    shop = Shop(server, fresh_database, tmp_path)
    table = "(id INT PRIMARY KEY, c VARCHAR(9)) CHARACTER SET utf8mb4"
    names = ("a", "b", "r")
    shop.run(
        *(f"CREATE TABLE {name} {table}" for name in names),
        *(f"INSERT INTO {name} VALUES (1, 'ж')" for name in names),
    )
    said = shop.fails(
        "SET sql_mode = ''",
        "ALTER TABLE a CONVERT TO CHAR SET latin1",
        "ALTER TABLE b CONVERT TO CHAR SET cp1251",
        "RENAME TABLE r TO x, x TO r",
        *(f"INSERT INTO {name} VALUES (2, 'z')" for name in names),
    )
    assert shop.server.query(f"SELECT c FROM `{fresh_database}`.a WHERE id = 1") == [("?",)]
    assert sorted(shop.suspended()) == ["a", "b"], said
    assert shop.rows("r", "id", "c") == [(1, "ж"), (2, "z")]


@pytest.mark.parametrize("drop", ["FOREIGN KEY k", "/*!50000 FOREIGN KEY */ k", "CONSTRAINT k"])
def test_k13_f136_a_dropped_foreign_key_is_noted_with_what_it_may_have_done(
    server: Server, fresh_database: str, tmp_path: Path, drop: str
) -> None:
    """The catalog no longer shows that it cascaded."""
    shop = Shop(server, fresh_database, tmp_path)
    shop.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE kid (id INT PRIMARY KEY, p INT, CONSTRAINT c CHECK (p > 0), "
        "CONSTRAINT k FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)", "INSERT INTO kid VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    assert shop.shop.last_cut().notes == ()
    shop.run("DELETE FROM parent WHERE id = 1", f"ALTER TABLE kid DROP {drop}")
    (note,) = shop.shop.last_cut().notes
    assert (note.kind, note.table) == ("dropped_constraint", f"{fresh_database}.kid")
    assert "constraint `k` was dropped" in note.text
    assert shop.suspended() == {}
    # MySQL logs what a cascade does (9.6)
    assert len(shop.rows("kid", "id")) == (2 if server.flavor == "mariadb" else 1)


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("drop", "is_noted"),
    [
        ("SET foreign_key_checks = 0; ALTER TABLE kid DROP INDEX k, ALGORITHM=COPY", True),
        ("SET foreign_key_checks = 0, alter_algorithm = COPY; DROP INDEX k ON kid", True),
        (
            "SET foreign_key_checks = 0, alter_algorithm = COPY; "
            "CREATE OR REPLACE INDEX k ON kid (id)",
            True,
        ),
        ("SET foreign_key_checks = 0; ALTER TABLE kid ADD x INT, ALGORITHM=COPY", False),
        ("ALTER TABLE kid DROP INDEX v", False),
    ],
)
def test_k13_f141_a_foreign_key_that_goes_with_its_index_is_noted(
    mariadb_server: Server, mariadb_database: str, tmp_path: Path, drop: str, is_noted: bool
) -> None:
    """MariaDB drops it in silence where foreign_key_checks=0 and the table is copied."""
    shop = Shop(mariadb_server, mariadb_database, tmp_path)
    shop.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE kid (id INT PRIMARY KEY, p INT, KEY k (p), KEY v (id, p), "
        "CONSTRAINT c FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)", "INSERT INTO kid VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    shop.run("DELETE FROM parent WHERE id = 1", *drop.split("; "))
    shop.server.execute("SET foreign_key_checks = 1, alter_algorithm = DEFAULT")
    ((_, created),) = shop.server.query("SHOW CREATE TABLE kid")
    assert ("FOREIGN KEY" not in created) == is_noted
    notes = shop.shop.last_cut().notes
    assert [note.kind for note in notes] == ["dropped_constraint"] * is_noted
    assert shop.suspended() == {}


@pytest.mark.parametrize("made", ["LIKE kid", "(id INT PRIMARY KEY, p INT)"])
def test_k13_f140_a_table_that_its_shadow_replaces_is_noted_as_one_whose_foreign_keys_went(
    server: Server, fresh_database: str, tmp_path: Path, made: str
) -> None:
    """The shadow has none, so the catalog does not show what cascades did to the rows that stay."""
    shop = Shop(server, fresh_database, tmp_path)
    shop.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE kid (id INT PRIMARY KEY, p INT, "
        "CONSTRAINT k FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)", "INSERT INTO kid VALUES (1, 1), (2, 2)",
    )  # fmt: skip
    shop.run(
        "DELETE FROM parent WHERE id = 1", f"CREATE TABLE _kid_gho {made}",
        "INSERT INTO _kid_gho SELECT * FROM kid", "RENAME TABLE kid TO _kid_del, _kid_gho TO kid",
    )  # fmt: skip
    (note,) = shop.shop.last_cut().notes
    assert (note.kind, note.table) == ("replaced_table", f"{fresh_database}.kid")
    assert "`_kid_gho` replaced the table" in note.text
    assert shop.suspended() == {}
    # MySQL logs what a cascade does (9.6)
    assert len(shop.rows("kid", "id")) == (2 if server.flavor == "mariadb" else 1)
