"""Store gets are small, merge batches large (K9)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.comparison import lake_rows, server_rows
from tests.support.memory_sink import MemoryLake

MakeConfig = Callable[..., PipelineConfig]
TABLES = ("left_half", "right_half")
ROWS = 1200
GET_BYTES = 16 << 10
RING_EVENTS = 1024
MEMORY_UNIT_BYTES = 128


class _Enough(Exception):
    """The first batch is about to be recorded."""


class _Counts(RunObserver):
    """Counts gets, and batches that are about to be recorded; ends the run at the first of them
    where it is told to."""

    def __init__(self, *, ends_at_record: bool) -> None:
        self.gets = self.bytes_done = self.records = 0
        self._ends_at_record = ends_at_record

    def progressed(self, **counts: int) -> None:
        self.gets += 1
        self.bytes_done = counts["bytes_done"]

    def reached(self, point: str) -> None:
        if point == "before_record":
            self.records += 1
            if self._ends_at_record:
                raise _Enough


@pytest.fixture
def backlog(
    mysql_server: Server, mysql_database: str
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Source, start and tables of more than 1 MiB of log in some hundred transactions."""
    for table in TABLES:
        mysql_server.execute(
            f"CREATE TABLE `{mysql_database}`.{table} (id INT PRIMARY KEY, text "
            "VARCHAR(2000) NOT NULL)"
        )
    start = here(mysql_server)
    random = Random(9)  # the text must not shrink when it is staged
    connected = mysql_server.root_connection(database=mysql_database, autocommit=False)
    with connected as connection, connection.cursor() as cursor:
        for first in range(0, ROWS, 8):
            for table in TABLES:
                rows = [(number, random.randbytes(240).hex()) for number in range(first, first + 8)]
                cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", rows)
            connection.commit()
    return live(mysql_server), start, [f"{mysql_database}.{table}" for table in TABLES]


def _run(
    make_config: MakeConfig, backlog: Any, counts: _Counts, *, name: str, **batch: int
) -> tuple[PipelineConfig, CaptureReport | None]:
    source, start, tables = backlog
    config = make_config(
        source,
        include=tables,
        start=start,
        name=name,
        # An eighth of the backlog: without the release of staged gets the reader would wait for
        # ever.
        store={
            "kind": "memory",
            "ring_events": RING_EVENTS,
            "memory_unit_bytes": MEMORY_UNIT_BYTES,
        },
        batch={"get_bytes": GET_BYTES, **batch},
    )
    try:
        with listening(counts.reached):
            return config, capture(config, cursors=MemoryCursorStore(), observer=counts)
    except _Enough:
        return config, None


def test_k9_merge_batches_are_bounded_by_staged_bytes_and_not_by_gets(
    make_config: MakeConfig, backlog: Any
) -> None:
    """Up to the first record, without a merge: how many gets it takes is decided by what they
    staged."""
    all_of_it, some = _Counts(ends_at_record=True), _Counts(ends_at_record=True)
    _run(make_config, backlog, all_of_it, name="whole")
    assert all_of_it.bytes_done > 1 << 20
    assert all_of_it.gets > 32
    _run(make_config, backlog, some, name="part", merge_staged_bytes=200 << 10)
    assert 4 < some.gets < all_of_it.gets // 2


def test_k9_a_backlog_in_small_gets_is_one_merge_per_table(
    make_config: MakeConfig,
    backlog: Any,
    mysql_server: Server,
    mysql_database: str,
    memory: MemoryLake,
) -> None:
    counts = _Counts(ends_at_record=False)
    config, report = _run(make_config, backlog, counts, name="bank")
    assert report is not None
    assert counts.bytes_done > 1 << 20
    assert counts.gets > 32
    assert (report.batches, counts.records) == (1, 1)
    for table in TABLES:
        commits = memory.tables[config.sink.lake_path / mysql_database / table].commits
        assert [commit.name for commit in commits].count("rows") == 1
        columns = ["id", "text"]
        expected = server_rows(mysql_server, mysql_database, table, columns)
        assert len(expected) == ROWS
        assert lake_rows(memory, config.sink.lake_path, mysql_database, table, columns) == expected
