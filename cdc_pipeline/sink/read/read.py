"""Read tables of the lake with Spark.

Rules:
- Delta refuses versions that were *committed* longer ago than the table's retention, even if they
  were current until a moment ago. A cut's version is checked by its files instead, and Delta's
  refusal is switched off while it is resolved; the session keeps its own setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc_pipeline.sink.read.cuts import (
    AsOf,
    check_readable,
    find_cut,
    paths_of,
    source_of,
    version_in,
)

if TYPE_CHECKING:
    # The package itself uses these names too, since it may not import Spark.
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

REFUSE_OLD_COMMITS: Final = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)


def read(
    spark: SparkSession,
    lake: str | Path,
    table: str,
    *,
    as_of: AsOf = None,
    source: str | None = None,
    allow_suspended: bool = False,
) -> DataFrame:
    """See `cdc_pipeline.read`."""
    paths = paths_of(lake, source if source is not None else source_of(lake, table))
    cut = find_cut(paths, as_of)
    version = version_in(cut, table, allow_suspended=allow_suspended)
    check_readable(paths, cut, table)
    with old_commits_readable(spark):
        return table_frame(spark, paths.table(table), version=version)


@contextmanager
def old_commits_readable(spark: SparkSession) -> Iterator[None]:
    """Resolve versions that were committed longer ago than their table's retention."""
    before = spark.conf.get(REFUSE_OLD_COMMITS, None)
    spark.conf.set(REFUSE_OLD_COMMITS, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(REFUSE_OLD_COMMITS)
        else:
            spark.conf.set(REFUSE_OLD_COMMITS, before)


def table_frame(spark: SparkSession, path: Path, *, version: int | None = None) -> DataFrame:
    """As of now or of a Delta version."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(str(path))
