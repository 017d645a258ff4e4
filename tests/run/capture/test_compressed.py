"""The whole way from a server that compresses its journals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import assert_equal
from tests.support.memory_sink import MemoryLake
from tests.support.workload import COLUMNS, Workload, create_tables

OPTIONS: dict[str, dict[str, Any]] = {
    "mysql": {"binlog_transaction_compression": True},
    "mariadb": {"log_bin_compress": True, "log_bin_compress_min_len": 10},
}


@pytest.mark.mysql
@pytest.mark.mariadb
@pytest.mark.parametrize("flavor", ["mysql", pytest.param("mariadb", marks=pytest.mark.whole)])
def test_lake_follows_a_server_that_compresses(
    start_server: Callable[..., Server],
    flavor: str,
    make_config: Callable[..., PipelineConfig],
    memory: MemoryLake,
) -> None:
    """A ring smaller than the large transaction: payloads are split over many gets, the cursor
    stands behind them."""
    server = start_server(flavor, **OPTIONS[flavor])
    server.execute("CREATE DATABASE packed")
    config = make_config(
        live(server),
        include=[f"packed.{table}" for table in COLUMNS],
        start=here(server),
        store={"ring_events": 256},
    )
    cursors = MemoryCursorStore()
    create_tables(server, "packed")
    workload = Workload(server, "packed", seed=3)
    workload.run(40)
    workload.rolled_back_transaction()
    workload.large_transaction(2_000)
    first = capture(config, cursors=cursors)
    assert first.outcome == "applied"
    assert_equal(memory, config, server, "packed")

    workload.run(20)
    workload.close()
    second = capture(config, cursors=cursors)
    assert second.outcome == "applied"
    assert_equal(memory, config, server, "packed")
    cursor = cursors.read()
    assert cursor is not None
    assert (cursor.position.journal, cursor.position.offset) == server.end_position()
