"""Settings of a merging thread's own session, by the amount of work.

Spark compiles a Java class for each stage of each query. For a few thousand rows that costs more
than it saves, in a new JVM many times over, but such batches seldom need Spark; for a table of a
million rows it saves five sixths of the work (one lookup of 10,000 keys: 0.9 against 6
CPU-seconds).

Rules:
- Nothing here changes the result of a query, nor what a reader of the table needs.
- A setting that the configuration names keeps that value.
- Delta's checksum files are switched off: the protocol makes them optional, and in a commit of a
  few rows they cost more than everything else (1.3 of 1.6 CPU-seconds).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_BYTES_MAX: Final = 8 << 20
_PARTITION_BYTES: Final = 32 << 20

_COMPILED: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
_SMALL: Final = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}


class MergeSettings:
    def __init__(self, session: SparkSession, fixed: Mapping[str, str]) -> None:
        self._session = session
        self._fixed = fixed
        self._cores = os.cpu_count() or 2

    def lookup(self) -> None:
        """For finding a few rows: their places alone are shuffled."""
        self._set(_SMALL | _COMPILED)

    def large_batch(self, staged_bytes: int) -> None:
        """The number of partitions follows from the bytes, never Spark's 200."""
        partitions = (
            max(self._cores, staged_bytes // _PARTITION_BYTES)
            if staged_bytes > _SMALL_BYTES_MAX
            else 1
        )
        shuffled = {"spark.sql.shuffle.partitions": str(min(partitions, 4 * self._cores))}
        self._set({"spark.sql.adaptive.enabled": "true", **shuffled, **_COMPILED})

    def _set(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            if name not in self._fixed:
                self._session.conf.set(name, value)
