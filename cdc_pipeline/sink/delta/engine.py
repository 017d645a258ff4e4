"""Which engine applies a target's batches: a commit of our own, or Spark.

Rules:
- This is the only place that says so for a whole table; `sink/delta/plain_table.py` has the list of
  what a commit of ours knows. A run, the plan and the doctor ask the same function.
- A single batch may need Spark although its table does not: rows without complete images, with NULL
  in a key or too many for the memory, changes of columns, a RESTORE.
- The setting `spark` leaves nothing to us: some catalogs and platforms must see each commit.
"""

from __future__ import annotations

from typing import Final, Literal

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.data_file import plain_type
from cdc_pipeline.sink.delta.log import TableLog

EngineSetting = Literal["auto", "spark"]
PLAIN: Final = "plain"
SPARK: Final = "spark"


def spark_reason(spec: TargetSpec, there: TableLog | None, *, setting: EngineSetting) -> str:
    """Why Spark applies the rows of a target; "" if commits of ours do. `there` is None for a
    table that is still to be created.
    """
    if setting == "spark":
        return "sink.engine is spark"
    if MODES[spec.mode].keeps_past:  # a row is more than the last image of its key
        return f"the mode is {spec.mode}"
    if not spec.key:
        return "the table has no key"
    shape = spec.shape
    if shape is not None and (shape.computed or shape.filter):
        return "its rule has expressions"
    if shape is not None and (shape.partition_by or shape.cluster_by):
        return "its rule sets a layout"
    for column in spec.columns:
        if plain_type(column.delta_type) is None:
            return f"column {column.name} is of type {column.delta_type}"
    return "" if there is None else there.needs_spark


def engine_name(reason: str) -> str:
    return f"{SPARK}: {reason}" if reason else PLAIN
