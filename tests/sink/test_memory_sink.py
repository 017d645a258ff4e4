"""Tables in memory hold what Delta's do: the same recorded journal, captured into both, in every
mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.lake.records import Cut
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.delta_reader import read_delta
from tests.support.memory_modes import comparable
from tests.support.memory_shop import MemoryShop, memory_shop

TABLES = ["shop.typed", "shop.pair", "shop.plain", "shop.isam", "shop.copied"]
STEPS_MAX = 40
RULES: dict[str, list[dict[str, Any]]] = {
    "mirror": [{"mode": "mirror", "keyless": "row_hash"}],
    "soft_delete": [
        {"tables": ["shop.plain", "shop.copied"], "mode": "changelog"},
        {"mode": "soft_delete", "name": "{schema}.{table}"},
    ],
    "history": [
        {"tables": ["shop.plain", "shop.copied"], "mode": "changelog"},
        {"tables": ["shop.pair"], "mode": "history", "track": ["c"], "name": "{schema}.tracked"},
        {"mode": "history", "name": "{schema}.{table}"},
    ],
    "changelog": [{"mode": "changelog", "name": "{schema}.{table}"}],
}


def facts(cut: Cut) -> dict[str, Any]:
    named = {"table_version", "transaction_version", "facts"}
    return {name: table.model_dump(exclude=named) for name, table in cut.tables.items()}


def shop_of(folder: Path, rules: str) -> MemoryShop:
    return memory_shop(folder, include=TABLES, targets=RULES[rules], sink={"merge_threads": 2})


@pytest.mark.whole
@pytest.mark.spark
@pytest.mark.parametrize("rules", list(RULES))
def test_a_captured_journal_is_the_same_in_memory_as_in_delta(
    tmp_path: Path, sink_provider: SparkProvider, rules: str
) -> None:
    """Rows, counts and suspensions, at the end of the journal."""
    memory, delta = shop_of(tmp_path / "memory", rules), shop_of(tmp_path / "delta", rules)
    of_memory = memory.run()
    sink = DeltaSink(source="shop", config=delta.config.sink, spark=sink_provider)
    of_delta = capture(delta.config, cursors=delta.cursors, sink=sink)
    expected, got = delta.last_cut(), memory.last_cut()
    assert (of_memory.batches, of_memory.interval) == (of_delta.batches, of_delta.interval)
    assert facts(got) == facts(expected)
    for name, table in expected.tables.items():
        rows = read_delta(delta.paths.table(name), table.table_version).rows
        assert comparable(memory.rows(name, got.tables[name].table_version)) == comparable(rows), (
            name
        )


@pytest.mark.parametrize("rules", RULES)
def test_k2_runs_of_any_length_that_are_killed_anywhere_end_alike(
    tmp_path: Path, rules: str
) -> None:
    """Runs of two transactions each, the first try of every second one killed after its record:
    what the tables hold at the end does not depend on it."""
    whole = shop_of(tmp_path / "whole", rules)
    whole.run()
    shop = shop_of(tmp_path / "pieces", rules)
    ends_at = whole.last_cut().cursor.position
    for number in range(STEPS_MAX):
        if number % 2:
            shop.may_stop_at("after_record", 2)
        shop.run(2)
        assert shop.cursors.cursor is not None
        if shop.cursors.cursor.position == ends_at:
            break
    assert shop.last_cut().batch_number > 5
    for name in whole.last_cut().tables:
        assert comparable(shop.rows(name)) == comparable(whole.rows(name)), name
