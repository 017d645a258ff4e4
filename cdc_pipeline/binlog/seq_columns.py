"""Columns of seqs as Arrow arrays of DECIMAL(38,0): their parts, and moving them to another
transaction.

`seq.py` has the layout of one seq.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.seq import (
    EVENT_BITS,
    JOURNAL_BITS,
    LOW_OFFSET_BITS,
    OFFSET_BITS,
    ROW_BITS,
    pack_seq,
)

SEQ_TYPE: Final = pa.decimal128(38, 0)


def with_transaction(seq: pa.Array, *, epoch: int, journal: int, tx_offset: int) -> pa.Array:
    """Move seqs to another transaction, keeping event ordinal,
    row ordinal and image (K8: XA COMMIT).
    """
    base = pack_seq(epoch, journal, tx_offset)
    low = np.uint64((1 << 64 - LOW_OFFSET_BITS) - 1)
    words = _words(seq).copy()
    words[:, 0] = words[:, 0] & low | np.uint64(base & (1 << 64) - 1)
    words[:, 1] = np.uint64(base >> 64)
    return pa.Array.from_buffers(SEQ_TYPE, len(seq), [None, pa.py_buffer(words)])


def event_ordinals(seq: pa.Array) -> NDArray[np.int64]:
    return ordinals(seq) >> ROW_BITS


def ordinals(seq: pa.Array) -> NDArray[np.int64]:
    """Event and row ordinal as one number that grows within a transaction: int64 (n,)."""
    found: NDArray[np.int64] = (
        (_words(seq)[:, 0] >> np.uint64(1)) & np.uint64((1 << EVENT_BITS + ROW_BITS) - 1)
    ).astype(np.int64)
    return found


def transactions(seq: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Journal number and transaction offset of each seq: int64 (n,) each."""
    words = _words(seq)
    journal = (words[:, 1] >> np.uint64(OFFSET_BITS - LOW_OFFSET_BITS)) & np.uint64(
        (1 << JOURNAL_BITS) - 1
    )
    high = words[:, 1] & np.uint64((1 << OFFSET_BITS - LOW_OFFSET_BITS) - 1)
    offset = high << np.uint64(LOW_OFFSET_BITS) | words[:, 0] >> np.uint64(64 - LOW_OFFSET_BITS)
    return journal.astype(np.int64), offset.astype(np.int64)


def in_order(seq: pa.Array) -> NDArray[np.bytes_]:
    """Texts that numpy sorts as the seqs are: (n,)."""
    return _words(seq)[:, ::-1].astype(">u8").view("S16").reshape(-1)


def _words(seq: pa.Array) -> NDArray[np.uint64]:
    """n seqs without nulls as (n, 2) words, low word first."""
    words: NDArray[np.uint64] = np.frombuffer(seq.buffers()[1], dtype="<u8").reshape(-1, 2)
    return words[seq.offset : seq.offset + len(seq)]
