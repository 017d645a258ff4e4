"""Changelogs, with a key and without one: what their changes leave is the source's rows, over DDL
too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from tests.operations.verify.test_end_to_end import Verified, keys
from tests.servers import Server
from tests.support.captures import here, live

pytestmark = pytest.mark.spark


@pytest.mark.mariadb
@pytest.mark.whole
def test_k17_a_changelog_is_compared_by_the_sum_of_its_changes_or_its_last_images(
    mariadb_server: Server,
    mariadb_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    """Over columns that are added with a default, and renamed."""
    database = mariadb_database
    mariadb_server.execute_all(
        f"USE `{database}`", "CREATE TABLE old (a INT)", "INSERT INTO old VALUES (1)"
    )
    start = here(mariadb_server)
    rules = [
        {"tables": [f"{database}.item"], "mode": "changelog"},
        {"tables": [f"{database}.days"], "on_invalid_value": "quarantine"},
    ]
    config = make_config(
        live(mariadb_server), include=[f"{database}.*"], start=start, targets=rules
    )
    lake = Verified(mariadb_server, database, config)
    mariadb_server.execute_all(
        "CREATE TABLE bag (a INT, b VARCHAR(5), f FLOAT)",
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO bag VALUES (0,'t',0)",
        "TRUNCATE bag",
        "INSERT INTO bag VALUES (1,'x',1.5),(1,'x',1.5),(2,NULL,NULL),(3,'z',3),(4,'w',-0.0)",
        "INSERT INTO item VALUES (1,'a'),(2,'b'),(3,'c')",
        "UPDATE bag SET b = 'y' WHERE a = 1 LIMIT 1",
        "ALTER TABLE bag ADD COLUMN n INT NOT NULL DEFAULT 7, RENAME COLUMN b TO text",
        "ALTER TABLE item ADD COLUMN n INT NOT NULL DEFAULT 7",
        "DELETE FROM bag WHERE a = 3",
        "UPDATE bag SET n = 8 WHERE a = 2",
        "UPDATE item SET name = 'new', id = 20 WHERE id = 2",
        "DELETE FROM item WHERE id = 3",
        "INSERT INTO bag VALUES (5,NULL,NULL,5)",
        "INSERT INTO old VALUES (2)",
        "SET SESSION sql_mode = ''",
        "CREATE TABLE days (id INT PRIMARY KEY, day DATE)",
        "INSERT INTO days VALUES (1,'2020-01-01'),(2,'2020-01-01'),(3,'0000-00-00')",
        "UPDATE days SET day = '0000-00-00' WHERE id = 2",
    )
    report = lake.verify()
    assert report.tables.keys() == {
        f"{database}.{name}" for name in ("bag", "days", "item_changelog", "old")
    }
    bag, item, old = (
        report.tables[f"{database}.{name}"] for name in ("bag", "item_changelog", "old")
    )
    assert (bag.status, bag.rows_source, bag.rows_lake, bag.parts_differing) == (
        "equal",
        5,
        5,
        0,
    ), bag
    assert bag.proves.startswith("its changes add up")
    assert (item.status, item.rows_source, item.rows_lake) == ("equal", 2, 2), item
    assert old.status == "not_compared"
    assert "cdc-pipeline snapshot bank --table" in old.reason

    lake.unlogged(
        "DELETE FROM bag WHERE text = 'x'",
        "INSERT INTO bag VALUES (5,NULL,NULL,5),(9,'n',NULL,9)",
        "UPDATE item SET n = 1 WHERE id = 1",
    )
    mariadb_server.execute("DELETE FROM bag WHERE a = 4")
    report = lake.verify("bag", "days", "item", repair=True)
    bag, item = (report.tables[f"{database}.{name}"] for name in ("bag", "item_changelog"))
    assert keys(bag.differences) == {
        "missing": [("5", None, None, "5"), ("9", "n", None, "9")],
        "extra": [("1", "x", "1.5", "7")]
    }  # fmt: skip
    assert [(one.kind, one.key["id"], one.columns) for one in item.differences] == [
        ("different", "1", ("n",))
    ]
    assert "in their order" in bag.reason

    days = report.tables[f"{database}.days"]
    assert (days.status, days.stale, days.unreadable, days.rows_equal) == ("different", 1, 2, 1), (
        days
    )
    assert not days.counts
    assert not days.repair_batches
    assert len(lake.lake("days", ["id"])) == 2, "a repair takes no older image away"


@pytest.mark.whole
def test_k17_f63_f64_changes_are_followed_over_renamed_columns_and_other_keys(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    """Images that lack columns name them as they were called; rows from before another key are
    found by the one that they had."""
    database = mysql_database
    rules = [{"tables": [f"{database}.*"], "mode": "changelog"}]
    config = make_config(
        live(mysql_server),
        include=[f"{database}.*"],
        start=here(mysql_server),
        targets=rules,
        schema_changes={"change_key": "apply", "drop_column": "apply"},
    )
    lake = Verified(mysql_server, database, config)
    mysql_server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE part (id INT PRIMARY KEY, a INT, b INT, note VARCHAR(9))",
        "CREATE TABLE item (id INT PRIMARY KEY, code INT NOT NULL, n INT)",
        "CREATE TABLE bag (a INT NOT NULL, n INT)",
        "INSERT INTO part VALUES (1,10,20,'x'),(2,11,21,'y'),(3,12,22,'z')",
        "INSERT INTO item VALUES (1,100,1),(2,200,2),(3,300,3),(4,400,4)",
        "INSERT INTO bag VALUES (1,1),(1,1),(2,2),(3,NULL)",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE part SET note = 'p' WHERE id = 1",  # its image has neither a nor b
        "UPDATE part SET a = 9 WHERE id = 2",
        "SET SESSION binlog_row_image = 'FULL'",
        "ALTER TABLE part RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE part DROP COLUMN note, ADD COLUMN note INT DEFAULT 5",
        "UPDATE item SET id = 5 WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (code)",
        # A row takes the earlier key of another, and one the new key of one that is gone.
        "UPDATE item SET id = 3 WHERE code = 400",
        "INSERT INTO item VALUES (5,200,7)",
        "UPDATE item SET code = 101 WHERE code = 100",
        "ALTER TABLE item RENAME COLUMN code TO sku, RENAME COLUMN id TO old",
        "UPDATE item SET n = 30 WHERE sku = 300",
        "DELETE FROM bag WHERE a = 1 LIMIT 1",
        "UPDATE bag SET n = 5 WHERE a = 3",
        "ALTER TABLE bag ADD PRIMARY KEY (a)",
        "UPDATE bag SET n = 6 WHERE a = 2",
        "UPDATE bag SET a = 7 WHERE a = 1",
        "INSERT INTO bag VALUES (8,8)",
    )
    report = lake.verify()
    for name, rows in (("part", 3), ("item", 4), ("bag", 4)):
        (found,) = (one for one in report.tables.values() if one.sources == (f"{database}.{name}",))
        assert (found.status, found.rows_source, found.rows_lake) == ("equal", rows, rows), (
            found.reason
        )

    lake.unlogged("UPDATE item SET n = 0 WHERE sku = 400", "UPDATE bag SET n = 0 WHERE a = 7")
    report = lake.verify()
    differing = {one.sources[0]: len(one.differences) for one in report.tables.values()}
    assert differing == {f"{database}.item": 1, f"{database}.bag": 1, f"{database}.part": 0}

    mysql_server.execute_all(
        f"USE `{database}`",
        "ALTER TABLE bag DROP PRIMARY KEY",
        "INSERT INTO bag VALUES (8,8)",
        "ALTER TABLE item DROP COLUMN old",
    )
    report = lake.verify("item", "bag")
    by_source = {one.sources[0]: one for one in report.tables.values()}
    bag = by_source[f"{database}.bag"]
    assert keys(bag.differences).keys() == {"missing", "extra"}, "the change past the log, twice"
    item = by_source[f"{database}.item"]
    assert item.status == "not_compared"
    assert "identified by (old), which is no longer in the table" in item.reason
    assert "take a new snapshot of the table" in item.reason
