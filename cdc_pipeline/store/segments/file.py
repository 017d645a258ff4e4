"""The event store in files (SPEC S15): a mixed store that keeps nothing in memory."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.store.ring import DEFAULT_MEMORY_UNIT_BYTES, UNBOUNDED_EVENTS, BatchMode
from cdc_pipeline.store.segments.mixed import MixedEventStore
from cdc_pipeline.store.segments.segments import DEFAULT_DISK_BYTES_MAX, DEFAULT_SEGMENT_BYTES


class FileEventStore(MixedEventStore):
    """An `EventStore` that keeps all events in files. Arguments and errors: see
    `MixedEventStore`.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        disk_bytes_max: int = DEFAULT_DISK_BYTES_MAX,
        ring_events: int = UNBOUNDED_EVENTS,
        batch_mode: BatchMode = "memsize",
        memory_unit_bytes: int = DEFAULT_MEMORY_UNIT_BYTES,
        ddl_isolation: bool = True,
    ) -> None:
        super().__init__(
            directory,
            memory_events=0,
            segment_bytes=segment_bytes,
            disk_bytes_max=disk_bytes_max,
            ring_events=ring_events,
            batch_mode=batch_mode,
            memory_unit_bytes=memory_unit_bytes,
            ddl_isolation=ddl_isolation,
        )
