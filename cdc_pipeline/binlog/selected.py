"""Rows of a SELECT in the decoder's types, which can be turned into inserts.

The seq of a loaded row (K17: changes after the load must win): a load uses the log position of its
low mark L, where the next transaction begins. The events of that transaction are its GTID event
(ordinal 0), then BEGIN or the first table map (1), so that its first rows have at least ordinal 2.
So ordinals 0 and 1 are free, and rows with these ordinals are newer than every change before L and
older than every change at or after L.

Rows of a load are counted through these two ordinals, 2 * 2**18 values; all further rows share the
last of them. That is harmless for keyed targets: each key comes once within a load, so no two rows
of it are ever compared. Targets that keep every row (history, changelog, keyless) do not order rows
of one load by seq either: all of them exist from L on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.decoded import INSERT, DecodedRows, InvalidValue
from cdc_pipeline.binlog.seq import EVENT_BITS, ROW_BITS
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.binlog.table_schema import TableSchema

SNAPSHOT_EVENTS: Final = 2  # event ordinals below those of any rows event
SNAPSHOT_SEQS: Final = SNAPSHOT_EVENTS << ROW_BITS


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """n rows of one table.

    Attributes:
        schema: describes the columns.
        rows: one field per column, with the same order, names and types as `DecodedRows.after`.
        invalid: values that their Arrow types cannot hold, as listed by the decoder (image
            "after"); null in `rows`.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    invalid: list[InvalidValue] = field(default_factory=list)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def as_inserts(self, *, seq_first: int, commit_ts_us: int) -> DecodedRows:
        """The rows as inserts at one log position. Raises ValueError: `seq_first` is not a seq that
        is reserved for loads.

        Args:
            seq_first: seq of row 0, packed for image 0 with the journal and offset of the low mark,
                with event and row ordinal 0 for the first rows of a load; `next_seq` returns that
                of later rows.
            commit_ts_us: time of the rows' state, microseconds since 1970 UTC.
        """
        count = len(self)
        columns = len(self.schema.columns)
        start = _row_number(seq_first)
        # Event and row ordinal are adjacent in the seq: count them as one number, but not into
        # another event.
        row_numbers = np.minimum(
            np.arange(start, start + count, dtype=np.uint64), np.uint64(SNAPSHOT_SEQS - 1)
        )
        words = np.empty((count, 2), np.uint64)
        words[:, 0] = np.uint64((seq_first - 2 * start) & (1 << 64) - 1) + (
            row_numbers << np.uint64(1)
        )
        words[:, 1] = np.uint64(seq_first >> 64)
        nothing = [pa.nulls(count, arrow_type(column)) for column in self.schema.columns]
        full = np.packbits(np.ones(columns, np.uint8), bitorder="little")
        return DecodedRows(
            schema=self.schema,
            op=np.full(count, INSERT, np.uint8),
            seq=pa.Array.from_buffers(SEQ_TYPE, count, [None, pa.py_buffer(words)]),
            commit_ts_us=np.full(count, commit_ts_us, np.int64),
            event_row=np.zeros(count, np.int64),
            before=pa.RecordBatch.from_arrays(nothing, schema=self.rows.schema),
            after=self.rows,
            before_present=np.zeros((count, len(full)), np.uint8),
            after_present=np.tile(full, (count, 1)),
            all_present=True,
            invalid=list(self.invalid),
        )


def next_seq(seq_first: int, rows: int) -> int:
    """`seq_first` of the rows that follow `rows` rows of a load. Raises ValueError: `seq_first` is
    not a seq that is reserved for loads.
    """
    start = _row_number(seq_first)
    return seq_first + 2 * (min(start + rows, SNAPSHOT_SEQS - 1) - start)


def _row_number(seq_first: int) -> int:
    number = seq_first >> 1 & (1 << EVENT_BITS + ROW_BITS) - 1
    if seq_first & 1 or number >= SNAPSHOT_SEQS:
        raise ValueError(
            f"{seq_first} is not the seq of a loaded row: its event ordinal is not "
            f"below {SNAPSHOT_EVENTS}"
        )
    return number
