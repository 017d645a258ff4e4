"""An asset that takes the changes of a lake's tables: each once, whatever fails in between (K3)."""

# No postponed annotations: Dagster refuses a step's own as text.

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline import cdc_changes
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import ConfigError, CutNotFoundError
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.support.sink_values import applied, column, delete, insert, table_schema, update

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("n", Kind.INT32)], "id")
ITEMS = table_schema("shop.items", [column("id", Kind.INT32), column("n", Kind.INT32)], "id")
KEY = dg.AssetKey("order_facts")


class Consumer:
    def __init__(self, instance: dg.DagsterInstance, lake: Path) -> None:
        self.instance, self.lake = instance, lake
        self.tables: list[str] | None = ["shop.orders"]
        self.fails = False

    def run(self) -> list[tuple[str, int]]:
        """The changes that the asset takes: operation, id."""
        taken: list[tuple[str, int]] = []

        @dg.asset(key=KEY)
        def order_facts(context: dg.AssetExecutionContext) -> None:
            changes = cdc_changes(context, self.lake, self.tables)
            for table in changes.tables:
                rows = changes.read(table).read_all().to_pylist()
                taken.extend((row["operation"], row["key"]["id"]) for row in rows)
            if self.fails:
                raise ValueError("the warehouse does not answer")

        quiet: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        done = dg.materialize(
            [order_facts], instance=self.instance, run_config=quiet, raise_on_error=not self.fails
        )
        assert done.success is not self.fails
        return taken


def test_k3_an_asset_takes_each_change_once(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    consumer = Consumer(instance, tmp_path / "lake")
    with sink.lock():
        applied(sink, 1, (ORDERS, [insert(id=1, n=1), insert(id=2, n=2)], 10))
        consumer.fails = True
        assert consumer.run() == [("insert", 1), ("insert", 2)]
        applied(sink, 2, (ORDERS, [delete(id=1, n=1)], 20), (ITEMS, [insert(id=7, n=7)], 25))
        assert consumer.run() == [("insert", 1), ("insert", 2)], "the same again"
        consumer.fails = False
        assert consumer.run() == [("insert", 1), ("insert", 2)]
        consumer.fails = True
        assert consumer.run() == [("delete", 1)]
        applied(sink, 3, (ORDERS, [update({"id": 2, "n": 2}, {"id": 2, "n": 3})], 30))
        consumer.fails = False
        assert consumer.run() == [("delete", 1)]
        assert consumer.run() == [("update", 2)]
        assert consumer.run() == []
        # An event that a person reports says nothing.
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY))
        assert consumer.run() == []
        last = sink.paths.cut(3)
        content = last.read_bytes()
        last.unlink()  # as if its retention had ended
        with pytest.raises(CutNotFoundError, match="there is no cut 3") as removed:
            consumer.run()
        assert "or wipe the asset's materializations" in str(removed.value.next_step)
        last.write_bytes(content)
        consumer.tables = ["shop.items", "shop.orders"]
        with pytest.raises(ConfigError, match="has taken other changes") as refused:
            consumer.run()
        assert "wipe" in str(refused.value.next_step)
        consumer.tables = None
        with pytest.raises(ConfigError, match="has taken other changes"):
            consumer.run()
        instance.wipe_assets([KEY])
        assert sorted(consumer.run()) == [("insert", 2), ("insert", 7)]


def test_an_asset_with_partitions_is_refused(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def parted(context: dg.AssetExecutionContext) -> None:
        cdc_changes(context, tmp_path, None)

    with pytest.raises(ConfigError, match="no order"):
        dg.materialize([parted], instance=instance, partition_key="a")
