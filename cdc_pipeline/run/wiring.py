"""Build the stages that a configuration selects."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.position.cursor import StoredCursor
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.source.protocol import Source
from cdc_pipeline.store.ring import UNBOUNDED_EVENTS, RingStore
from cdc_pipeline.store.segments.mixed import FileEventStore, MixedEventStore
from cdc_pipeline.targets.table_filter import TableFilter
from cdc_pipeline.text.table_names import NameRule


def captured_by(config: PipelineConfig, names: NameRule) -> Callable[[str, str], bool]:
    return TableFilter(config.comparing(names)).captured


def build_source(config: PipelineConfig) -> Source:
    """Nothing is connected or read yet."""
    # Imported late: a live source brings pymysqlreplication, which an archive never needs.
    if isinstance(config.source, ArchiveSourceConfig):
        from cdc_pipeline.source.archive.archive import ArchiveSource

        return ArchiveSource(
            config.source.directory,
            unpacked_bytes_max=config.source.unpacked_bytes_max,
            names=NameRule(config.source.lower_case_table_names),
            pipeline_name=config.name,
        )
    from cdc_pipeline.source.live.live import LiveSource

    kind = LiveSource
    if config.source.archive_directory is not None or config.keep_journals is not None:
        from cdc_pipeline.source.archive.archive_then_live import ArchiveThenLive

        kind = ArchiveThenLive
    return kind(config.source, pipeline_name=config.name, captured=partial(captured_by, config))


def build_store(config: PipelineConfig) -> RingStore:
    """Files of a store are removed when it starts and when it stops."""
    store = config.store
    if store.kind == "memory":
        return RingStore(
            ring_events=store.ring_events,
            batch_mode=store.batch_mode,
            memory_unit_bytes=store.memory_unit_bytes,
        )
    directory = spill_directory(config)
    if store.kind == "file":
        return FileEventStore(
            directory,
            disk_bytes_max=store.disk_bytes_max,
            batch_mode=store.batch_mode,
            memory_unit_bytes=store.memory_unit_bytes,
        )
    return MixedEventStore(
        directory,
        disk_bytes_max=store.disk_bytes_max,
        batch_mode=store.batch_mode,
        memory_unit_bytes=store.memory_unit_bytes,
        memory_events=store.ring_events if store.batch_mode == "itemsize" else UNBOUNDED_EVENTS,
        memory_bytes=store.ring_events * store.memory_unit_bytes,
        # Journals of an archive are files already, and no server waits for their reader.
        waits_for_memory=isinstance(config.source, ArchiveSourceConfig),
    )


def spill_directory(config: PipelineConfig) -> Path:
    """A local folder of the user's own (K14: raw events stay local), by source and lake."""
    lake = hashlib.sha256(str(config.sink.lake_path).encode()).hexdigest()[:12]
    parent = config.store.directory or Path(tempfile.gettempdir()) / f"cdc_pipeline-{os.getuid()}"
    return parent / f"{config.name}-{lake}"


def get_size(config: PipelineConfig) -> int:
    """In the store's measure, a quarter of the ring at most: reader and drain overlap, and a mixed
    store, whose memory also holds the events' rows, need not spill before a get is full.
    """
    if config.store.batch_mode == "itemsize":
        return max(1, config.store.ring_events // 4)
    units = max(1, config.batch.get_bytes // config.store.memory_unit_bytes)
    return min(units, max(1, config.store.ring_events // 4))


def build_sink(config: PipelineConfig) -> DeltaSink:
    """It starts no JVM before something is merged."""
    return DeltaSink(source=config.name, config=config.sink)


def build_lake_cursors(
    config: PipelineConfig, *, before: Callable[[], StoredCursor | None] = lambda: None
) -> DeltaCursorStore:
    """For runs without Dagster; `before` is asked if there is no cursor yet."""
    paths = LakePaths.of(config)
    return DeltaCursorStore(paths.cursors, source=config.name, before=before)


def slice_events_max(config: PipelineConfig) -> int:
    """8192 (SPEC T1), less in a small ring so that both threads overlap."""
    return max(1, min(8192, config.store.ring_events // 4))
