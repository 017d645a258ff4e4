"""A lake that is read as of its cuts, maintained, copied and registered: one Spark session, two
small tables."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import cdc_pipeline
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import CatalogConfig, MaintenanceConfig, SinkConfig
from cdc_pipeline.errors import (
    CatalogNameError,
    CutNotFoundError,
    LakeStateError,
    MergeError,
    TableNotInCutError,
)
from cdc_pipeline.sink.delta.failures import again_on_conflict
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.durable.retention import FILE_RETENTION, LOG_RETENTION
from cdc_pipeline.sink.maintain import maintenance
from cdc_pipeline.sink.maintain.maintenance import TableMaintenance, maintain
from cdc_pipeline.sink.maintain.materialize import materialize
from cdc_pipeline.sink.read.cuts import check_readable, find_cut
from cdc_pipeline.sink.read.read import table_frame, view_statements
from cdc_pipeline.sink.spark.catalog import register
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import table_at
from tests.support.sink_values import applied, column, delete, insert, table_schema, update
from tests.support.waits import wait_until

pytestmark = [pytest.mark.spark]

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("amount", Kind.INT64)], "id")
ITEMS = table_schema(
    "shop.odd items", [column("id", Kind.INT32), column("amount", Kind.INT64)], "id"
)
DELETION_VECTORS = "'delta.enableDeletionVectors' = 'true'"
EAGER = MaintenanceConfig(small_files=2, deleted_rows=0.01, vacuum_hours=0)


class Lake:
    def __init__(self, lake: Path, provider: SparkProvider, **settings: Any) -> None:
        self.config = SinkConfig(lake_path=lake, merge_threads=2, **settings)
        self.sink = DeltaSink(source="shop", config=self.config, spark=provider)
        self.paths = self.sink.paths
        self.provider = provider

    def maintained(
        self, thresholds: MaintenanceConfig = EAGER, **options: Any
    ) -> dict[str, TableMaintenance]:
        report = maintain(self.paths, self.config, thresholds, spark=self.provider, **options)
        assert not report.failed, report
        return {done.table: done for done in report.tables}

    def sum_at(self, table: str, as_of: Any) -> int:
        frame = cdc_pipeline.read(
            self.paths.lake, table, as_of=as_of, spark=self.provider.session()
        )
        return sum(row["amount"] for row in frame.collect())


@pytest.fixture
def lake(tmp_path: Path, provider: SparkProvider) -> Lake:
    """Three cuts: 100 moves from an item to an order with each; cut 3 changes orders alone."""
    made = Lake(tmp_path / "lake", provider)
    with made.sink.lock():
        applied(
            made.sink, 1, (ORDERS, [insert(id=1, amount=100), insert(id=2, amount=0)], 1),
            (ITEMS, [insert(id=1, amount=900), insert(id=2, amount=50), insert(id=3, amount=0)],
                11),
        )  # fmt: skip
        applied(
            made.sink, 2, (ORDERS, [update({"id": 1, "amount": 100}, {"id": 1, "amount": 200})],
                21),
            (ITEMS, [update({"id": 1, "amount": 900}, {"id": 1, "amount": 800}), delete(id=2,
                amount=50)], 31),
        )  # fmt: skip
    return made


@pytest.mark.whole
def test_k15_the_way_of_a_lake_through_maintenance(lake: Lake, spark: Any, tmp_path: Path) -> None:
    """One lake, since each statement costs: the steps are in the order of a lake's life."""
    # -- read as of cuts
    assert [lake.sum_at("shop.orders", n) + lake.sum_at("shop.odd items", n) for n in (1, 2)] == [
        1050,
        1000,
    ]
    assert lake.sum_at("shop.orders", None) == 200
    # -- views
    for statement in view_statements(lake.paths, find_cut(lake.paths, 1), schema="at1"):
        spark.sql(statement).collect()
    assert (
        spark.sql(
            "SELECT sum(amount) FROM (TABLE at1.orders UNION ALL TABLE at1.odd_items)"
        ).collect()[0][0]
        == 1050
    )
    # -- a copy
    copy = materialize(spark, lake.paths, find_cut(lake.paths, 1), tmp_path / "copy")
    assert materialize(spark, lake.paths, find_cut(lake.paths, 1), tmp_path / "copy") == copy, (
        "gone on with: no change"
    )
    with pytest.raises(LakeStateError, match="holds another table"):
        materialize(spark, lake.paths, find_cut(lake.paths, 2), tmp_path / "copy")
    # -- new tables have the retention; a catalog
    properties = _properties(lake, "shop.orders")
    assert {properties[LOG_RETENTION], properties[FILE_RETENTION]} == {"interval 604800 seconds"}
    config = CatalogConfig(database="registered", name="{schema}_{table}")
    for _ in range(2):
        register(spark, lake.paths, config, "shop.orders")
    assert spark.sql("SELECT sum(amount) FROM registered.shop_orders").collect()[0][0] == 200
    for _ in range(2):  # K22: two names that are one in the catalog
        register(
            spark,
            lake.paths,
            CatalogConfig(database="registered", name="shop_orders"),
            "shop.odd items",
        )
    (other,) = (
        row.tableName
        for row in spark.sql("SHOW TABLES IN registered LIKE 'shop_orders_*'").collect()
    )
    assert spark.sql(f"SELECT sum(amount) FROM registered.{other}").collect()[0][0] == lake.sum_at(
        "shop.odd items", None
    )
    with pytest.raises(CatalogNameError, match="is another table"):
        register(spark, copy, config, "shop.orders")
    # -- K15: a retention that is over at once, so that a vacuum takes what no newer version needs
    lake.config = lake.config.model_copy(update={"cut_retention": timedelta(0)})
    with lake.sink.lock(), mock.patch.object(maintenance, "_LOCK_WAIT_S", 0):
        deferred = lake.maintained(MaintenanceConfig(deleted_rows=1), tables=["shop.odd items"])[
            "shop.odd items"
        ]
    assert "could not be set" in deferred.skipped
    assert not deferred.properties
    first = lake.maintained(tables=["shop.odd items"])["shop.odd items"]
    assert (first.optimized, first.vacuum, set(first.properties)) == (
        True,
        "",
        {LOG_RETENTION, FILE_RETENTION},
    )
    assert first.files_removed >= 1
    # The table's commits since the cut are its own maintenance: nothing that a run stops at.
    assert lake.sink.failing_targets(find_cut(lake.paths)) == {}
    # The source is at rest: the newest cut names the version from before the compaction.
    with mock.patch.object(lake.provider, "session", side_effect=AssertionError("Spark starts")):
        at_rest = lake.maintained(tables=["shop.odd items"])["shop.odd items"]
    assert "the newest cut reads files that it would remove" in at_rest.skipped
    assert lake.sum_at("shop.odd items", None) == 800
    old = find_cut(lake.paths)
    with lake.sink.lock():
        applied(
            lake.sink, 3, (ORDERS, [update({"id": 1, "amount": 200}, {"id": 1, "amount": 300})], 41)
        )
    # Batch 3 did not change the table, its cut names the version after the maintenance all the
    # same.
    assert lake.sum_at("shop.odd items", 3) == 800
    # While cut 3 is younger than the retention, cut 2 is kept: it was the newest until then.
    since = f"{maintain.__module__}.oldest_kept"
    with mock.patch(since, return_value=(old.batch_number, old.published_at_us)):
        spared = lake.maintained(tables=["shop.odd items"])["shop.odd items"]
    assert (spared.vacuum, spared.files_deleted) == ("lite", 0)
    check_readable(lake.paths, old, "shop.odd items")
    # The retention is none, so cut 3 is older than it, and cut 2 goes with this maintenance.
    vacuumed = lake.maintained(tables=["shop.odd items"])["shop.odd items"]
    assert vacuumed.vacuum == "lite"
    assert vacuumed.files_deleted >= 1
    assert lake.sum_at("shop.odd items", 3) == 800
    with pytest.raises(TableNotInCutError, match=r"its file .* is gone"):
        check_readable(lake.paths, old, "shop.odd items")
    with pytest.raises(CutNotFoundError, match="3 to 3"):
        lake.sum_at("shop.odd items", 1)
    assert (
        sum(
            row["amount"]
            for row in cdc_pipeline.read(
                copy.lake, "shop.odd items", as_of=1, spark=spark
            ).collect()
        )
        == 950
    )


