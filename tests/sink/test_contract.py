"""The contract of a sink (`sink/protocol.py`), held by every implementation: Delta's, and that of
tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import LakeStateError, LockError, MergeError
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.lake_sink import Sink
from tests.support.delta_reader import read_delta
from tests.support.kills import killed_at
from tests.support.lake_log import empty
from tests.support.memory_sink import MemoryLake, memory_sink
from tests.support.sink_values import (
    applied,
    column,
    cursor_at,
    delete,
    head_of,
    insert,
    record_batch,
    seq_of,
    table_schema,
    update,
)

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT32)], "id")
PEOPLE = table_schema("shop.people", [column("id", Kind.INT32), column("age", Kind.INT32)], "id")
FIRST = (ORDERS, [insert(id=1, total=10), insert(id=2, total=20)], 10)
OTHER = (PEOPLE, [insert(id=7, age=70)], 15)
SECOND = (
    ORDERS,
    [update({"id": 1, "total": 10}, {"id": 1, "total": 11}), delete(id=2, total=20)],
    20,
)
POINTS = ("before_record", "after_record", "between_merges", "before_cut")


@dataclass
class Lake:
    new_sink: Callable[[], Sink]
    read: Callable[[Sink, str, int], list[dict[str, Any]]]
    empty: Callable[[Sink, str], None]  # as another program may
    opened: ExitStack = field(default_factory=ExitStack)

    def open(self, *, is_locked: bool = True) -> Sink:
        """A new sink, as a new process would have, holding the lock."""
        self.opened.close()
        sink = self.new_sink()
        if is_locked:
            self.opened.enter_context(sink.lock())
        return sink

    def rows(
        self, sink: Sink, schema: Any = ORDERS, version: int | None = None
    ) -> list[tuple[Any, ...]]:
        """By default at the version that the last cut names."""
        cut = sink.last_cut()
        assert cut is not None
        name = schema.full_name
        found = self.read(
            sink, name, cut.tables[name].table_version if version is None else version
        )
        return sorted(tuple(row[name] for name in schema.column_names) for row in found)


def _memory(folder: Path, _request: pytest.FixtureRequest) -> Lake:
    tables = MemoryLake()
    config = SinkConfig(lake_path=folder)
    return Lake(
        lambda: memory_sink(tables, source="shop", config=config),
        lambda sink, name, version: tables.rows(sink.paths.table(name), version),
        lambda sink, name: tables.write(sink.paths.table(name), rows=[]),
    )


def _delta(folder: Path, request: pytest.FixtureRequest) -> Lake:
    spark, settings = (
        request.getfixturevalue("sink_provider"),
        request.getfixturevalue("sink_settings"),
    )
    config = SinkConfig(lake_path=folder, merge_threads=1, spark=settings)
    return Lake(
        lambda: DeltaSink(source="shop", config=config, spark=spark),
        lambda sink, name, version: read_delta(sink.paths.table(name), version).rows,
        lambda sink, name: empty(sink.paths.table(name)),
    )


@pytest.fixture(
    params=[
        pytest.param(_memory, id="memory"),
        pytest.param(_delta, id="delta", marks=pytest.mark.spark),
    ]
)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    made = request.param(tmp_path / "lake", request)
    with made.opened:
        yield made
        made.opened.close()


def test_k16_nothing_is_written_without_the_lock(lake: Lake) -> None:
    sink = lake.open()
    record = record_batch(sink, 1, FIRST)
    cut = sink.finish(record)
    free = lake.open(is_locked=False)
    for work in (
        lambda: free.begin(2),
        lambda: free.finish(record),
        lambda: free.cleanup(cut),
        free.discard_unrecorded,
        lambda: free.discard_parked(None),
    ):
        with pytest.raises(LockError):
            work()
    assert free.last_cut() == cut, "reading needs none"


def test_k2_a_batch_goes_from_its_record_to_its_cut_once(lake: Lake) -> None:
    """A batch begins only where the last one ended; finishing again changes nothing."""
    sink = lake.open()
    assert (sink.last_cut(), sink.pending_record(), sink.cuts()) == (None, None, [])
    with pytest.raises(LakeStateError, match="cannot begin"):
        sink.begin(2)
    record = record_batch(sink, 1, FIRST, OTHER)
    assert sink.pending_record() == record
    with pytest.raises(LakeStateError, match="cannot begin"):
        sink.begin(1)
    with pytest.raises(LakeStateError, match="cannot begin"):
        sink.begin(2)
    cut = sink.finish(record)
    assert (sink.last_cut(), sink.pending_record(), sink.cuts()) == (cut, None, [1])
    assert sink.finish(record) == cut
    assert lake.open().finish(record) == cut
    assert lake.rows(sink) == [(1, 10), (2, 20)]
    assert (
        cut.tables["shop.orders"].rows_inserted,
        cut.cursor.targets["shop.orders"].applied_batch,
    ) == (2, 1)


def test_k3_a_cut_names_versions_that_later_batches_leave_alone(lake: Lake) -> None:
    sink = lake.open()
    first = applied(sink, 1, FIRST, OTHER)
    second = applied(sink, 2, SECOND)
    versions = [cut.tables["shop.orders"].table_version for cut in (first, second)]
    assert versions[0] < versions[1]
    assert first.tables["shop.people"].table_version == second.tables["shop.people"].table_version
    assert lake.rows(sink, version=versions[0]) == [(1, 10), (2, 20)]
    assert lake.rows(sink) == [(1, 11)]
    assert sink.read_cut(1) == first
    assert sink.failing_targets(second) == {}
    assert set(sink.failing_targets(first)) == {"shop.orders"}, "it has more than that cut says"
    within = sink.tables.rows_within("shop.orders", low=seq_of(20), high=seq_of(20, after=True))
    assert within == (1, seq_of(20, after=True))


@pytest.mark.parametrize("is_killed", [False, True])
def test_k3_f235_what_others_write_between_record_and_commit_is_in_no_cut(
    lake: Lake, is_killed: bool
) -> None:
    """Also where the run is killed behind its commit, which is then the newest change."""
    sink = lake.open()
    applied(sink, 1, FIRST, OTHER)
    record = record_batch(sink, 2, SECOND, (PEOPLE, [insert(id=8, age=80)], 30))
    lake.empty(sink, "shop.orders")
    if is_killed:
        with killed_at("before_cut"):
            sink.finish(record)
        sink = lake.open()
    cut = sink.finish(record, recovered=is_killed)
    assert set(cut.cursor.suspended) == {"shop.orders"}
    assert cut.cursor.suspended["shop.orders"].error == "LakeStateError"
    assert lake.rows(sink) == [(1, 10), (2, 20)]
    assert lake.rows(sink, PEOPLE) == [(7, 70), (8, 80)]
    assert set(sink.failing_targets(cut)) == {"shop.orders"}


@pytest.mark.parametrize("point", POINTS)
def test_k2_a_batch_that_is_killed_is_finished_by_the_next_process(lake: Lake, point: str) -> None:
    """Or, without a record, has never been; also where the process is killed a second time."""
    sink = lake.open()
    sink.cleanup(applied(sink, 1, FIRST, OTHER))
    more = (PEOPLE, [insert(id=8, age=80)], 30)
    with killed_at(point):
        applied(sink, 2, SECOND, more)
    sink = lake.open()
    record = sink.pending_record()
    assert (record is None) is (point == "before_record")
    if record is None:
        assert sink.discard_unrecorded() > 0
        record = record_batch(sink, 2, SECOND, more)
    else:
        assert sink.discard_unrecorded() == 0
        with killed_at("before_cut"):
            sink.finish(record, recovered=True)
        sink = lake.open()
    cut = sink.finish(record, recovered=True)
    assert (cut.batch_number, cut.cursor.suspended) == (2, {})
    assert lake.rows(sink) == [(1, 11)]
    assert lake.rows(sink, PEOPLE) == [(7, 70), (8, 80)]
    sink.cleanup(cut)
    sink.cleanup(cut)
    assert sink.discard_unrecorded() == 0
    assert not list(sink.paths.staging_root.glob("*/*"))


def test_k4_a_target_that_fails_is_suspended_and_the_others_go_on(lake: Lake) -> None:
    """A staged file that is gone does not come back: no retry can help."""
    sink = lake.open()
    applied(sink, 1, FIRST, OTHER)
    record = record_batch(sink, 2, SECOND, (PEOPLE, [insert(id=8, age=80)], 30))
    broken = next(target for target in record.targets if target.table == "shop.orders")
    (sink.paths.lake / broken.files[0].path).unlink()
    cut = sink.finish(record)
    assert set(cut.cursor.suspended) == {"shop.orders"}
    assert cut.cursor.suspended["shop.orders"].error == "StagingError"
    assert (cut.tables["shop.orders"], cut.cursor.targets["shop.orders"].applied_batch) == (
        sink.read_cut(1)
        .tables["shop.orders"]
        .model_copy(update={"rows_inserted": 0, "engine": ""}),
        1,
    )
    assert lake.rows(sink) == [(1, 10), (2, 20)]
    assert lake.rows(sink, PEOPLE) == [(7, 70), (8, 80)]


def test_k4_a_target_can_be_given_up_without_a_try(lake: Lake) -> None:
    sink = lake.open()
    applied(sink, 1, FIRST)
    record = record_batch(sink, 2, SECOND)
    cut = sink.finish(
        record, recovered=True, given_up={"shop.orders": MergeError("somebody wrote to it")}
    )
    assert cut.cursor.suspended["shop.orders"].what == "somebody wrote to it"
    assert lake.rows(sink) == [(1, 10), (2, 20)]


def test_k2_a_batch_without_rows_moves_the_cursor_alone(lake: Lake) -> None:
    sink = lake.open()
    first = applied(sink, 1, FIRST)
    record = sink.begin(2).record(head_of(2))
    cut = sink.finish(record)
    assert cut.cursor.offset == cursor_at(2).offset
    assert cut.tables["shop.orders"].table_version == first.tables["shop.orders"].table_version
    assert cut.cursor.targets["shop.orders"].applied_batch == 1
