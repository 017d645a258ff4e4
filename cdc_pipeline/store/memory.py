"""The event store in memory: a ring with the rules of `cdc_pipeline.store.ring` (SPEC S1-S14)."""

from __future__ import annotations

from cdc_pipeline.store.ring import (
    DEFAULT_MEMORY_UNIT_BYTES,
    DEFAULT_RING_EVENTS,
    BatchMode,
    RingStore,
)


class MemoryEventStore(RingStore):
    """An `EventStore` that keeps its events in memory. Arguments and errors: see `RingStore`."""

    def __init__(
        self,
        ring_events: int = DEFAULT_RING_EVENTS,
        *,
        batch_mode: BatchMode = "memsize",
        memory_unit_bytes: int = DEFAULT_MEMORY_UNIT_BYTES,
        ddl_isolation: bool = True,
    ) -> None:
        super().__init__(
            None,
            ring_events=ring_events,
            batch_mode=batch_mode,
            memory_unit_bytes=memory_unit_bytes,
            ddl_isolation=ddl_isolation,
        )
