"""Take selected rows the way of the drain's: masked, judged, confirmed, shaped, staged.

Rules:
- A row by SELECT equals the row by binlog: the same policies, masks, shapes, refusals (`decoding`,
  `drain`).
- The first rows of a target that is not made yet come from the log, or a snapshot makes it.
- A row that cannot be applied goes to the quarantine as from the log; its place is that of the
  read, and it has no event bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.decoded import INSERT, DecodedRows, InvalidValue
from cdc_pipeline.binlog.rows.text_jsonl import jsonl_lines
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import UnrepresentableValueError, located
from cdc_pipeline.lake.prepared_rows import encode_stream
from cdc_pipeline.lake.quarantine import SCHEMA
from cdc_pipeline.sink.delta.data_file import DataLayout
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.confirmed import accepted, table_policy
from cdc_pipeline.targets.quarantine import BadRows, without_values
from cdc_pipeline.targets.row_policies import Judged, TablePolicy, unrepresentable
from cdc_pipeline.targets.targets import Targets, shaped


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The place whose rows' seq begins at `seq`, packed, without row ordinal."""

    journal: str
    offset: int
    seq: int
    time_us: int


def judged_rows(targets: Targets, rows: DecodedRows) -> tuple[Judged, TablePolicy]:
    """Masked, and what policies decide. UnrepresentableValueError: a value stops the table."""
    rows = targets.masks.apply(rows)
    policy = table_policy(targets, rows.schema)
    judged = policy.judge(rows)
    if judged.failing is not None:
        raise unrepresentable(rows, judged.failing)
    return judged, policy


class RowPath:
    """`as_staged`: a target as the batch gets it, and the layout of its data files."""

    def __init__(
        self,
        targets: Targets,
        place: ReadPosition,
        *,
        as_staged: Callable[[Target], tuple[Target, DataLayout | None]] = lambda it: (it, None),
    ) -> None:
        self.targets = targets
        self._position = place
        self._as_staged = as_staged

    def take(self, batch: StagedBatch, rows: DecodedRows, *, first: int = 0) -> None:
        """`first`: how many rows were read at this place before. As `judged_rows`, `accepted`."""
        with located(table=rows.schema.full_name):
            judged, policy = judged_rows(self.targets, rows)
            causes = {value.row: value for value in judged.bad}
            good = judged.without(causes)
            self.targets, following = accepted(self.targets, good)
            for target in following:
                if not target.is_new:
                    self._stage(batch, good, target)
        if causes:
            bad = self._bad(judged.before, causes, first, hidden=policy.hidden)
            batch.quarantine(bad.table, bad.entries)

    def _stage(self, batch: StagedBatch, rows: DecodedRows, target: Target) -> None:
        of_target = shaped(self.targets, rows, target)
        named = None
        if MODES[target.spec.mode].rows_are_changes:
            named = pa.array(
                [f"{self._position.journal}:{self._position.offset}"] * len(of_target), pa.string()
            )
        as_staged, layout = self._as_staged(target)
        batch.add(of_target, as_staged, transactions=named, layout=layout)

    def _bad(
        self,
        rows: DecodedRows,
        causes: dict[int, InvalidValue],
        first: int,
        *,
        hidden: Collection[str],
    ) -> BadRows:
        at = sorted(causes)
        wanted = np.zeros(len(rows), np.bool_)
        wanted[at] = True
        bad = without_values(rows.where(wanted), hidden)
        bad = replace(bad, event_row=np.zeros(len(bad), np.int64))
        offsets = np.array([self._position.offset], np.int64)
        lines = jsonl_lines(bad, journal=self._position.journal, offsets=offsets, gtids=[None])
        names, schema = rows.schema.column_names, bad.schema.to_json()
        entries = [
            {
                "_op": INSERT,
                # Rows of one read share places after the first half million; this number tells
                # their entries apart.
                "_seq": Decimal(self._position.seq + 2 * (first + row)),
                "ts_us": self._position.time_us,
                "table": rows.schema.full_name,
                "journal": self._position.journal,
                "offset": self._position.offset,
                "error": UnrepresentableValueError.__name__,
                "what": (
                    f"column {names[causes[row].column]} cannot hold its value: "
                    f"{causes[row].reason}"
                ),
                "change": lines[place],
                "schema": schema,
                "row": encode_stream(bad.part(place, place + 1)),
            }
            for place, row in enumerate(at)
        ]
        return BadRows(rows.schema.full_name, pa.Table.from_pylist(entries, schema=SCHEMA))
