"""The whole way on real servers: whatever the server did, the lake's tables equal its SELECT."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, TransactionsBoundConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import assert_equal, lake_rows, server_rows
from tests.support.memory_sink import MemoryLake
from tests.support.workload import COLUMNS, Workload, create_tables

MakeConfig = Callable[..., PipelineConfig]


@pytest.mark.spark
def test_lake_follows_the_server(
    server: Server, fresh_database: str, make_config: MakeConfig, spark: Any
) -> None:
    """Inserts, updates, deletes, key updates and swaps, rollbacks, a transaction larger than the
    ring, ADD COLUMN."""
    config = make_config(
        live(server),
        include=[f"{fresh_database}.{table}" for table in COLUMNS],
        start=here(server),
        store={"ring_events": 256},
    )
    cursors = MemoryCursorStore()
    create_tables(server, fresh_database)
    workload = Workload(server, fresh_database, seed=1)
    workload.run(60)
    workload.rolled_back_transaction()
    workload.large_transaction(3_000)

    first = capture(config, cursors=cursors)
    assert first.outcome == "applied"
    assert_equal(spark, config, server, fresh_database)
    assert all(not table.partial for table in first.tables.values())

    server.execute(
        f"ALTER TABLE `{fresh_database}`.account ADD COLUMN level INT NOT NULL DEFAULT 7, ADD "
        "COLUMN memo TEXT"
    )
    server.execute(f"ALTER TABLE `{fresh_database}`.elsewhere ADD COLUMN x INT")
    server.flush_journal()
    server.execute(
        f"UPDATE `{fresh_database}`.account SET level = 8, memo = 'changed' WHERE id MOD 5 = 0"
    )
    server.execute(f"CREATE INDEX by_text ON `{fresh_database}`.label (kind)")
    second = capture(config, cursors=cursors)
    columns = [*COLUMNS["account"], "level", "memo"]
    assert lake_rows(
        spark, config.sink.lake_path, fresh_database, "account", columns
    ) == server_rows(server, fresh_database, "account", columns)
    decisions = {decision.kind: decision.decision for decision in second.ddl}
    assert decisions == {"alter_table": "applied", "create_index": "recorded"}, second.ddl
    assert second.interval.start.order == first.interval.end.order

    third = capture(config, cursors=cursors)
    assert third.outcome == "nothing_new"
    assert third.reason
    workload.close()


def test_k2_bounded_runs_join_and_the_cursor_follows_each_cut(
    mysql_server: Server,
    mysql_database: str,
    make_config: MakeConfig,
    memory: MemoryLake,
    tmp_path: Path,
) -> None:
    """Runs of a few transactions each cover the log without a gap, and end where one run would."""
    config = make_config(
        live(mysql_server),
        include=[f"{mysql_database}.{table}" for table in COLUMNS],
        start=here(mysql_server),
    )
    create_tables(mysql_server, mysql_database)
    workload = Workload(mysql_server, mysql_database, seed=2)
    workload.run(12)
    workload.close()
    cursors = MemoryCursorStore()
    seen = 0
    reports = []
    while True:
        report = capture(config, cursors=cursors, bound=TransactionsBoundConfig(transactions=7))
        if report.outcome == "nothing_new":
            break
        assert report.interval.transactions_seen <= 7
        # At once, and not by the next run, which would make good for it (K3).
        cut = last_cut(LakePaths(config.sink.lake_path, config.name))
        written = [entry.cursor for entry in cursors.history(1000) if "cut" in entry.metadata]
        assert written[:1] == ([cut.cursor] if cut is not None else [])
        seen += report.interval.transactions_seen
        reports.append(report)
    assert len(reports) > 1
    for before, after in pairwise(reports):
        assert before.cursor is not None
        assert after.interval.start.order == before.interval.end.order
    assert_equal(memory, config, mysql_server, mysql_database)


def test_foreign_transactions_move_the_cursor_alone(
    server: Server, fresh_database: str, make_config: MakeConfig
) -> None:
    """A zero is proved: the position moves under the same batch number, and no JVM starts for
    it.
    """
    config = make_config(live(server), include=["nowhere.*"], start=here(server))
    create_tables(server, fresh_database)
    cursors = MemoryCursorStore()
    report = capture(config, cursors=cursors)
    assert report.outcome == "nothing_new"
    assert not report.spark_started
    assert cursors.cursor is not None
    assert cursors.cursor.batch_number == 0
    assert str(report.interval.transactions_seen) in report.reason
    assert report.interval.statements_ignored >= 4
    again = capture(config, cursors=cursors)
    assert again.interval.transactions_seen == 0
    assert again.interval.start.order == report.interval.end.order


@pytest.mark.whole
@pytest.mark.spark
def test_k10_partial_images(
    server: Server, fresh_database: str, make_config: MakeConfig, spark: Any
) -> None:
    """Updates that carry only some columns change only those, also across key updates."""
    config = make_config(live(server), include=[f"{fresh_database}.account"], start=here(server))
    create_tables(server, fresh_database)
    table = f"`{fresh_database}`.account"
    server.execute(
        f"INSERT INTO {table} VALUES (1, 'a', 1, NULL, 1), (2, 'b', 2, NULL, 0), (3, "
        "'c', 3, NULL, 1)"
    )
    cursors = MemoryCursorStore()
    capture(config, cursors=cursors)
    connection = server.root_connection()
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        cursor.execute(f"UPDATE {table} SET name = 'A' WHERE id = 1")
        cursor.execute(f"UPDATE {table} SET balance = 10 WHERE id = 1")
        cursor.execute(f"UPDATE {table} SET id = 20 WHERE id = 2")
        cursor.execute(f"UPDATE {table} SET name = 'moved' WHERE id = 20")
        cursor.execute(f"DELETE FROM {table} WHERE id = 3")
        cursor.execute(f"INSERT INTO {table} VALUES (3, 'again', 33, NULL, NULL)")
    connection.close()
    capture(config, cursors=cursors)
    columns = COLUMNS["account"]
    assert lake_rows(
        spark, config.sink.lake_path, fresh_database, "account", columns
    ) == server_rows(server, fresh_database, "account", columns)


def test_start_latest_holds_its_place(
    server: Server, fresh_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """A first run that finds nothing keeps its start: what comes before the second run is not lost.

    The table is older than that, so that it is labelled partial (K19).
    """
    create_tables(server, fresh_database)
    config = make_config(live(server), include=[f"{fresh_database}.label"], start="latest")
    cursors = MemoryCursorStore()
    assert capture(config, cursors=cursors).outcome == "nothing_new"
    assert cursors.cursor is not None
    server.execute(f"INSERT INTO `{fresh_database}`.label VALUES ('x', NULL, 'a')")
    report = capture(config, cursors=cursors)
    assert report.tables[f"{fresh_database}.label"].rows_inserted == 1
    assert report.tables[f"{fresh_database}.label"].partial


def test_decisions_of_a_run_without_rows_are_shown(
    server: Server, fresh_database: str, make_config: MakeConfig
) -> None:
    """A DDL that changes no target is a recorded decision, also where the run applies nothing."""
    create_tables(server, fresh_database)
    config = make_config(live(server), include=[f"{fresh_database}.label"], start=here(server))
    server.execute(f"CREATE INDEX by_kind ON `{fresh_database}`.label (kind)")
    cursors = MemoryCursorStore()
    report = capture(config, cursors=cursors)
    assert report.outcome == "nothing_new"
    assert [(decision.kind, decision.decision) for decision in report.ddl] == [
        ("create_index", "recorded")
    ]
    assert cursors.metadata["ddl"] == [decision.model_dump() for decision in report.ddl]
