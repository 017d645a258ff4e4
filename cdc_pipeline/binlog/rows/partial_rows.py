"""PARTIAL_UPDATE_ROWS events (MySQL, binlog_row_value_options = PARTIAL_JSON) among other rows
events.

Rules:
- Their rows are copied as plain updates, so that one walk locates all values. `PartialRows` records
  which JSON values of the after image are differences.
- Differences need the document that they change. The before image has it with FULL and NOBLOB
  images. With MINIMAL images it does not: the value is unknown and listed as invalid with
  `NO_DOCUMENT`. A value that did not change is then absent, like every unchanged column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.kernels import partial_rows as kernel
from cdc_pipeline.binlog.kernels import walk
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.wire_types import WireType

NO_DOCUMENT: Final = "differences from a JSON document that the row does not hold"
NOT_FITTING: Final = "differences that do not fit their JSON document"
# The reasons of values that are differences.
DIFFERENCES: Final = frozenset({NO_DOCUMENT, NOT_FITTING})


@dataclass(frozen=True, slots=True)
class PartialRows:
    """Which JSON values in the after images of one selection are differences.

    Attributes:
        first_row: int64 (events,): row of `bits` of each event's first row; -1 if the event has no
            differences.
        bits: uint8 (rows, ceil(JSON columns / 8)): bit j % 8 of byte j // 8 stands for the table's
            JSON column j.
        json_number: int64 (columns,): number of a column among the JSON columns; -1 for others.
        unchanged: (rows of the result, column) of values that are unchanged and absent; filled
            while the columns are built.
    """

    first_row: NDArray[np.int64]
    bits: NDArray[np.uint8]
    json_number: NDArray[np.int64]
    unchanged: list[tuple[NDArray[np.int64], int]] = field(default_factory=list)

    def is_diff(
        self, events: NDArray[np.int64], ordinals: NDArray[np.int64], column: int
    ) -> NDArray[np.uint8]:
        """1 for each row whose after image has differences of `column`. `events`, `ordinals`: int64
        (rows,): the row's event in the selection, and its ordinal in the event.
        """
        number = int(self.json_number[column])
        first = self.first_row[events]
        if number < 0 or not len(self.bits):
            return np.zeros(len(events), np.uint8)
        found = self.bits[np.where(first < 0, 0, first + ordinals), number >> 3] >> (number & 7) & 1
        return np.where(first < 0, 0, found).astype(np.uint8)

    def clear_unchanged(self, after_present: NDArray[np.uint8]) -> None:
        """Clear the bits of unchanged, absent values in uint8 (rows of the result,
        ceil(columns / 8)).
        """
        for rows, column in self.unchanged:
            after_present[rows, column >> 3] &= np.uint8(~(1 << (column & 7)) & 0xFF)
        self.unchanged.clear()


@dataclass(frozen=True, slots=True)
class PlainBodies:
    """Bodies of rows events without differences: bytes, and where each body is in them."""

    data: NDArray[np.uint8]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    partial: PartialRows | None
    status: int = walk.DONE


def plain_bodies(
    data: NDArray[np.uint8],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    types: NDArray[np.uint8],
    id_bytes: NDArray[np.uint8],
    rules: NDArray[np.int32],
    schema: TableSchema,
    state: NDArray[np.int64],
) -> PlainBodies:
    """Rows events in the form for the walk; the arguments themselves if no event has differences.

    Args:
        first, last, id_bytes, rules: as for `walk.walk_rows`.
        types: uint8 (events,): event types.
        state: int64 (walk.STATE_WORDS,), written if the status is not walk.DONE, else zero.
    """
    is_partial = (types == EventType.PARTIAL_UPDATE_ROWS).astype(np.uint8)
    if not is_partial.any():
        return PlainBodies(data, first, last, None)
    is_json = np.array([column.wire_type == WireType.JSON for column in schema.columns])
    json_number = np.where(is_json, np.cumsum(is_json) - 1, -1).astype(np.int64)
    bits = np.zeros((0, (int(is_json.sum()) + 7) // 8), np.uint8)
    new_first, new_last, first_row = (np.empty(len(first), np.int64) for _ in range(3))
    for out in (np.empty(0, np.uint8), np.empty(max(int((last - first).sum()), 1), np.uint8)):
        # First count the rows, then copy them.
        bits = np.zeros((int(state[walk.S_COUNT]), bits.shape[1]), np.uint8)
        status = int(
            kernel.strip_events(
                data,
                first,
                last,
                is_partial,
                id_bytes,
                rules,
                state,
                out,
                new_first,
                new_last,
                first_row,
                bits,
            )
        )
        if status != walk.DONE:
            return PlainBodies(data, first, last, None, status)
    state[:] = 0
    # So that the walk is compiled for one kind of array only.
    out.setflags(write=data.flags.writeable)
    return PlainBodies(out, new_first, new_last, PartialRows(first_row, bits, json_number))