def _properties(lake: Lake, table: str) -> dict[str, str]:
    log = read_table_log(lake.paths.table(table))
    assert log is not None
    return log.properties


@pytest.mark.whole
def test_k16_a_batch_that_meets_a_compaction_is_done_again(spark: Any, tmp_path: Path) -> None:
    """A real MERGE that has read the table while OPTIMIZE replaces its files is refused once."""
    path, started, go = tmp_path / "t", tmp_path / "started", tmp_path / "go"
    spark.sql(
        f"CREATE TABLE {table_at(path)} (id INT, amount INT) USING delta TBLPROPERTIES "
        f"({DELETION_VECTORS})"
    )
    for number in range(2):
        spark.sql(f"INSERT INTO {table_at(path)} VALUES ({number}, 0)").collect()

    def wait(value: int) -> int:
        started.touch()
        until = time.monotonic() + 120
        while not go.exists():
            assert time.monotonic() < until, "nobody let the merge go on"
            time.sleep(0.05)
        return value

    from pyspark.sql.functions import udf

    session = spark.newSession()
    session.udf.register("wait_for_go", udf(wait, "int"))
    tries = []

    def work() -> None:
        tries.append(1)
        # One task: the session's other core is for OPTIMIZE.
        source = "SELECT wait_for_go(CAST(id AS INT)) AS id, 7 AS amount FROM range(0, 2, 1, 1)"
        try:
            session.sql(
                f"MERGE INTO {table_at(path)} t USING ({source}) s ON t.id = s.id WHEN MATCHED "
                "THEN UPDATE SET *"
            ).collect()
        except Exception as error:
            raise MergeError("refused") from error

    with ThreadPoolExecutor(1) as thread:
        merging = thread.submit(again_on_conflict, work)
        wait_until(started.exists, "the merge did not start")
        spark.sql(f"OPTIMIZE {table_at(path)}").collect()
        go.touch()
        merging.result()
    assert len(tries) == 2
    assert sorted(map(tuple, table_frame(spark, path).collect())) == [(0, 7), (1, 7)]


def test_another_failure_is_not_tried_again() -> None:
    tries = []

    def work() -> None:
        tries.append(1)
        raise MergeError("no room left") from ValueError("disk full")

    with pytest.raises(MergeError, match="no room"):
        again_on_conflict(work)
    assert len(tries) == 1


def test_work_whose_session_a_connect_server_has_dropped_is_done_in_another() -> None:
    answers = iter([MergeError("it failed", got="[INVALID_HANDLE.SESSION_NOT_FOUND]"), None])

    def work() -> int:
        if (error := next(answers)) is not None:
            raise error
        return 7

    assert again_on_conflict(work) == 7
