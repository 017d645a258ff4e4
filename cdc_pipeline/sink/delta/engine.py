"""Which engine applies a target's batches: a commit of our own, or Spark.

Rules:
- This is the only place that says so for a whole table; `sink/delta/plain_table.py` has the list of
  what a commit of ours knows. A run, the plan and the doctor ask the same function.
- Rows change without Spark where deletion vectors mark the old ones, and where keys are compared by
  value here as Spark compares them. Rows that are only inserted need neither.
- A single batch may need Spark although its table does not: rows without complete images or too
  many for the memory, changes of columns, a RESTORE, properties that the table lacks.
- The setting `spark` leaves nothing to us: some catalogs and platforms must see each commit.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.data_file import CODEC, CODECS, plain_type
from cdc_pipeline.sink.delta.features import allowed, creation_properties
from cdc_pipeline.sink.delta.plain_table import commit_refusal
from cdc_pipeline.sink.delta.table_log import TableLog

PLAIN: Final = "plain"
SPARK: Final = "spark"
CODEC_SETTING: Final = "spark.sql.parquet.compression.codec"
# Types whose values are equal as bytes exactly if Spark calls them equal.
_KEY_TYPES: Final = re.compile(
    r"tinyint|smallint|int|bigint|string|binary|boolean|date|timestamp|timestamp_ntz|decimal\(.*\)"
)


class Engine(NamedTuple):
    """Why Spark applies a target's rows, or batches that change rows; "" if commits of ours do."""

    rows: str
    changes: str

    def __str__(self) -> str:
        if self.rows:
            return f"{SPARK}: {self.rows}"
        return f"{PLAIN}; updates and deletes by {SPARK}: {self.changes}" if self.changes else PLAIN


def engine_of(spec: TargetSpec, there: TableLog | None, config: SinkConfig) -> Engine:
    """`there` is None for a table that is still to be created."""
    rows = _rows_reason(spec, there, config)
    return Engine(rows, rows or _changes_reason(spec, there, config))


def codec_of(config: SinkConfig) -> str:
    return config.spark.settings.get(CODEC_SETTING) or CODEC


def _rows_reason(spec: TargetSpec, there: TableLog | None, config: SinkConfig) -> str:
    if config.engine == SPARK:
        return "sink.engine is spark"
    if codec_of(config) not in CODECS:
        return f"the codec is {codec_of(config)}"
    if MODES[spec.mode].keeps_past:  # a row is more than the last image of its key
        return f"the mode is {spec.mode}"
    if not spec.key:
        return "the table has no key"
    shape = spec.shape
    if shape is not None and (shape.computed or shape.filter):
        return "its rule has expressions"
    if shape is not None and (shape.partition_by or shape.cluster_by):
        return "its rule sets a layout"
    refusal = commit_refusal((), spec.properties, versions=(0, 0))  # it may not have them yet
    if refusal:
        return refusal
    for column in spec.columns:
        if plain_type(column.delta_type) is None:
            return f"column {column.name} is of type {column.delta_type}"
    return "" if there is None else there.needs_spark


def _changes_reason(spec: TargetSpec, there: TableLog | None, config: SinkConfig) -> str:
    properties = creation_properties(allowed(config)) if there is None else there.properties
    if properties.get("delta.enableDeletionVectors") != "true":
        return "the table has no deletion vectors"
    for column in spec.columns:
        if column.name in spec.key and not _KEY_TYPES.fullmatch(column.delta_type):
            return f"the key column {column.name} is of type {column.delta_type}"
    return ""
