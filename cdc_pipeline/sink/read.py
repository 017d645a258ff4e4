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


def read_one_row(spark: SparkSession, path: Path) -> None:
    """Read one row of the Delta table in a folder, if it has any: to see that Spark and the table work."""
    table_frame(spark, path).limit(1).toArrow()
