"""How many rows of a target lie in a range of the log."""

from __future__ import annotations

from typing import Any

from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.sink.mode_columns import SEQ_COLUMN
from cdc_pipeline.sink.read import table_frame


def rows_between(sink: DeltaSink, table: str, *, low: int, high: int) -> int:
    """Rows of a target whose seq (K1) is at least `low` and below `high`. Starts Spark."""
    frame: Any = table_frame(sink.spark.session(), sink.paths.table(table))
    where = f"{SEQ_COLUMN} >= CAST('{low}' AS DECIMAL(38,0)) AND {SEQ_COLUMN} < CAST('{high}' AS DECIMAL(38,0))"
    count: int = frame.where(where).count()
    return count
