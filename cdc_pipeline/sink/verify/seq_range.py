"""How many rows of a target lie in a range of the log."""

from __future__ import annotations

from typing import Any

from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.spark.sql import seq_literal


def rows_between(sink: DeltaSink, table: str, *, low: int, high: int) -> int:
    """Rows of a target whose seq (K1) is at least `low` and below `high`. Starts Spark."""
    frame: Any = table_frame(sink.spark.session(), sink.paths.table(table))
    where = f"{SEQ_COLUMN} >= {seq_literal(low)} AND {SEQ_COLUMN} < {seq_literal(high)}"
    count: int = frame.where(where).count()
    return count
