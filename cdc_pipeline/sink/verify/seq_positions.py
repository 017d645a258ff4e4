"""Places that rows of a target have at one position of the log (K1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.spark.sql import seq_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def highest_seq_at(session: SparkSession, path: Path, *, low: int, high: int) -> int | None:
    """The highest seq within [low, high] of a table's rows; None where it has none."""
    within = f"{SEQ_COLUMN} BETWEEN {seq_literal(low)} AND {seq_literal(high)}"
    found = table_frame(session, path).where(within).selectExpr(f"max({SEQ_COLUMN})").collect()[0][0]
    return None if found is None else int(found)
