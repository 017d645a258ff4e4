"""The rows of a sink's tables as Spark reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.read import table_frame
from cdc_pipeline.sink.spark.sql import quoted


def rows_by_spark(sink: DeltaSink, table: str, *columns: str) -> pa.Table:
    frame: Any = table_frame(sink.spark.session(), sink.paths.table(table))
    return frame.select(*map(quoted, columns)).toArrow() if columns else frame.toArrow()
