"""Tables of the lake as Spark sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_frame(spark: SparkSession, path: Path, *, version: int | None = None) -> DataFrame:
    """The Delta table in a folder, as of now or of a Delta version."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(str(path))
