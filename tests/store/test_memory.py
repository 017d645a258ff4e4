"""The memory ring: the contract and a plain list as its model."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from cdc_pipeline.store.ring import RingStore
from tests.store.contract_suite import Feed, StoreContract
from tests.store.store_machine import StoreMachine


class TestMemoryStore(StoreContract):
    def make(self, ring_events: int = 16, **options: Any) -> RingStore:
        options.setdefault("batch_mode", "itemsize")
        return RingStore(ring_events, **options)

    def test_s1_default_size_and_mode(self) -> None:
        store = RingStore()
        store.start()
        part = Feed().marks(1)
        assert store.put([part])
        assert store._size == 16384
        assert store._counts_bytes
        assert store._unit_bytes == 1024


class MemoryMachine(StoreMachine):
    def make(self, size: int, **options: Any) -> RingStore:
        return RingStore(size, **options)


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=60, stateful_step_count=40)
