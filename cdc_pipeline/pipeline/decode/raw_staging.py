"""Stage rows of huge batches undecoded, for Spark's executors to decode.

Rules:
- Only rows that need nothing of the driver qualify: whole transactions, whole images, tables with a
  primary key whose targets take their columns as they are. Masked tables do not, because raw bytes
  hold what masks hide (K14); nor do changelogs, which name the transaction of each change.
- Dates that no Delta type holds are searched for in advance: rows that the policies decide on stay
  in the driver.
- Events with anything unusual are left to the driver's decoder, which handles them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.rows.rows import RowsSelection, count_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.records import Note
from cdc_pipeline.pipeline.decode.decoding import RawTable
from cdc_pipeline.pipeline.targets.targets import Targets
from cdc_pipeline.sink.staging.raw_files import RawRows, raw_events

_PIECE_BYTES_MAX: Final = 1 << 30


def uses_executors(config: PipelineConfig, *, bytes_expected: int) -> bool:
    """Return whether a run decodes on Spark's executors where possible."""
    if config.batch.decode != "auto":
        return config.batch.decode == "executors"
    return not config.sink.spark.is_local and bytes_expected >= config.batch.executors_bytes_min


def raw_staging(
    config: PipelineConfig,
    targets: Targets,
    *,
    bytes_expected: int,
    epoch: int,
    lack: Callable[[], str],
) -> RawStaging | Note | None:
    """Return the raw staging of a run; None if it decodes everything in the driver.

    A note says why, if it should not.

    Args:
        lack: returns why the executors cannot decode, empty if they can; called only if that is not
            configured.
    """
    if not uses_executors(config, bytes_expected=bytes_expected):
        return None
    if config.batch.decode == "auto" and (why := lack()):
        return Note(
            kind="decoded_in_driver",
            text=f"{why}; all rows are decoded in the driver (batch.decode: auto)",
        )
    return RawStaging(targets, epoch=epoch)


class RawStaging:
    """Selection of changes that need not be decoded in the driver."""

    def __init__(self, targets: Targets, *, epoch: int) -> None:
        self._targets = targets
        self._epoch = epoch

    def take(self, schema: TableSchema, parts: Sequence[RowsSelection]) -> RawTable | None:
        """Return the rows events undecoded; None if the driver has to decode them."""
        if not self._is_plain(schema) or not all(_is_simple(part) for part in parts):
            return None
        dates = [
            index
            for index, column in enumerate(schema.columns)
            if column.type.not_held_text == "moment"
        ]
        try:
            counts = count_rows(parts, schema, look_at=dates)
        except CdcError:
            return None  # the decoder reports it, or sets the event aside
        if not counts.all_present or counts.has_invalid:
            return None
        first = parts[0]
        return RawTable(
            RawRows(schema, raw_events(list(parts)), counts, self._epoch),
            first.chunk.journal,
            int(first.chunk.events["offset"][first.rows[0]]),
            min(int(part.chunk.events["commit_ts_us"][part.rows].min()) for part in parts),
        )

    def _is_plain(self, schema: TableSchema) -> bool:
        """Return whether all targets take a table's columns unchanged and unmasked."""
        database, table = schema.database, schema.table
        if not schema.primary_key or self._targets.masks.schema(schema) != schema:
            return False
        routes = self._targets.routes_of(database, table)
        if not all(
            route.rule.is_plain and not MODES[route.rule.mode].rows_are_changes for route in routes
        ):
            return False
        for target in self._targets.following(database, table):
            names = dict(target.spec.sources[schema.full_name].names)
            here = {names.get(name, name) for name in schema.column_names}
            if MODES[target.spec.mode].rows_are_changes or target.spec.shape is not None:
                return False
            if here != {column.name for column in target.spec.columns}:
                return False
        return bool(routes)


def _is_simple(part: RowsSelection) -> bool:
    events = part.chunk.events[part.rows]
    is_partial = bool((events["event_type"] == EventType.PARTIAL_UPDATE_ROWS).any())
    return not is_partial and int(events["event_length"].sum(dtype=np.int64)) <= _PIECE_BYTES_MAX
