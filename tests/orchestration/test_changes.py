"""An asset that takes the changes of a lake's tables: each once, whatever fails in between (K3)."""

# No postponed annotations: Dagster refuses a step's own as text.

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline import cdc_changes
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import ConfigError, CutNotFoundError, LockError
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.changes import CHANGES_ENTRY
from cdc_pipeline.orchestration.jobs.run_retention import delete_old_runs
from cdc_pipeline.orchestration.translator import SOURCE_TAG, CdcTranslator
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.lake import Lake, open_lake
from tests.support.sink_values import applied, column, delete, insert, table_schema, update

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("n", Kind.INT32)], "id")
ITEMS = table_schema("shop.items", [column("id", Kind.INT32), column("n", Kind.INT32)], "id")
KEY = dg.AssetKey("order_facts")


class Consumer:
    def __init__(self, instance: dg.DagsterInstance, lake: Path) -> None:
        self.instance, self.lake = instance, lake
        self.tables: list[str] | None = ["shop.orders"]
        self.fails = False
        self.from_cut: int | None = None
        self.meanwhile: Callable[[dg.AssetExecutionContext], None] = lambda _: None

    def run(self) -> list[tuple[str, int]]:
        """The changes that the asset takes: operation, id."""
        taken: list[tuple[str, int]] = []

        @dg.asset(key=KEY)
        def order_facts(context: dg.AssetExecutionContext) -> None:
            changes = cdc_changes(context, self.lake, self.tables, from_cut=self.from_cut)
            for table in changes.tables:
                rows = changes.read(table).read_all().to_pylist()
                taken.extend((row["operation"], row["key"]["id"]) for row in rows)
            self.meanwhile(context)
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
        applied(sink, 4, (ORDERS, [insert(id=3, n=3)], 40))
        assert consumer.run() == [("insert", 3)], "after runs without a newer cut"
        last = sink.paths.cut(4)
        content = last.read_bytes()
        last.unlink()  # as if its retention had ended
        with pytest.raises(CutNotFoundError, match="there is no cut 4") as removed:
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
        assert sorted(consumer.run()) == [("insert", 2), ("insert", 3), ("insert", 7)]


def test_k3_f162_the_run_that_an_assets_next_changes_follow_is_not_deleted(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """A person has reported a materialization since, which has no run."""
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    consumer = Consumer(instance, tmp_path / "lake")
    with sink.lock():
        applied(sink, 1, (ORDERS, [insert(id=1, n=1), insert(id=2, n=2)], 10))
        assert consumer.run() == [("insert", 1), ("insert", 2)]
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY))
        for run_id in instance.get_run_ids():
            instance.add_run_tags(run_id, {SOURCE_TAG: "shop"})
        delete_old_runs(instance, source="shop", retention=timedelta(0), translator=CdcTranslator())
        applied(sink, 2, (ORDERS, [delete(id=1, n=1)], 20))
    assert consumer.run() == [("delete", 1)]


def test_k3_what_was_begun_is_found_or_goes_on(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    consumer = Consumer(instance, tmp_path / "lake")
    with sink.lock():
        for number in (1, 2, 3):
            applied(sink, number, (ORDERS, [insert(id=number, n=1)], 10 * number))
        consumer.from_cut, consumer.fails = 1, True
        other = dg.AssetObservation(KEY)

        def meanwhile(context: dg.AssetExecutionContext) -> None:
            for _ in range(60):
                context.log_event(other)

        consumer.meanwhile = meanwhile
        assert consumer.run() == [("insert", 2), ("insert", 3)]
        applied(sink, 4, (ORDERS, [insert(id=4, n=1)], 40))
        assert consumer.run() == [("insert", 2), ("insert", 3)], "under 60 others"
        sink.paths.cut(3).unlink()  # as if it were no longer readable
        consumer.fails = False
        assert consumer.run() == [("insert", 2), ("insert", 3), ("insert", 4)]
        assert consumer.run() == []
        last = sink.paths.cut(4)
        published = Cut.model_validate_json(last.read_bytes()).published_at_us
        last.write_text(last.read_text().replace(str(published), str(published + 1)))
        with pytest.raises(CutNotFoundError, match="cut 4 is another one") as refused:
            consumer.run()
    assert "or wipe the asset's materializations" in str(refused.value.next_step)


def test_k3_two_runs_do_not_take_the_same_changes(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    consumer, second = (Consumer(instance, tmp_path / "lake") for _ in range(2))
    with sink.lock():
        applied(sink, 1, (ORDERS, [insert(id=1, n=1)], 10))

    def meanwhile(_: dg.AssetExecutionContext) -> None:
        with pytest.raises(LockError, match="another run is taking"):
            second.run()

    consumer.meanwhile = meanwhile
    assert consumer.run() == [("insert", 1)]
    # One that began earlier and ends later moves nothing back.
    entry = {"tables": ["shop.orders"], "net": True, "source": "shop", "to_cut": 0}

    @dg.asset(key=KEY)
    def late(context: dg.AssetExecutionContext) -> None:
        context.add_output_metadata({CHANGES_ENTRY: dg.MetadataValue.json(entry)})

    dg.materialize([late], instance=instance)
    assert second.run() == []


@pytest.mark.parametrize("fails", [False, True])
def test_k3_of_runs_that_begin_at_one_moment_one_goes_on(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Both have seen that no run takes changes; the later one leaves no trace."""
    sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / "lake"))
    consumer, other = (Consumer(instance, tmp_path / "lake") for _ in range(2))
    with sink.lock():
        applied(sink, 1, (ORDERS, [insert(id=1, n=1)], 10))
        assert consumer.run() == [("insert", 1)]
        applied(sink, 2, (ORDERS, [insert(id=2, n=1)], 20))

    def open_late(lake: Path) -> Lake:
        """As another run begins."""
        monkeypatch.setattr("cdc_pipeline.orchestration.changes.open_lake", open_lake)
        other.fails = fails
        assert other.run() == [("insert", 2)]
        with sink.lock():
            applied(sink, 3, (ORDERS, [insert(id=3, n=1)], 30))
        return open_lake(lake)

    monkeypatch.setattr("cdc_pipeline.orchestration.changes.open_lake", open_late)
    with pytest.raises(LockError, match="another run is taking"):
        consumer.run()
    other.fails = False
    assert other.run() == [("insert", 2 if fails else 3)]


def test_an_asset_with_partitions_is_refused(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(["a"]),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def parted(context: dg.AssetExecutionContext) -> None:
        cdc_changes(context, tmp_path, None)

    with pytest.raises(ConfigError, match="no order"):
        dg.materialize([parted], instance=instance, partition_key="a")
    bounds = ("start", "end")
    tags = {f"dagster/asset_partition_range_{bound}": "a" for bound in bounds}
    with pytest.raises(ConfigError, match="no order"):
        dg.materialize([parted], instance=instance, tags=tags)
