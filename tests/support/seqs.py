"""Seqs of many changes at once, for tests and benchmarks that make up rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.seq import LOW_OFFSET_BITS, ROW_BITS, check_ranges, epoch_and_journal
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE


def seq_array(
    epoch: int,
    journal: int,
    tx_offset: NDArray[np.int64],
    event_ordinal: NDArray[np.integer],
    row_ordinal: NDArray[np.integer],
    image: int,
) -> pa.Array:
    """Of n changes as decimal128(38, 0); each array has shape (n,). Raises BinlogError: an
    ordinal or an offset is too large for its field.
    """
    count = len(tx_offset)
    if count:
        check_ranges(int(tx_offset.max()), int(event_ordinal.max()), int(row_ordinal.max()))
    offset = tx_offset.astype(np.uint64)
    words = np.empty((count, 2), dtype="<u8")
    words[:, 0] = (
        (offset & np.uint64((1 << LOW_OFFSET_BITS) - 1)) << np.uint64(64 - LOW_OFFSET_BITS)
        | event_ordinal.astype(np.uint64) << np.uint64(ROW_BITS + 1)
        | row_ordinal.astype(np.uint64) << np.uint64(1)
        | np.uint64(image)
    )
    words[:, 1] = offset >> np.uint64(LOW_OFFSET_BITS) | np.uint64(
        epoch_and_journal(epoch, journal)
    )
    return pa.Array.from_buffers(SEQ_TYPE, count, [None, pa.py_buffer(words)])
