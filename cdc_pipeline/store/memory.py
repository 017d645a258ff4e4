"""The event store in memory: a ring (SPEC S1-S14, K9). Its rules are those of `cdc_pipeline.store.ring`."""

from __future__ import annotations

from cdc_pipeline.position.position import Position
from cdc_pipeline.store.entries import Entry, HeldEntry
from cdc_pipeline.store.ring import DEFAULT_MEMORY_UNIT_BYTES, DEFAULT_RING_EVENTS, BatchMode, RingStore


class MemoryKeeper:
    """Leaves slices where they are; the ring alone says when there is room."""

    def open(self) -> None:
        return

    def close(self) -> None:
        return

    def clean(self) -> None:
        return

    def has_room(self, _events: int, _event_bytes: int) -> bool:
        return True

    def keep(self, entries: list[HeldEntry]) -> list[HeldEntry]:
        return entries

    def forget(self, _entry: Entry) -> None:
        return

    def released(self, _sequence: int) -> None:
        return

    def acked(self, _sequence: int, _position: Position) -> None:
        return


class MemoryEventStore(RingStore):
    """An `EventStore` whose events live in the process. Arguments and errors: see `RingStore`."""

    def __init__(
        self,
        ring_events: int = DEFAULT_RING_EVENTS,
        *,
        batch_mode: BatchMode = "memsize",
        memory_unit_bytes: int = DEFAULT_MEMORY_UNIT_BYTES,
        ddl_isolation: bool = True,
    ) -> None:
        super().__init__(
            MemoryKeeper(),
            ring_events=ring_events,
            batch_mode=batch_mode,
            memory_unit_bytes=memory_unit_bytes,
            ddl_isolation=ddl_isolation,
        )
