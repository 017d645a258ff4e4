"""Backfills by table and day, of a server whose clock is moved."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.runs.execute import execute_capture, load_source
from tests.orchestration.failures import failure_of
from tests.servers.preload import MovedClock
from tests.servers.server import Server
from tests.support.captures import memory as memory
from tests.support.comparison import lake_rows
from tests.support.dagster_runs import stored_run
from tests.support.memory_sink import MemoryLake
from tests.support.project import Project, follow_server

KEY = dg.AssetKey(["shop", "backfill"])
_DAY = timedelta(days=1)


@pytest.mark.mysql
def test_k18_days_of_a_changelog_are_partitions_that_are_filled_once(
    project: Project, instance: dg.DagsterInstance, memory: MemoryLake, tmp_path: Path
) -> None:
    """Days that follow each other are one run and one cut, with the tags of a backfill. A day that
    the log does not reach as a whole is refused, or what it lacks would be lost without a word."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    clock = MovedClock(tmp_path / "clock")

    def at(server: Server, days: int) -> None:
        clock.move(int((today + days * _DAY + _DAY / 2).timestamp() - time.time()))
        server.new_session()
        server.flush_journal()

    clock.move(int((today - 3 * _DAY + _DAY / 2).timestamp() - time.time()))
    with Server("mysql", environment=clock.environment) as server:
        server.execute("CREATE DATABASE d")
        for table in ("visits", "orders"):
            server.execute(f"CREATE TABLE d.{table} (id INT PRIMARY KEY)")
        at(server, -2)
        server.execute("INSERT INTO d.visits VALUES (1), (2)")
        at(server, -1)
        server.execute("INSERT INTO d.visits VALUES (3)")
        clock.move(0)
        server.new_session()
        server.flush_journal()
        follow_server(
            project,
            server,
            "d.*",
            targets=[{"tables": ["d.visits"], "mode": "changelog"}],
            dagster={"backfill_from": (today - 4 * _DAY).date().isoformat()},
        )
        loaded = load_source(project.jobs, "shop")
        assert execute_capture(loaded, instance=instance).succeeded
        server.execute("INSERT INTO d.visits VALUES (4)")
        server.execute("INSERT INTO d.orders VALUES (1)")
        assert execute_capture(loaded, instance=instance).succeeded
        definitions = build_definitions(project.jobs)
        partitions = definitions.resolve_asset_graph().get(KEY).partitions_def
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        names = {of.name: of.partitions_def for of in partitions.partitions_defs}
        assert list(names["table"].get_partition_keys()) == ["d.visits"], "no mirror"
        job = definitions.resolve_job_def("shop_backfill")

        def backfill(first: int, last: int) -> dg.ExecuteInProcessResult:
            begin, end = (f"d.visits|{(today + day * _DAY).date()}" for day in (first, last))
            return job.execute_in_process(
                instance=instance,
                raise_on_error=False,
                tags={
                    "dagster/asset_partition_range_start": begin,
                    "dagster/asset_partition_range_end": end,
                },
            )

        done, again, refused = backfill(-2, -1), backfill(-2, -1), backfill(-3, -3)
        assert backfill(-1, -1).success, "a part of what was filled"
    assert done.success
    assert again.success
    rows = lake_rows(memory, project.lake, "d", "visits_changelog", ["id", "_cdc_op"])
    assert rows == [(1, "insert"), (2, "insert"), (3, "insert"), (4, "insert")]
    run = stored_run(instance, done.run_id)
    assert (run.tags["cdc/source"], run.tags["cdc/kind"]) == ("shop", "backfill")
    told = [
        (event.partition, event.metadata["rows_of_range"].value, event.metadata["cut"].value)
        for event in done.asset_materializations_for_node("backfill_shop")
        if event.asset_key == KEY
    ]
    days = [str((today + day * _DAY).date()) for day in (-2, -1)]
    assert told == [(f"d.visits|{day}", 3, told[0][2]) for day in days]
    assert instance.get_materialized_partitions(KEY) == {f"d.visits|{day}" for day in days}
    assert "the log begins after the range does" in str(failure_of(refused).description)
