"""Primary and secondary positions (SPEC P2, T3), and the oldest position that is still needed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.config.pipeline_config import PipelineConfig, TransactionsBoundConfig
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore, Suspension, TargetState
from cdc_pipeline.position.failback import Consumer, FailbackPositions, consumers_of, oldest
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
    assert FailbackPositions(MemoryCursorStore()).latest() is None
    store = MemoryCursorStore(state(1))
    positions = FailbackPositions(store)
    assert positions.latest() == state(1).position
    positions.persist(_at(7000))
    assert positions.latest() == _at(7000)
    assert store.read() == state(1), "events that were read are not acked"


def test_p2_a_place_before_the_last_one_is_refused_and_the_secondary_counts() -> None:
    """What is acked, from which nothing can be missed."""
    positions = FailbackPositions(MemoryCursorStore(state(1)))
    positions.persist(_at(900, "binlog.000009"))
    positions.persist(_at(4, "binlog.000010"))
    positions.persist(_at(901, "binlog.000009"))  # the log was read backward
    assert positions.latest() == state(1).position
    positions.persist(_at(905, "binlog.000009"))
    assert positions.latest() == _at(905, "binlog.000009")


def test_p2_the_secondary_is_the_minimum_of_all_consumers() -> None:
    store = MemoryCursorStore(_suspended(state(4, offset=6000), "shop.orders", 2000))
    assert FailbackPositions(store).latest() == _at(2000)


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
        Consumer(name=str(n), epoch=epoch, position=_at(offset, f"binlog.{j}"))
        for n, (epoch, j, offset) in enumerate(places)
    ]
    found = oldest(consumers)
    assert found is not None
    epoch, position = found.epoch, found.position
    assert (epoch, int(position.journal.split(".")[1]), position.offset) == min(places)


def test_t3_p10_a_capture_tells_read_and_applied_and_resumes_without_dagster(
    tmp_path: Path,
) -> None:
    """Recorded journals, no captured table: no JVM. The cursor lives in a table and the next run
    reads it."""
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": SHOP},
            "tables": {"include": ["nowhere.*"], "allow_empty": True},
            "sink": {"lake_path": tmp_path / "lake"},
        }
    )

    def store() -> DeltaCursorStore:
        return DeltaCursorStore(tmp_path / "cursor", source="shop")

    first = capture(config, cursors=store(), bound=TransactionsBoundConfig(transactions=40))
    assert first.outcome == "nothing_new"
    assert first.cursor is not None
    assert first.read_up_to is not None
    assert first.applied_up_to is not None
    assert first.read_up_to.order == first.cursor.position.order
    assert first.applied_up_to.gtid_set == first.cursor.gtid_set
    assert first.oldest_needed is not None
    assert first.oldest_needed.name == "cursor"
    assert store().read() == first.cursor
    second = capture(config, cursors=store())
    assert second.plan.start.order == first.cursor.position.order
    assert second.plan.oldest_needed is not None
    assert second.plan.oldest_needed.position.offset == first.cursor.offset
    assert second.read_up_to is not None
    assert second.read_up_to.order == second.plan.end.order
    assert second.applied_up_to is not None
    assert second.applied_up_to.offset == second.read_up_to.offset
    assert [entry.cursor for entry in store().history(9)] == [second.cursor, first.cursor]
    assert not second.spark_started
