"""Before and after the walk: locate the selected events,
and fill the event columns of their rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cdc_pipeline.binlog.event_types import HEADER_BYTES
from cdc_pipeline.binlog.kernels.memory import prefetch
from cdc_pipeline.binlog.native.arrays import Bytes, Int64s, Words
from cdc_pipeline.binlog.native.compiling import Integer, kernel
from cdc_pipeline.binlog.seq import EVENT_BITS, LOW_OFFSET_BITS, ROW_BITS

EVENT_BYTES_MIN: Final = HEADER_BYTES + 8  # header, and the post-header of a rows event

_LOW_OFFSET: Final = np.uint64((1 << LOW_OFFSET_BITS) - 1)
_OFFSET_SHIFT: Final = np.uint64(1 + ROW_BITS + EVENT_BITS)
_EVENT_SHIFT: Final = np.uint64(1 + ROW_BITS)
_HIGH_SHIFT: Final = np.uint64(LOW_OFFSET_BITS)
_ONE: Final = np.uint64(1)


@kernel
def locate_events(
    data: Bytes,
    events: Any,
    rows: Int64s,
    checksum_bytes: Integer,
    ops_of: Bytes,
    id_bytes_of: Bytes,
    first: Int64s,
    last: Int64s,
    types: Bytes,
    ops: Bytes,
    id_bytes: Bytes,
) -> Integer:
    """Locate the bodies of rows events, and look up the properties of their types. Returns -1, or
    the first of `rows` that is not a rows event, or is outside a transaction or `data`.

    Args:
        data: uint8, the chunk's bytes. events: EVENT_DTYPE, all of the chunk.
        rows: int64 (n,), indexes into `events`.
        checksum_bytes: checksum length of events outside payloads.
        ops_of, id_bytes_of: uint8 (256,), by type: op (0: no rows event) and bytes of a table id.
        first, last: int64 (n,), written: index of the first body byte, and of the byte after the
            last.
        types, ops, id_bytes: uint8 (n,), written.
    """
    count = rows.shape[0]
    for index in range(count):
        if rows[index] < 0 or rows[index] >= len(events):
            return np.int64(index)
        event = events[rows[index]]
        kind = event["event_type"]
        start = event["start"]
        stop = start + np.int64(event["event_length"])
        if (
            ops_of[kind] == 0
            or event["tx_offset"] < 0
            or event["tx_ordinal"] < 0
            or start < 0
            or stop > data.shape[0]
            or stop - start < EVENT_BYTES_MIN
        ):
            return np.int64(index)
        prefetch(data, start + HEADER_BYTES)
        first[index] = start + HEADER_BYTES
        last[index] = stop - (checksum_bytes if event["parent"] < 0 else 0)
        types[index] = kind
        ops[index] = ops_of[kind]
        id_bytes[index] = id_bytes_of[kind]
    return np.int64(-1)


@kernel
def fill_rows(
    events: Any,
    rows: Int64s,
    ops: Bytes,
    row_event: Int64s,
    row_ordinal: Int64s,
    event_base: Integer,
    epoch_and_journal: Integer,
    op: Bytes,
    commit_ts_us: Int64s,
    event_row: Int64s,
    seq: Words,
) -> tuple[Integer, Integer, Integer]:
    """Fill op, commit time, event and seq (see `binlog.seq`) of the rows of one block from their
    events. Returns the largest transaction offset, event ordinal and row ordinal, for the caller
    to check that they fit.

    Args:
        events, rows, ops: as in `locate_events`.
        row_event, row_ordinal: int64 (m,): from `walk_rows`.
        event_base: index of the selection's first event among all events.
        epoch_and_journal: uint64, the bits of the high word.
        op, commit_ts_us, event_row: (m,), written; seq: uint64 (m, 2), written, low word first.
    """
    offset_max = np.int64(0)
    event_max = np.int64(0)
    row_max = np.int64(0)
    for row in range(row_event.shape[0]):
        index = row_event[row]
        event = events[rows[index]]
        offset = event["tx_offset"]
        event_ordinal = np.int64(event["tx_ordinal"])
        offset_max = max(offset_max, offset)
        event_max = max(event_max, event_ordinal)
        row_max = max(row_max, row_ordinal[row])
        op[row] = ops[index]
        commit_ts_us[row] = event["commit_ts_us"]
        event_row[row] = index + event_base
        seq[row, 0] = (
            (np.uint64(offset) & _LOW_OFFSET) << _OFFSET_SHIFT
            | np.uint64(event_ordinal) << _EVENT_SHIFT
            | np.uint64(row_ordinal[row]) << _ONE
        )
        seq[row, 1] = np.uint64(epoch_and_journal) | np.uint64(offset) >> _HIGH_SHIFT
    return offset_max, event_max, row_max
