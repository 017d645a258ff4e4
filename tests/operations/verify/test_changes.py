"""Changelogs, with a key and without one: what their changes leave is the source's rows, from the
last change of their columns or key on."""

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
    """After a column that has a default, only keys that changed since are compared."""
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
    lake = Verified(mariadb_server, database, config, spark)
    mariadb_server.execute_all(
        "CREATE TABLE bag (a INT, b VARCHAR(5), f FLOAT)",
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO bag VALUES (0,'t',0)",
        "TRUNCATE bag",
        "INSERT INTO bag VALUES (1,'x',1.5),(1,'x',1.5),(2,NULL,NULL),(3,'z',3),(4,'w',-0.0)",
        "INSERT INTO item VALUES (1,'a'),(2,'b'),(3,'c')",
        "UPDATE bag SET b = 'y' WHERE a = 1 LIMIT 1",
        "ALTER TABLE bag ADD COLUMN n INT",
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
    assert (item.status, item.rows_source, item.rows_lake) == ("equal", 1, 1), item
    assert "only keys that changed after" in item.proves
    assert "only keys" not in bag.proves
    assert old.status == "not_compared"
    assert "cdc-pipeline snapshot bank --table" in old.reason

    lake.unlogged(
        "DELETE FROM bag WHERE b = 'x'",
        "INSERT INTO bag VALUES (5,NULL,NULL,5),(9,'n',NULL,9)",
        "UPDATE item SET n = 1 WHERE id IN (1, 20)",
    )
    mariadb_server.execute("DELETE FROM bag WHERE a = 4")
    report = lake.verify("bag", "days", "item", repair=True)
    bag, item = (report.tables[f"{database}.{name}"] for name in ("bag", "item_changelog"))
    assert keys(bag.differences) == {
        "missing": [("5", None, None, "5"), ("9", "n", None, "9")],
        "extra": [("1", "x", "1.5", None)]
    }  # fmt: skip
    assert [(one.kind, one.key["id"], one.columns) for one in item.differences] == [
        ("different", "20", ("n",))
    ], "the image of 1 is older than the column"
    assert "K18" in bag.reason

    days = report.tables[f"{database}.days"]
    assert (days.status, days.stale, days.unreadable, days.rows_equal) == ("different", 1, 2, 1), (
        days
    )
    assert not days.counts
    assert not days.repair_batches
    assert len(lake.lake("days", ["id"])) == 2, "a repair takes no older image away"


@pytest.mark.whole
def test_k17_f63_f64_only_changes_with_the_present_columns_and_key_are_compared(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    spark: Any,
) -> None:
    """Over renamed and dropped columns, and another primary key; without a key nothing is."""
    database = mysql_database
    rules = [{"tables": [f"{database}.*"], "mode": "changelog"}]
    config = make_config(
        live(mysql_server),
        include=[f"{database}.*"],
        start=here(mysql_server),
        targets=rules,
        schema_changes={"change_key": "apply", "drop_column": "apply"},
    )
    lake = Verified(mysql_server, database, config, spark)
    mysql_server.execute_all(
        f"USE `{database}`",
        "CREATE TABLE part (id INT PRIMARY KEY, a INT, b INT, note VARCHAR(9))",
        "CREATE TABLE item (id INT PRIMARY KEY, code INT NOT NULL, n INT)",
        "CREATE TABLE bag (a INT NOT NULL, n INT)",
        "INSERT INTO part VALUES (1,10,20,'x'),(2,11,21,'y'),(3,12,22,'z')",
        "INSERT INTO item VALUES (1,100,1),(2,200,2),(3,300,3),(4,400,4)",
        "INSERT INTO bag VALUES (1,1),(1,1),(2,2),(3,NULL)",
        "ALTER TABLE part RENAME COLUMN a TO b, RENAME COLUMN b TO a, DROP COLUMN note",
        "ALTER TABLE item DROP PRIMARY KEY, ADD PRIMARY KEY (code)",
        "ALTER TABLE bag RENAME COLUMN n TO m",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE part SET a = 9 WHERE id = 2",  # its image has no b
        "SET SESSION binlog_row_image = 'FULL'",
        # A row takes the earlier key of another, and one the new key of one that is gone.
        "UPDATE item SET id = 3 WHERE code = 400",
        "DELETE FROM item WHERE code = 200",
        "INSERT INTO item VALUES (5,200,7)",
        "UPDATE item SET code = 101 WHERE code = 100",
        "DELETE FROM item WHERE code = 300",
        "DELETE FROM bag WHERE a = 1 LIMIT 1",
    )
    report = lake.verify()
    by_source = {one.sources[0]: one for one in report.tables.values()}
    part, item, bag = (by_source[f"{database}.{name}"] for name in ("part", "item", "bag"))
    assert (part.status, part.rows_source, part.rows_lake) == ("equal", 1, 1), part.reason
    assert (item.status, item.rows_source, item.rows_lake) == ("equal", 3, 3), item.reason
    assert bag.status == "not_compared"
    assert "without a key its rows are the sum of all changes" in bag.reason
    assert "take a new snapshot of the table" in bag.reason

    lake.unlogged(
        "UPDATE item SET n = 0 WHERE code = 400",
        "INSERT INTO item VALUES (6,300,8)",
        "DELETE FROM item WHERE code = 200",
        "UPDATE part SET a = 0 WHERE id IN (1, 2)",
    )
    report = lake.verify()
    by_source = {one.sources[0]: one for one in report.tables.values()}
    item, part = by_source[f"{database}.item"], by_source[f"{database}.part"]
    assert keys(item.differences) == {
        "different": [("400",)], "missing": [("300",)], "extra": [("200",)]
    }  # fmt: skip
    assert [(one.kind, one.key["id"], one.columns) for one in part.differences] == [
        ("different", "2", ("a",))
    ]
