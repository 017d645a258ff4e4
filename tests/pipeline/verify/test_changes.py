"""Changelogs, with a key and without one: what their changes leave is the source's rows, over DDL
too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from tests.pipeline.verify.test_end_to_end import Verified, keys
from tests.servers import Server
from tests.support.captures import here, live

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


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
    lake = Verified(mariadb_server, database, config, spark)
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
    assert "K18" in bag.reason

    days = report.tables[f"{database}.days"]
    assert (days.status, days.stale, days.unreadable, days.rows_equal) == ("different", 1, 2, 1), (
        days
    )
    assert not days.counts
    assert not days.repair_batches
    assert len(lake.lake("days", ["id"])) == 2, "a repair takes no older image away"
