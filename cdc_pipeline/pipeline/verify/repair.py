"""Repair keys that are proved to differ, as one recorded batch at a cut (kind ``reread``).

Rules:
- A proof holds for one cut and is applied only while the cursor is still there, as a batch of its
  own, staged and recorded like any other (K2). The batch does not move the cursor. If the source
  has moved on, the keys are read again.
- Repaired rows take a place at the cursor's position before the rows of any transaction: newer than
  everything in the lake, older than everything to come (K17). They come behind the rows of an
  earlier repair at the same position.
- Deletes go by key. Rows of a table without a key are inserted and deleted by all of their values,
  as many as the counts differ by.
- If the lake has a key twice, one batch deletes it and the next inserts it.
- A changelog records changes in order, so that an old change has no place in it (K18). A key that
  occurs twice at the source, or a soft-deleted row that occurs twice, can be repaired only by a
  load.
- A repaired target is no longer exact (K12).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.selected import LOAD_SEQS
from cdc_pipeline.binlog.seq import SEQ_TYPE, journal_number, pack_seq
from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.records import Note
from cdc_pipeline.pipeline.admin_batch import admin_batch
from cdc_pipeline.pipeline.verify.read import Reading
from cdc_pipeline.pipeline.verify.report import Difference
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE, TS_TYPE, UPDATE, StagedRows
from cdc_pipeline.sink.verify.compare import Found, Kind, highest_seq, read_found
from cdc_pipeline.sink.verify.sides import Sides

REPAIRED_NOTE: Final = "repaired"
ROWS_MAX: Final = 200_000  # in one batch; more keys than these call for a load


@dataclass
class Repaired:
    """Repairs made to one target.

    Attributes:
        counts: keys by action: inserted, updated, deleted.
        batches: their numbers.
        keys: some of those that differed.
    """

    counts: Counter[str] = field(default_factory=Counter)
    batches: list[int] = field(default_factory=list)
    keys: list[Difference] = field(default_factory=list)


def repairable(mode: Mode, kinds: Sequence[Kind], *, unread: bool = False) -> str:
    """Return why keys of these kinds cannot be repaired in a target of this mode; "" if they can.

    Args:
        unread: the table has no key, and some rows of the source cannot be compared.
    """
    spec = MODES[mode]
    if spec.rows_are_changes:
        return f"a {spec.label} tells changes in their order: an old one has no place there (K18)"
    if unread:
        return "without a key a row may be an older image of one that the policies keep out of the lake"
    if "ambiguous" in kinds:
        return "the source has several rows with one key of the target: choose another key"
    if spec.marks_deleted_rows and "duplicate" in kinds:
        return "a row that is there twice cannot be told from itself: load the table anew"
    return ""


def apply_repair(
    config: PipelineConfig,
    sink: DeltaSink,
    reading: Reading,
    found: Found,
    kinds: Sequence[Kind],
    *,
    cursors: CursorStore,
    who: str,
    run_id: str = "",
) -> tuple[int, Counter[str]] | None:
    """Apply differences proved at the second cut; return batch number and keys by action.

    Returns:
        None if the source has moved on since: compare again.

    Raises:
        LockError: a run is writing.
        LakeStateError: a batch is unfinished, or too many rows differ.
        SinkError: a merge failed; the record stays and the next run finishes it.
    """
    sides, target = reading.sides, reading.target
    rows = read_found(sides, found, kinds, limit=ROWS_MAX + 1)
    if rows.num_rows > ROWS_MAX:
        raise LakeStateError(
            "too many rows differ to be repaired one by one",
            table=target.name,
            expected=f"at most {ROWS_MAX:,}",
            next_step=f"load the table anew: `cdc-pipeline snapshot {config.name} --table {quote(target.name)}`",
        )
    with admin_batch(sink, cursors=cursors, doing="repair", run_id=run_id) as batch:
        cursor, cut = batch.cursor, batch.last_cut()
        before = reading.after
        if (cut.batch_number, cursor.position.order) != (before.cut.batch_number, before.position.order):
            return None
        at = cursor.position
        base = pack_seq(cursor.epoch, journal_number(at.journal), at.offset)
        last = _last_there(sink, sides, rows, base)
        first = 0 if last is None else (last - base) // 2 + 1
        staged = _staged(sides, rows, base=base, first=first, ts_us=_time_us(cut.source_time_us))
        batch.rows.add_staged(staged, target.with_state(exact=False))
        counts = Counter(inserted=staged.rows_inserted, updated=staged.rows_updated, deleted=staged.rows_deleted)
        counts = +counts
        said = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        states = dict(cut.cursor.targets)
        states[target.name] = states[target.name].model_copy(update={"exact": False})
        made = batch.publish(
            kind="repair",
            targets=states,
            notes=(
                Note(
                    kind=REPAIRED_NOTE,
                    text=f"rows that differed from the source were repaired by {who}: {said}",
                    journal=at.journal,
                    offset=at.offset,
                    table=target.name,
                ),
            ),
        )
        return made.batch_number, counts


def _last_there(sink: DeltaSink, sides: Sides, rows: pa.Table, base: int) -> int | None:
    """Return the last place at this position that rows of the lake have.

    Rows deleted from a mirror leave no place behind, so that only rows with the same keys
    matter.
    """
    end = base + 2 * LOAD_SEQS - 1
    if not sides.key or MODES[sides.target.spec.mode].keeps_past:
        return highest_seq(sink.spark.session(), sides, low=base, high=end)
    there = [int(seq) for seq in pc.unique(rows.column("_lake_seq")).to_pylist() if seq is not None]
    return max((seq for seq in there if base <= seq <= end), default=None)


def _staged(sides: Sides, rows: pa.Table, *, base: int, first: int, ts_us: int) -> StagedRows:
    """Return rows read by `read_found` as staged rows.

    Args:
        base: seq of the place; `first` is the number of the first row there.
    """
    kinds = np.array(rows.column("_kind").to_pylist())
    more = rows.column("_more").to_numpy()
    if not sides.key:
        # As many rows as the counts differ by.
        at = np.repeat(np.arange(rows.num_rows), np.abs(more))
        rows, kinds = rows.take(pa.array(at)), kinds[at]
    gone_op = DELETE if sides.key else LEAVE
    op = np.where(kinds == "missing", INSERT, np.where(kinds == "different", UPDATE, gone_op)).astype(np.int8)
    coming = (op == INSERT) | (op == UPDATE)
    count = rows.num_rows
    # Each key occurs once, so that keyed rows may share a place. Rows without a key need places of
    # their own.
    places = np.full(count, first) if sides.key else first + np.arange(count)
    if count and int(places.max()) >= LOAD_SEQS:
        raise LakeStateError(
            "there is no place left for repairs at this position of the log",
            table=sides.target.table,
            next_step="repair again after the next transaction of the source",
        )
    arrays: dict[str, Any] = {
        "_op": pa.array(op),
        "_seq": _seqs(base, places, coming),
        "_ts": pa.array(np.full(count, ts_us, np.int64)).cast(pa.timestamp("us")).cast(TS_TYPE),
    }
    for position in sides.positions:
        arrays[f"c{position}"] = rows.column(f"c{position}").combine_chunks()
    # Columns that the source has dropped keep the target's values.
    untold = set(range(len(sides.target.spec.columns))) - set(sides.positions)
    if untold:
        for position in range(len(sides.target.spec.columns)):
            arrays[f"p{position}"] = pa.array(np.full(count, position not in untold))
    return StagedRows(
        table=pa.table(arrays),
        partial=bool(untold),
        partial_key_updates=0,
        rows_inserted=int((op == INSERT).sum()),
        rows_updated=int((op == UPDATE).sum()),
        rows_deleted=int((~coming).sum()),
    )


def _seqs(base: int, places: Any, coming: Any) -> pa.Array:
    """Combine seq parts; `base` must have no bits set for the place and the image."""
    words = np.empty((len(places), 2), np.uint64)
    low = np.uint64(base & (1 << 64) - 1)
    words[:, 0] = low | places.astype(np.uint64) << np.uint64(1) | coming.astype(np.uint64)
    words[:, 1] = np.uint64(base >> 64)
    return pa.Array.from_buffers(SEQ_TYPE, len(places), [None, pa.py_buffer(words)])


def _time_us(source_time_us: int) -> int:
    return source_time_us if source_time_us >= 0 else time.time_ns() // 1000
