"""After `cursor set` back, a run converges to the server's SELECT; forward leaves a named gap (K3,
K18, K19)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import GtidConfig, PipelineConfig, PositionConfig
from cdc_pipeline.errors import JournalMissingError
from cdc_pipeline.operations.cursor.cursor_change import CursorChange, apply_set, plan_set
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake
from tests.support.workload import COLUMNS, Workload, create_tables

MakeConfig = Callable[..., PipelineConfig]


def _set(config: PipelineConfig, cursors: MemoryCursorStore, to: Any) -> CursorChange:
    change = plan_set(config, cursors=cursors, to=to, who="a test")
    apply_set(config, cursors=cursors, change=change)
    return change


@pytest.mark.whole
def test_k18_a_run_after_set_back_equals_the_servers_select_and_forward_marks_tables_partial(
    mysql_server: Server, mysql_database: str, make_config: MakeConfig, memory: MemoryLake
) -> None:
    """Inserts, key updates, swaps and deletes are read twice; rows that are newer in the lake
    stay."""
    tables = [f"{mysql_database}.{table}" for table in COLUMNS]
    config = make_config(live(mysql_server), include=tables, start=here(mysql_server))
    cursors = MemoryCursorStore()
    create_tables(mysql_server, mysql_database)
    journal, offset = mysql_server.end_position()
    workload = Workload(mysql_server, mysql_database, seed=3)
    workload.run(30)
    assert capture(config, cursors=cursors).outcome == "applied"
    workload.run(15)

    back = _set(config, cursors, PositionConfig(journal=journal, offset=offset))
    assert back.direction == "back"
    report = capture(config, cursors=cursors)
    assert report.plan.start.offset == offset
    for table, columns in COLUMNS.items():
        expected = server_rows(mysql_server, mysql_database, table, columns)
        assert (
            lake_rows(memory, config.sink.lake_path, mysql_database, table, columns) == expected
        ), table
    assert report.cursor is not None
    assert not any(target.partial for target in report.cursor.targets.values())
    assert [entry.cursor.batch_number for entry in cursors.history(9)] == [3, 2, 1]

    workload.run(1)
    workload.close()
    forward = _set(config, cursors, "latest")
    assert forward.direction == "forward"
    idle = capture(config, cursors=cursors)
    assert idle.cursor is not None
    assert set(idle.cursor.targets) == set(tables)
    assert all(target.partial for target in idle.cursor.targets.values())
    assert set(idle.plan.partial_tables) == set(tables)


def test_k3_set_by_gtid_set_on_both_servers(
    server: Server, fresh_database: str, make_config: MakeConfig
) -> None:
    """Back and forward are told by the sets; what was purged is refused."""
    config = make_config(live(server), include=["nowhere.*"], start="latest")
    cursors = MemoryCursorStore()
    before = server.gtid_set()
    capture(config, cursors=cursors)
    server.execute(f"CREATE TABLE `{fresh_database}`.t (id INT PRIMARY KEY)")
    server.execute(f"INSERT INTO `{fresh_database}`.t VALUES (1)")
    end = capture(config, cursors=cursors).cursor
    assert end is not None
    back = _set(config, cursors, GtidConfig(gtid_set=before))
    assert back.direction == "back"
    told = (
        "2 transactions"
        if server.flavor == "mysql"
        else f"everything after {before} up to {end.gtid_set}"
    )
    assert told in back.consequences[0]
    report = capture(config, cursors=cursors)
    assert report.interval.transactions_seen == 2
    assert report.cursor is not None
    assert (report.cursor.gtid_set, report.cursor.epoch) == (end.gtid_set, 1)


@pytest.mark.mysql
def test_k3_set_to_a_purged_place_is_refused(start_server: Any, make_config: MakeConfig) -> None:
    server = start_server("mysql")
    journal, _ = server.end_position()
    config = make_config(live(server), include=["nowhere.*"], start="latest")
    server.flush_journal()
    server.execute("CREATE DATABASE d")
    server.flush_journal()
    server.purge_to(server.end_position()[0])
    for to in (
        PositionConfig(journal=journal),
        GtidConfig(gtid_set=server.variable("server_uuid") + ":1"),
    ):
        with pytest.raises(JournalMissingError) as caught:
            plan_set(config, cursors=MemoryCursorStore(), to=to, who="a test")
        assert caught.value.next_step
