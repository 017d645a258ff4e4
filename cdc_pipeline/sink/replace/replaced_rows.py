"""Compute the rows of a target after a load, if rows or values of the old table stay (K10, K17,
K18).

The target's mode decides what stays (`replaced_sql` in its file in `sink/modes/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.replaced import ReplacedRows
from cdc_pipeline.sink.modes.rescue import with_rescued_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def replaced_rows(
    session: SparkSession,
    record: BatchRecord,
    target: RecordedTarget,
    loaded: DataFrame,
    there: DataFrame,
) -> DataFrame:
    target, mode = with_rescued_column(target), SINK_MODES[target.spec.mode]
    own_columns = mode.own_columns(target.spec.columns, target.spec.key)
    rows = ReplacedRows(session, record, target, loaded, there, own_columns=own_columns)
    return session.sql(mode.replaced_sql(rows))
