"""Prepare source rows for a comparison: masked, judged, confirmed and shaped like those of the log.

Rules:
- A row becomes what a batch would write to the target (`Targets`): same policies, masks, names and
  types.
- A row that the policies keep out of the lake (quarantine) is counted and left out. Its key is
  reported: under it the lake may have an older image of that row, which a comparison must not take
  for a separate row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.operations.snapshot.rows import judged_rows
from cdc_pipeline.sink.modes.expand import StagedRows
from cdc_pipeline.sink.modes.mode_columns import RESCUED
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import with_rescued, with_rescued_column
from cdc_pipeline.sink.staging.fitting import fitted
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.confirmed import accepted
from cdc_pipeline.targets.targets import Targets, shaped


def recorded_of(target: Target) -> RecordedTarget:
    """A target as its staged rows are read, with ``_cdc_rescued`` if it has one."""
    return with_rescued_column(
        RecordedTarget(
            table=target.name,
            app_id=target.state.app_id,
            spec=target.spec.compact(target.name),
            rescues=target.rescued is not None,
        )
    )


class SourceRows:
    """Of one source table for one of its targets; `unreadable`: rows kept out by the policies."""

    def __init__(self, targets: Targets, name: str) -> None:
        self.supplied_columns: tuple[str, ...] = ()
        self.unreadable = 0
        self._unread: list[DecodedRows] = []
        self._targets = targets
        self._name = name

    @property
    def target(self) -> Target:
        """As known now: with a rescue column once a value needed it."""
        return self._targets.by_name[self._name]

    def take(self, rows: DecodedRows) -> StagedRows | None:
        """As the target stages them; None if none is left. Raises as `judged_rows`, `accepted`."""
        judged, policy = judged_rows(self._targets, rows)
        bad = {value.row for value in judged.bad}
        names = judged.before.schema.column_names
        with_key = bad - {v.row for v in judged.bad if names[v.column] in policy.keys}
        self.unreadable += len(bad)
        if with_key:
            unread = np.zeros(len(rows), np.bool_)
            unread[list(with_key)] = True
            self._unread.append(replace(judged.before, invalid=[]).where(unread))
        return self._staged(judged.without(bad))

    def take_unread(self, key: Sequence[str]) -> pa.Table | None:
        """Keys (``k0 ...``) of rows left out since the last call; None if none."""
        rows, self._unread = self._unread, []
        tables = [staged.table for staged in map(self._staged, rows) if staged is not None]
        if not tables or not key:
            return None
        names = [column.name for column in self.target.spec.columns]
        places = [f"c{names.index(name)}" for name in key]
        keys = pa.concat_tables([table.select(places) for table in tables])
        return keys.rename_columns([f"k{number}" for number in range(len(places))])

    def _staged(self, good: DecodedRows) -> StagedRows | None:
        self._targets, _ = accepted(self._targets, good)
        target = self.target
        rows = shaped(self._targets, good, target)
        spec = target.spec
        source = spec.sources.get(rows.schema.full_name)
        if source is not None:
            rows = fitted(rows, spec.columns, source.names)
        rows = with_rescued(rows, target.rescued)
        self.supplied_columns = rows.schema.column_names
        if not len(rows):
            return None
        if target.rescued is not None:
            spec = spec.with_columns((*spec.columns, RESCUED))
        return SINK_MODES["mirror"].stage(rows, spec, None)
