"""Rows of a Delta table within a range of the order of all changes (K1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.spark.sql import seq_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count_and_highest(session: SparkSession, path: Path, *, low: int, high: int) -> tuple[int, int | None]:
    """Return how many rows have a seq within [low, high], and the highest of these seqs."""
    within = f"{SEQ_COLUMN} BETWEEN {seq_literal(low)} AND {seq_literal(high)}"
    frame: Any = table_frame(session, path).where(within)
    count, highest = frame.selectExpr("count(*)", f"max({SEQ_COLUMN})").collect()[0]
    return int(count), None if highest is None else int(highest)
