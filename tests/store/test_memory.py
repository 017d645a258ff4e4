"""The memory ring: the contract, a plain list as its model, and batches by id."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cdc_pipeline.errors import BatchIdError
from cdc_pipeline.store.batches import BatchLedger
from cdc_pipeline.store.memory import MemoryEventStore
from tests.store.contract_suite import Feed, StoreContract, offsets


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


class StoreMachine(RuleBasedStateMachine):
    """Random puts, gets, releases, acks and rollbacks; a list of offsets is the model."""

    @initialize(size=st.sampled_from([8, 16, 64]), in_bytes=st.booleans(), unit=st.sampled_from([8, 64, 512]))
    def begin(self, size: int, in_bytes: bool, unit: int) -> None:
        self.size, self.in_bytes, self.unit = size, in_bytes, unit
        self.store = MemoryEventStore(size, batch_mode="memsize" if in_bytes else "itemsize", memory_unit_bytes=unit)
        self.store.start()
        self.feed = Feed()
        self.log: list[int] = []  # offset of every event put
        self.lengths: list[int] = []
        self.isolated: dict[int, int] = {}  # sequence of a statement's first event -> events
        self.ack = self.released = self.got = 0  # counts: one more than the sequences
        self.batches: list[tuple[int, Any]] = []  # got count after it, batch

    @rule(sizes=st.lists(st.integers(5, 12), min_size=1, max_size=3), ddl=st.booleans())
    def put(self, sizes: list[int], ddl: bool) -> None:
        parts = [self.feed.ddl()] if ddl else [self.feed.transactions(*sizes)]
        count = sum(part.event_count for part in parts)
        if count > self.size:
            return
        held_bytes = sum(self.lengths[self.released :])
        has_room = len(self.log) - self.released + count <= self.size
        has_room = has_room and (not self.in_bytes or held_bytes < self.size * self.unit)
        assert self.store.try_put(parts) == has_room
        if has_room:
            if ddl:
                self.isolated[len(self.log)] = count
            self.log += offsets(parts)
            self.lengths += [n for part in parts for n in part.events["event_length"].tolist()]

    @rule(size=st.integers(1, 20))
    def get(self, size: int) -> None:
        batch = self.store.try_get(size)
        stop = self.got
        if stop in self.isolated:
            stop += self.isolated[stop]
        else:
            taken = 0
            while (
                stop < len(self.log)
                and stop not in self.isolated
                and taken < size * (self.unit if self.in_bytes else 1)
            ):
                taken += self.lengths[stop] if self.in_bytes else 1
                stop += 1
        assert offsets(batch.slices) == self.log[self.got : stop]
        if stop > self.got:
            assert batch.last_sequence == stop - 1
            assert batch.range.start.offset == self.log[self.got]
            assert batch.range.end.offset == self.log[stop - 1]
            self.batches.append((stop, batch))
        self.got = stop

    @rule()
    def release(self) -> None:
        if self.batches:
            self.released = max(self.released, self.batches[-1][0])
            self.store.release(self.batches[-1][0] - 1)

    @rule(which=st.integers(0, 5))
    def ack_a_batch(self, which: int) -> None:
        if not self.batches:
            return
        stop, batch = self.batches[which % len(self.batches)]
        self.store.ack(batch.range.end)
        self.ack = stop
        self.released = max(self.released, stop)
        self.batches = [entry for entry in self.batches if entry[0] > stop]

    @rule()
    def rollback(self) -> None:
        self.store.rollback()
        self.got = self.released
        self.batches = [entry for entry in self.batches if entry[0] <= self.released]

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        ack, released, got, put = self.store.sequences
        assert (ack, released, got, put) == (self.ack - 1, self.released - 1, self.got - 1, len(self.log) - 1)
        assert ack <= released <= got <= put
        assert self.store.held_bytes == sum(self.lengths[self.released :])
        latest = self.store.latest_position()
        assert (latest.offset if latest else None) == (self.log[-1] if self.log else None)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


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
