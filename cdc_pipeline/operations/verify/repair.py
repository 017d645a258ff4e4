"""Repair rows by key in one recorded batch (kind ``repair``), at a cut for which they are proved.

    rows of a proven view (`view.py`) -> lock -> still at its cut? -> stage -> record -> merge ->
    cut

Two callers bring rows: a comparison those that it found to differ (`apply_repair`), and `reread.py`
those that fulfil a condition. Both stage them in a `RepairBatch`.

Rules:
- A proof holds for one cut and is applied only while the cursor is still there, as a batch of its
  own (K2) which does not move it. If the source has moved on, the rows are read again.
- Repaired rows take a place at the cursor's position before the rows of any transaction: newer than
  everything in the lake, older than everything to come (K17). They come behind the rows of an
  earlier snapshot or repair at the same position.
- Deletes go by key. Rows of a table without a key are inserted and deleted by all of their values,
  as many as the counts differ by.
- If the lake has a key twice, one batch deletes it and the next inserts it.
- A changelog records changes in order, so that an old change has no place in it (K18). A key that
  occurs twice at the source, or a soft-deleted row that occurs twice, can be repaired only by a
  snapshot.
- A repaired target is no longer exact (K12), as after every batch that is not a capture's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.selected import SNAPSHOT_SEQS
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.long_operations import rows_time_us
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.operations.verify.captures import SourceState
from cdc_pipeline.operations.verify.read import Reading, VerifyContext
from cdc_pipeline.operations.verify.report import Difference
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE, TS_TYPE, UPDATE, StagedRows
from cdc_pipeline.sink.verify.compare import ComparisonResult, Kind, read_differences
from cdc_pipeline.sink.verify.sides import ComparisonSides

_ROWS_MAX: Final = 200_000  # in one batch; more keys than these call for a snapshot


class RepairBatch:
    """Not recorded yet, in the source's lock; `seq`: the first place at the cursor's position."""

    def __init__(self, batch: AdminBatch) -> None:
        cursor = batch.cursor
        self.batch: Final = batch
        self.seq: Final = cursor.seq
        self.last_seq: Final = self.seq + 2 * SNAPSHOT_SEQS - 1
        self.time_us: Final = rows_time_us(cursor, batch.last_cut())

    def is_at(self, proved_at: SourceState) -> bool:
        place = self.batch.last_cut().batch_number, self.batch.cursor.position.order
        return place == (proved_at.cut.batch_number, proved_at.position.order)

    def first_place(self, tables: Sequence[str], there: Sequence[int] = ()) -> int:
        """Behind these seqs, and those of all rows of tables, if they are at the position."""
        bounds = {"low": self.seq, "high": self.last_seq}
        highest = [self.batch.sink.tables.rows_within(name, **bounds).highest for name in tables]
        seqs = [seq for seq in (*there, *highest) if seq is not None]
        at_position = (seq for seq in seqs if self.seq <= seq <= self.last_seq)
        return max(((seq - self.seq) // 2 + 1 for seq in at_position), default=0)

    def publish(self, text: str, *, table: str) -> Cut:
        at = self.batch.cursor.position
        note = Note(kind="repaired", text=text, journal=at.journal, offset=at.offset, table=table)
        return self.batch.publish(kind="repair", notes=[note])


def check_room(first: int, count: int, *, table: str) -> None:
    """Raises LakeStateError if `count` places from `first` on reach the next transaction."""
    if first + count > SNAPSHOT_SEQS:
        raise LakeStateError(
            "there is no room for more repairs at this position of the log",
            table=table,
            next_step="repair again after the next transaction of the source",
        )


@dataclass
class Repaired:
    """Of one target: keys by action, numbers of batches, some of the keys that differed."""

    counts: Counter[str] = field(default_factory=Counter)
    batches: list[int] = field(default_factory=list)
    keys: list[Difference] = field(default_factory=list)


def repairable(mode: Mode, kinds: Sequence[Kind], *, unread: bool = False) -> str:
    """ "" if a target of this mode can be; `unread`: some rows have no key to compare by."""
    spec = MODES[mode]
    if spec.rows_are_changes:
        return f"a {spec.label} keeps changes in their order, so that no old change can be added"
    if unread:
        return (
            "without a key a row may be an older image of one that the policies "
            "keep out of the lake"
        )
    if "ambiguous" in kinds:
        return "the source has several rows with one key of the target: choose another key"
    if spec.marks_deleted_rows and "duplicate" in kinds:
        return "two copies of the same row cannot be told apart: take a new snapshot of the table"
    return ""


def apply_repair(
    context: VerifyContext, reading: Reading, found: ComparisonResult, locked: AdminBatch
) -> tuple[int, Counter[str]] | None:
    """Apply differences proved at the second cut; return batch number and keys by action, None if
    the source has moved on since: compare again. Raises LakeStateError: too many rows differ;
    SinkError: a merge failed; the record stays and the next run finishes it.
    """
    sides, target = reading.sides, reading.target
    rows = read_differences(found, reading.proved, limit=_ROWS_MAX + 1)
    if rows.num_rows > _ROWS_MAX:
        raise LakeStateError(
            "too many rows differ for a repair by key",
            table=target.name,
            expected=f"at most {_ROWS_MAX:,}",
            next_step="take a new snapshot of the table: "
            f"{new_snapshot(context.config.name, target.name)}",
        )
    batch = RepairBatch(locked)
    if not batch.is_at(reading.after):
        return None
    # Rows deleted from a mirror leave no place behind: there only those with the same keys matter.
    is_alone = sides.key and not MODES[target.spec.mode].keeps_past
    lake_seqs = pc.drop_null(pc.unique(rows.column("_lake_seq"))).to_pylist()
    first = batch.first_place([] if is_alone else [target.name], [*map(int, lake_seqs)])
    staged = _staged(sides, rows, base=batch.seq, first=first, ts_us=batch.time_us)
    locked.rows.add_staged(staged, target)
    counts = +Counter(
        inserted=staged.rows_inserted, updated=staged.rows_updated, deleted=staged.rows_deleted
    )
    done = ", ".join(f"{number:,} {action}" for action, number in counts.items())
    cut = batch.publish(
        f"rows that differed from the source were repaired by {context.options.who}: {done}",
        table=target.name,
    )
    return cut.batch_number, counts


def _staged(
    sides: ComparisonSides, rows: pa.Table, *, base: int, first: int, ts_us: int
) -> StagedRows:
    """`base`: seq of the place; `first`: number of the first row there."""
    kinds = np.array(rows.column("_kind").to_pylist())
    more = rows.column("_more").to_numpy()
    if not sides.key:
        # As many rows as the counts differ by.
        at = np.repeat(np.arange(rows.num_rows), np.abs(more))
        rows, kinds = rows.take(pa.array(at)), kinds[at]
    gone_op = DELETE if sides.key else LEAVE
    op = np.where(
        kinds == "missing", INSERT, np.where(kinds == "different", UPDATE, gone_op)
    ).astype(np.int8)
    coming = (op == INSERT) | (op == UPDATE)
    count = rows.num_rows
    # Columns that the source has dropped keep the target's values.
    untold = set(range(len(sides.target.spec.columns))) - set(sides.positions)
    # Each key occurs once, so that keyed rows may share a place. Rows without a key need places of
    # their own, and so do rows that are completed from the target's: a place tells whose they are.
    shares_place = bool(sides.key) and not untold
    places = np.full(count, first) if shares_place else first + np.arange(count)
    check_room(first, 1 if shares_place else count, table=sides.target.table)
    arrays: dict[str, Any] = {
        "_op": pa.array(op),
        "_seq": _seqs(base, places, coming),
        "_ts": pa.array(np.full(count, ts_us, np.int64)).cast(pa.timestamp("us")).cast(TS_TYPE),
    }
    for position in sides.positions:
        arrays[f"c{position}"] = rows.column(f"c{position}").combine_chunks()
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
    """`base` must have no bits set for the place and the image."""
    words = np.empty((len(places), 2), np.uint64)
    low = np.uint64(base & (1 << 64) - 1)
    words[:, 0] = low | places.astype(np.uint64) << np.uint64(1) | coming.astype(np.uint64)
    words[:, 1] = np.uint64(base >> 64)
    return pa.Array.from_buffers(SEQ_TYPE, len(places), [None, pa.py_buffer(words)])
