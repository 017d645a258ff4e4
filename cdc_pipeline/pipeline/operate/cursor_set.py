"""The record of a cursor that a person has moved (K3).

Rules:
- It is a batch of kind ``cursor_set`` without targets, under the next number: recorded first, then its cut. A crash in
  between is healed by the next run, which finishes every recorded batch.
"""

from __future__ import annotations

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import put_if_absent
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.sink.protocol import Sink


def record_cursor_set(sink: Sink, record: BatchRecord) -> None:
    """Write the record; the caller holds the sink's lock and calls `sink.finish` next.

    Raises:
        LakeStateError: a batch is unfinished, or this number is taken.
    """
    cut = sink.last_cut()
    following = (cut.batch_number if cut is not None else 0) + 1
    if record.batch_number != following or not put_if_absent(sink.paths.batch(following), state.dump(record)):
        raise LakeStateError(
            f"batch {record.batch_number} cannot be recorded",
            expected=f"batch {following}, not recorded yet",
            got="another writer, or an unfinished batch",
            next_step="start again: it takes up the lake's own state first",
        )
