"""The memory ring: the contract, a plain list as its model, and batches by id."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from cdc_pipeline.errors import BatchIdError
from cdc_pipeline.store.memory import MemoryEventStore
from cdc_pipeline.store.segments.batches import BatchLedger
from tests.store.contract_suite import Feed, StoreContract
from tests.store.store_machine import StoreMachine


class TestMemoryStore(StoreContract):
    def make(self, ring_events: int = 16, **options: Any) -> MemoryEventStore:
        options.setdefault("batch_mode", "itemsize")
        return MemoryEventStore(ring_events, **options)

    def test_s1_default_size_and_mode(self) -> None:
        store = MemoryEventStore()
        store.start()
        part = Feed().marks(1)
        assert store.put([part])
        assert store._size == 16384
        assert store._counts_bytes
        assert store._unit_bytes == 1024


class MemoryMachine(StoreMachine):
    def make(self, size: int, **options: Any) -> MemoryEventStore:
        return MemoryEventStore(size, **options)


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def ledger(size: int = 64) -> tuple[BatchLedger, MemoryEventStore, Feed]:
    store = MemoryEventStore(size, batch_mode="itemsize")
    store.start()
    return BatchLedger(store), store, Feed()


def test_p9_unknown_and_repeated_batch_ids_are_errors_and_change_nothing() -> None:
    batches, store, feed = ledger()
    store.put([feed.transaction(5)])
    batch = batches.get(5)
    for wrong in (batch.batch_id + 1, 0, -1):
        with pytest.raises(BatchIdError):
            batches.ack_batch(wrong)
    assert store.sequences[0] == -1
    batches.ack_batch(batch.batch_id)
    with pytest.raises(BatchIdError, match="acked before"):
        batches.ack_batch(batch.batch_id)


def test_p9_the_cursor_gets_the_ack_position_then_the_store_is_acked_up_to_the_end() -> None:
    batches, store, feed = ledger()
    part = feed.transactions(5, 8)
    store.put([part])
    batch = batches.get(8)
    told: list[tuple[int, int]] = []
    cursor = batches.ack_batch(batch.batch_id, on_cursor=lambda p: told.append((p.offset, store.sequences[0])))
    assert told == [(int(part.events["next_offset"][4]), -1)]
    assert cursor is not None
    assert cursor.offset == int(part.events["next_offset"][4])
    assert store.sequences[0] == 7


def test_p9_a_later_id_acks_the_earlier_ones_and_keeps_their_ack_position() -> None:
    batches, store, feed = ledger()
    part = feed.transactions(5, 8)
    store.put([part])
    first, second = batches.get(5), batches.get(3)
    assert second.range is not None
    assert second.range.ack is None
    batches.release(first)
    batches.release(second)
    batches.rollback()
    assert batches.open_batch_ids == (1, 2)
    cursor = batches.ack_batch(second.batch_id)
    assert cursor is not None
    assert cursor.offset == int(part.events["next_offset"][4])
    assert batches.open_batch_ids == ()
    with pytest.raises(BatchIdError):
        batches.ack_batch(first.batch_id)


def test_p9_a_rolled_back_id_is_unknown() -> None:
    batches, store, feed = ledger()
    store.put([feed.transaction(5)])
    undone = batches.get(5)
    batches.rollback()
    with pytest.raises(BatchIdError):
        batches.ack_batch(undone.batch_id)
    again = batches.get(5)
    assert again.batch_id == undone.batch_id + 1
    batches.ack_batch(again.batch_id)
