"""What a run asks a store for: as much as has changed, however long the lake's history is."""

from __future__ import annotations

import json

from deltalake import DeltaTable

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.lake.storage.object_storage import storage_for
from cdc_pipeline.lake.storage.storage_settings import delta_options
from cdc_pipeline.sink.delta import log_copy
from cdc_pipeline.sink.delta.replay import row_count
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.campaigns.objects.faulty_store import FaultyStore
from tests.support.object_store import Store
from tests.support.sink_values import applied, column, insert, table_schema, update

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("v", Kind.INT32)], "id")
ITEMS = table_schema("shop.items", [column("id", Kind.INT32), column("v", Kind.INT32)], "id")
NAME = "shop.orders"
COMMITS = 14


def test_k3_a_table_costs_what_has_changed_and_whatever_happens_to_it_is_noticed(
    store: Store,
) -> None:
    with FaultyStore(store.endpoint) as proxy:
        sink = DeltaSink(source="shop", config=store.sink_config(endpoint=proxy.endpoint))
        path = sink.paths.table(NAME)

        def asked(since: int) -> list[str]:
            requests = [
                r for r in proxy.requests[since:] if "orders" in r.path and "_delta_log" in r.path
            ]
            return [f"{r.method} {'list' if '?' in r.path else ''}".strip() for r in requests]

        for number in range(1, COMMITS + 1):
            storage_for.cache_clear()  # each run is a process
            log_copy._tails.clear()
            before = len(proxy.requests)
            changes = [insert(id=number, v=0)]
            if number > 1:
                changes.append(update({"id": 1, "v": number - 2}, {"id": 1, "v": number - 1}))
            with sink.lock():
                last = sink.last_cut()
                assert last is None or sink.failing_targets(last) == {}
                cut = applied(sink, number, (ORDERS, changes, 100 * number))
            assert cut.tables[NAME].engine == "plain"
            if number > 2:
                assert len(asked(before)) <= 9, asked(before)
        assert (row_count(path), cut.tables[NAME].table_version) == (COMMITS, COMMITS)
        assert DeltaTable(str(path), storage_options=delta_options(path)).version() == COMMITS
        before = len(proxy.requests)
        with sink.lock():
            assert sink.failing_targets(cut) == {}
        assert asked(before) == ["GET list"]

        log = read_table_log(path)
        assert log is not None
        assert (log.version, log.app_id) == (COMMITS, cut.cursor.targets[NAME].app_id)
        foreign = {"commitInfo": {"operation": "WRITE", "userMetadata": "{}"}}
        newest = path / "_delta_log" / f"{COMMITS:020d}.json"
        own = newest.read_text()
        newest.with_name(f"{COMMITS + 1:020d}.json").write_text(json.dumps(foreign))
        with sink.lock():
            assert set(sink.failing_targets(cut)) == {NAME}
        newest.with_name(f"{COMMITS + 1:020d}.json").unlink()
        with sink.lock():
            assert sink.failing_targets(cut) == {}
        newest.write_text(own.replace('"txn"', '"txn" '))  # another object of the same name
        before = len(proxy.requests)
        with sink.lock():
            assert sink.failing_targets(cut) == {}
        assert len(asked(before)) > 1, "it is compared in full"
        assert not sink.spark_started


def test_k15_a_cut_moves_over_maintenance_that_ran_beside_its_run(store: Store) -> None:
    """Otherwise a quiet source's newest cut would lose its files to a vacuum."""
    sink = DeltaSink(source="shop", config=store.sink_config())
    log = sink.paths.table(NAME) / "_delta_log"
    with sink.lock():
        cut = applied(sink, 1, (ORDERS, [insert(id=1, v=0)], 100))
        assert cut.cursor.targets[NAME].applied_batch == 1
        assert sink.failing_targets(cut) == {}
        version = cut.tables[NAME].table_version + 1
        optimize = {"commitInfo": {"operation": "OPTIMIZE", "operationParameters": {}}}
        (log / f"{version:020d}.json").write_text(json.dumps(optimize))
        cut = applied(sink, 2, (ITEMS, [insert(id=1, v=0)], 200))
    assert cut.tables[NAME].table_version == version
