"""The `snapshot` section of a pipeline's YAML: how tables are read (docs/reference/snapshot.md)."""

from __future__ import annotations

from pydantic import Field

from cdc_pipeline.config.target_config import Section
from cdc_pipeline.config.units import Bytes, Seconds


class SnapshotConfig(Section):
    """How a load reads tables.

    A chunk holds at most `chunk_rows` rows, fewer if the catalog's average row size would make it
    exceed `chunk_bytes`. `readers` connections read ahead while Spark writes, so that many chunks
    plus one are in memory. A load waits up to `lock_wait_s` for a running capture of the source,
    for prepared XA transactions to end, and for a view at an exactly known place. If a table's DDL
    cannot be followed, its load starts again, `attempts_max` times in all.
    """

    chunk_rows: int = Field(default=500_000, ge=1)
    chunk_bytes: Bytes = Field(default=128 << 20, ge=1)
    readers: int = Field(default=2, ge=1, le=32)
    lock_wait_s: Seconds = Field(default=3600, ge=0)
    attempts_max: int = Field(default=3, ge=1)
