"""Builds the stages that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

from cdc_pipeline.config import ArchiveSourceConfig, PipelineConfig
from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.contract import EventStore


def build_source(config: PipelineConfig) -> Source:
    """The live server or the archive; nothing is connected or read yet."""
    # Imported late: a live source brings pymysqlreplication, which an archive never needs.
    if isinstance(config.source, ArchiveSourceConfig):
        from cdc_pipeline.source.archive import ArchiveSource

        return ArchiveSource(config.source.directory)
    from cdc_pipeline.source.live import LiveSource

    return LiveSource(config.source, pipeline_name=config.name)


def build_store(config: PipelineConfig) -> EventStore:
    """The event store between reader and drain."""
    from cdc_pipeline.store.memory import MemoryEventStore

    return MemoryEventStore(
        ring_events=config.store.ring_events,
        batch_mode=config.store.batch_mode,
        memory_unit_bytes=config.store.memory_unit_bytes,
    )


def get_size(config: PipelineConfig) -> int:
    """How much one get asks for, in the store's measure (events, or memory units); never all that the ring holds."""
    if config.store.batch_mode == "itemsize":
        return max(1, config.store.ring_events // 4)
    units = max(1, config.batch.get_bytes // config.store.memory_unit_bytes)
    return min(units, max(1, config.store.ring_events // 2))


def build_sink(config: PipelineConfig, *, on_joint: Callable[[str], None] | None = None) -> DeltaSink:
    """The Delta side. Starts no JVM before something is merged."""
    return DeltaSink(source=config.name, config=config.sink, on_joint=on_joint or (lambda _joint: None))


def slice_events_max(config: PipelineConfig) -> int:
    """Events in one slice: 1024 (SPEC T1), less in a small ring, so that reader and drain overlap."""
    return max(1, min(1024, config.store.ring_events // 4))
