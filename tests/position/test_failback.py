"""Primary and secondary positions (SPEC P2, T3), and the oldest position that is still needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.config.pipeline_config import PipelineConfig, TransactionsBoundConfig
from cdc_pipeline.errors import CursorError, PositionError
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore, Suspension, TargetState
from cdc_pipeline.position.cursor_file import FileCursorStore
from cdc_pipeline.position.failback import (
    AckedPositions,
    Consumer,
    DumpedPosition,
    FailbackPositions,
    consumers_of,
    oldest,
)
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.cursor_stores import state

SHOP = Path(__file__).resolve().parents[2] / "cdc_pipeline" / "demo" / "shop" / "journals"


def _at(offset: int, journal: str = "binlog.000003") -> Position:
    return Position(journal, offset)


def _suspended(
    cursor: CursorState, table: str, offset: int, *, epoch: int = 1, reload: bool = False
) -> CursorState:
    suspension = Suspension(
        batch_number=1,
        error="MergeError",
        what="failed",
        journal="binlog.000003",
        offset=offset,
        epoch=epoch,
        needs_snapshot=reload,
    )
    target = TargetState(
        table=table, app_id=table, table_version=1, applied_batch=1, suspended=suspension
    )
    return cursor.model_copy(update={"targets": {**cursor.targets, table: target}})


def test_p2_lookup_asks_the_primary_first_then_the_secondary() -> None:
    primary = DumpedPosition()
    acked = AckedPositions({"cursor": MemoryCursorStore(state(1))})
    positions = FailbackPositions(primary, acked)
    assert positions.latest() is None
    acked.load()
    assert positions.latest() == state(1).position
    positions.persist(_at(7000))
    assert positions.latest() == _at(7000)
    primary.forget()
    assert positions.latest() == state(1).position


def test_p2_a_write_that_fails_on_the_primary_goes_to_the_secondary() -> None:
    """The place in doubt is noted; the next lookup gives what is acked, from which nothing can be
    missed."""
    acked = AckedPositions({"cursor": MemoryCursorStore(state(1))})
    acked.load()
    positions = FailbackPositions(DumpedPosition(), acked)
    positions.persist(_at(7000))
    positions.persist(_at(6000))  # the log was read backward: the primary refuses that
    assert acked.read_up_to == _at(6000)
    assert positions.latest() == state(1).position
    positions.persist(_at(6500))
    assert positions.latest() == _at(6500)


def test_p2_the_primary_refuses_to_go_back() -> None:
    primary = DumpedPosition()
    primary.persist(_at(900, "binlog.000009"))
    primary.persist(_at(4, "binlog.000010"))
    with pytest.raises(PositionError, match="backward"):
        primary.persist(_at(901, "binlog.000009"))


def test_p2_the_secondary_is_the_minimum_of_all_consumers() -> None:
    stores = {"cursor": MemoryCursorStore(), "report": MemoryCursorStore()}
    acked = AckedPositions(stores)
    assert acked.latest() is None
    acked.ack(state(3, offset=5000))
    acked.ack(state(3, offset=4000), consumer="report")
    assert acked.latest() == state(3, offset=4000).position
    acked.ack(_suspended(state(4, offset=6000), "shop.orders", 2000), consumer="report")
    found = oldest(acked.consumers())
    assert found is not None
    assert (found.name, found.position.offset) == ("report: shop.orders", 2000)
    with pytest.raises(CursorError, match="the consumer is unknown"):
        acked.ack(state(4), consumer="nobody")


def test_p2_acked_cursors_are_persisted_before_memory_says_so(tmp_path: Path) -> None:
    acked = AckedPositions({"cursor": FileCursorStore(tmp_path, source="shop")})
    acked.load()
    acked.ack(state(2), {"cut": 2})
    with pytest.raises(CursorError, match="would move back"):
        acked.ack(state(1))
    assert acked.latest() == state(2).position
    again = AckedPositions({"cursor": FileCursorStore(tmp_path, source="shop")})
    again.load()
    assert again.latest() == state(2).position
    assert acked.store().history(1)[0].cursor == state(2)


def test_p2_a_suspended_table_keeps_its_journals_unless_it_needs_a_reload() -> None:
    cursor = _suspended(state(9, offset=9000), "shop.a", 3000)
    cursor = _suspended(cursor, "shop.b", 100, reload=True)
    assert [consumer.name for consumer in consumers_of(cursor)] == ["cursor", "shop.a"]
    earlier_epoch = _suspended(state(9, offset=9, epoch=2), "shop.a", 3000, epoch=1)
    found = oldest(consumers_of(earlier_epoch))
    assert found is not None
    assert found.name == "shop.a"


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(4, 50)),
        min_size=1,
        max_size=8,
    )
)
def test_p2_nothing_that_a_consumer_needs_lies_before_the_oldest(
    places: list[tuple[int, int, int]],
) -> None:
    """Journal numbers are compared as numbers: binlog.10 is later than binlog.9."""
    consumers = [
        Consumer(str(n), epoch, _at(offset, f"binlog.{j}"))
        for n, (epoch, j, offset) in enumerate(places)
    ]
    found = oldest(consumers)
    assert found is not None
    epoch, position = found.epoch, found.position
    assert (epoch, int(position.journal.split(".")[1]), position.offset) == min(places)


@pytest.mark.parametrize("kind", ["file", "delta"])
def test_t3_p10_a_capture_tells_read_and_applied_and_resumes_without_dagster(
    kind: str, tmp_path: Path
) -> None:
    """Recorded journals, no captured table: no JVM. The cursor lives in a file or a table and the
    next run reads it."""
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": SHOP},
            "tables": {"include": ["nowhere.*"], "allow_empty": True},
            "sink": {"lake_path": tmp_path / "lake"},
        }
    )

    def store() -> FileCursorStore | DeltaCursorStore:
        place = tmp_path / "cursor"
        return (
            FileCursorStore(place, source="shop")
            if kind == "file"
            else DeltaCursorStore(place, source="shop")
        )

    first = capture(config, cursors=store(), bound=TransactionsBoundConfig(transactions=40))
    assert first.outcome == "nothing_new"
    assert first.cursor is not None
    assert first.read_up_to is not None
    assert first.applied_up_to is not None
    assert (first.read_up_to.journal, first.read_up_to.offset) == (
        first.cursor.journal,
        first.cursor.offset,
    )
    assert first.applied_up_to.gtid_set == first.cursor.gtid_set
    assert first.oldest_needed is not None
    assert first.oldest_needed.consumer == "cursor"
    assert store().read() == first.cursor
    second = capture(config, cursors=store())
    assert (second.plan.start_journal, second.plan.start_offset) == (
        first.cursor.journal,
        first.cursor.offset,
    )
    assert second.plan.oldest_needed is not None
    assert second.plan.oldest_needed.offset == first.cursor.offset
    assert second.read_up_to is not None
    assert (second.read_up_to.journal, second.read_up_to.offset) == (
        second.plan.end_journal,
        second.plan.end_offset,
    )
    assert second.applied_up_to is not None
    assert second.applied_up_to.offset == second.read_up_to.offset
    assert [entry.cursor for entry in store().history(9)] == [second.cursor, first.cursor]
    assert not second.spark_started
