"""A time in which MySQL gave no GTIDs: whoever reads by a GTID set would be sent what comes behind
it, and nothing of it (K5, F148)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, PositionConfig
from cdc_pipeline.errors import ServerSettingError
from cdc_pipeline.operations.backfill.gap import fill_gap
from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.plan.planning import plan
from tests.position.start.test_start_on_servers import set_mode
from tests.servers import Server
from tests.support.captures import live
from tests.support.comparison import lake_rows
from tests.support.memory_sink import MemoryLake

pytestmark = pytest.mark.mysql


def place(server: Server) -> PositionConfig:
    journal, offset = server.end_position()
    return PositionConfig(journal=journal, offset=offset)


def test_k5_f148_it_is_read_by_place_or_refused_and_moves_the_cursor_forward(
    start_server: Callable[..., Server],
    make_config: Callable[..., PipelineConfig],
    memory: MemoryLake,
) -> None:
    server = start_server("mysql")
    server.execute_all("CREATE DATABASE a", "CREATE TABLE a.t (k INT PRIMARY KEY)")
    server.execute("INSERT INTO a.t VALUES (1)")
    begin, begin_set = place(server), server.gtid_set()
    set_mode(server, "OFF")
    server.execute("INSERT INTO a.t VALUES (2)")
    server.flush_journal()
    server.execute("INSERT INTO a.t VALUES (3)")
    set_mode(server, "ON")
    server.execute("INSERT INTO a.t VALUES (4)")
    end = place(server)
    config = partial(
        make_config,
        live(server),
        include=["a.t"],
        targets=[{"tables": ["a.t"], "mode": "changelog"}],
    )
    by_set = config(start={"gtid_set": begin_set})
    for run in (plan, capture):
        with pytest.raises(ServerSettingError, match="gtid_mode is ON"):
            run(by_set, cursors=MemoryCursorStore())

    changelog, cursors = config(start=end), MemoryCursorStore()
    server.execute("INSERT INTO a.t VALUES (5)")
    capture(changelog, cursors=cursors)
    fill = partial(fill_gap, changelog, table="a.t", cursors=cursors, start=begin, end=end)
    rows = partial(
        lake_rows, memory, changelog.sink.lake_path, "a", "t_changelog", ["k", "_cdc_op"]
    )
    with pytest.raises(ServerSettingError, match="gtid_mode is ON"):
        fill()
    assert rows() == [(5, "insert")]
    set_mode(server, "ON_PERMISSIVE")
    assert fill().outcome == "applied"
    assert rows() == [(k, "insert") for k in range(2, 6)]

    # A cursor with a set, on a server that uses none: what lies between is passed over by a word.
    set_mode(server, "OFF")
    server.execute("INSERT INTO a.t VALUES (6)")
    change = plan_set(changelog, cursors=cursors, to="latest", who="a test")
    assert change.direction == "forward"
    apply_set(changelog, cursors=cursors, change=change)
    cursor = cursors.read()
    assert cursor is not None
    assert all(target.partial for target in cursor.targets.values())
