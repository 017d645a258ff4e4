"""Rows of a table as a SELECT gave them, in the decoder's own types; and as inserts, for whoever takes changes.

The place of a loaded row (K17): a load carries the seq of its low mark L, the place where the transaction after the
mark begins. The events of that transaction are its GTID event (ordinal 0), then BEGIN or the first table map (1), so
that its first rows have ordinal 2 at least. So ordinals 0 and 1 are free there, and all rows that are placed in them
are newer than every change before L and older than every change at or after L.

Rows of a load are counted through these two ordinals, 2 * 2**18 places; all rows behind share the last of them. That
is harmless for keyed targets: within a load each key comes once, so no two rows of it are ever compared. Targets that
keep every row (history, changelog, keyless) never order rows of one load by seq either: they are all there from L on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.decoded import INSERT, DecodedRows, InvalidValue
from cdc_pipeline.binlog.seq import EVENT_BITS, ROW_BITS, SEQ_TYPE
from cdc_pipeline.binlog.table_schema import TableSchema

LOAD_EVENTS: Final = 2  # event ordinals below those of any rows event
LOAD_PLACES: Final = LOAD_EVENTS << ROW_BITS


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """n rows of one table.

    Attributes:
        schema: the columns' meaning.
        rows: one field per column of it, same order, names and types as `DecodedRows.after`.
        invalid: values that their Arrow types cannot hold, as the decoder lists them (image "after"); null in `rows`.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    invalid: list[InvalidValue] = field(default_factory=list)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def as_inserts(self, *, seq_first: int, commit_ts_us: int) -> DecodedRows:
        """The rows as inserts of one place in the log.

        Args:
            seq_first: place of row 0: a packed seq of image 0 with the journal and offset of the low mark, event
                ordinal 0 and row ordinal 0 for the first rows of a load; `next_seq` tells that of the rows after these.
            commit_ts_us: when the rows were as they are, microseconds since 1970 UTC.

        Raises:
            ValueError: `seq_first` is not a place that is kept for loads.
        """
        count = len(self)
        columns = len(self.schema.columns)
        start = _place(seq_first)
        # Event and row ordinal are neighbours in the seq: counted together, and never into another event's.
        places = np.minimum(np.arange(start, start + count, dtype=np.uint64), np.uint64(LOAD_PLACES - 1))
        words = np.empty((count, 2), np.uint64)
        words[:, 0] = np.uint64((seq_first - 2 * start) & (1 << 64) - 1) + (places << np.uint64(1))
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
    """`seq_first` of the rows that follow `rows` rows of a load.

    Raises:
        ValueError: `seq_first` is not a place that is kept for loads.
    """
    start = _place(seq_first)
    return seq_first + 2 * (min(start + rows, LOAD_PLACES - 1) - start)


def _place(seq_first: int) -> int:
    """The row of a load that the seq counts."""
    place = seq_first >> 1 & (1 << EVENT_BITS + ROW_BITS) - 1
    if seq_first & 1 or place >= LOAD_PLACES:
        raise ValueError(f"{seq_first} is not the seq of a loaded row: its event ordinal is not below {LOAD_EVENTS}")
    return place
