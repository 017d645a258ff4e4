"""Turn decoded changes into staged rows: what a keyed target's MERGE needs of each, in Arrow (K1,
K10, K11).

Staged columns: ``_op`` int8, ``_seq`` decimal(38,0), ``_ts`` timestamp in UTC, ``c0 ... cN`` the
target's columns in recorded order, and, only if an image lacks columns, ``p0 ... pN`` boolean: the
column is in the image. Positions and not names, so that no source column can be mistaken for one of
ours.

Rules:
- insert -> one INSERT row, delete -> one DELETE row, each with the change's own seq and image bit.
  DELETE and LEAVE hold key columns only, unless the target keeps the last values of deleted rows
  (`before_values`).
- An update whose key differs, compared byte by byte, is a LEAVE of the old key (before's seq) and
  an ARRIVE at the new key (after's seq); any other is an UPDATE row with the after image.
- A column that an update's after image lacks keeps its value; if the before image has that value,
  it is staged.
- A target without a key finds rows by all of their values, and gets every update as LEAVE and
  ARRIVE.
- Nothing loops over rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog import decoded as changes
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.errors import IncompleteRowsError, StagingError

DELETE: Final = 0
INSERT: Final = 1
UPDATE: Final = 2
LEAVE: Final = 3
ARRIVE: Final = 4

TS_TYPE: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """`partial`: with the ``p`` columns; `partial_key_updates`: ARRIVE rows that lack columns; the
    last three count changes at the source.
    """

    table: pa.Table
    partial: bool
    partial_key_updates: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int


def check_fit(rows: DecodedRows, columns: tuple[str, ...], key: tuple[str, ...] = ()) -> None:
    """Raises StagingError: a value that no Delta type holds, or a column not the target's."""
    table = rows.schema.full_name
    names = rows.schema.column_names
    if rows.invalid:
        first = rows.invalid[0]
        raise StagingError(
            f"column {names[first.column]} holds a value that must not be staged: {first.reason}",
            table=table,
        )
    if set(names) - set(columns) or not set(key) <= set(names):
        raise StagingError(
            "the rows' columns differ from the target's",
            table=table,
            expected=f"columns {', '.join(columns)}, key {', '.join(key)}",
            got=", ".join(names),
        )


def expand(
    rows: DecodedRows,
    *,
    columns: tuple[str, ...],
    key: tuple[str, ...],
    before_values: bool = False,
) -> StagedRows:
    """The staged rows of n changes; `columns` and `key` are the target's. Raises StagingError: as
    `check_fit`; IncompleteRowsError: an image lacks key columns, or any if there is no key.
    """
    check_fit(rows, columns, key)
    names = rows.schema.column_names
    source = [names.index(name) if name in names else None for name in columns]
    inserted, updated, deleted = (
        rows.op == op for op in (changes.INSERT, changes.UPDATE, changes.DELETE)
    )
    full = rows.all_present and None not in source
    before, after = rows.before, rows.after
    present = before_present = np.ones((len(rows), len(names)), dtype=np.bool_)
    if not rows.all_present:
        present, before_present = rows.has_value, rows.has_before
        from_before = present & ~rows.has_after
        after = filled(after, before, from_before)
        _check_key(rows, key, present, before_present)

    moved = (
        updated
        if not key or not updated.any()
        else updated & _key_differs(before, after, [names.index(name) for name in key])
    )
    arriving = inserted | updated
    op = np.where(inserted, INSERT, np.where(moved, ARRIVE, UPDATE)).astype(np.int8)
    leaving = deleted | moved
    leave_op = np.where(deleted, DELETE, LEAVE).astype(np.int8)

    key_set = set(key)
    parts: list[pa.Table] = []
    for image, chosen, ops, seq in (
        (after, arriving, op, with_after_bit(rows.seq)),
        (before, leaving, leave_op, rows.seq),
    ):
        count = int(chosen.sum())
        if not count:
            continue
        mask = None if count == len(chosen) else pa.array(chosen)
        arrays: dict[str, Any] = {
            "_op": pa.array(ops[chosen]),
            "_seq": _picked(seq, mask),
            "_ts": pa.array(rows.commit_ts_us[chosen].astype(np.int64))
            .cast(pa.timestamp("us"))
            .cast(TS_TYPE),
        }
        for position, index in enumerate(source):
            if index is None:
                # Spark reads a column that a file does not have as NULL; its presence bit is not
                # set.
                continue
            column = image.column(index)
            wanted = image is after or before_values or not key or columns[position] in key_set
            arrays[f"c{position}"] = (
                _picked(column, mask) if wanted else pa.nulls(count, column.type)
            )
        if not full:
            for position, index in enumerate(source):
                there = np.zeros(count, np.bool_)
                if index is not None and (image is after or before_values):
                    there = (present if image is after else before_present)[chosen, index]
                arrays[f"p{position}"] = pa.array(there)
        parts.append(pa.table(arrays))
    if not parts:
        raise StagingError("there are no changes to stage", table=rows.schema.full_name)
    staged = pa.concat_tables(parts)
    lacking = moved & ~present.all(axis=1) if None not in source else moved
    whole = present[arriving].all() and (not before_values or before_present[leaving].all())
    partial = not full and not (whole and None not in source)
    if not partial:
        staged = staged.select([name for name in staged.column_names if not name.startswith("p")])
    return StagedRows(
        table=staged,
        partial=partial,
        partial_key_updates=int(lacking.sum()),
        rows_inserted=int(inserted.sum()),
        rows_updated=int(updated.sum()),
        rows_deleted=int(deleted.sum()),
    )


def _picked(values: pa.Array, mask: pa.Array | None) -> pa.Array:
    return values if mask is None else values.filter(mask)


def with_after_bit(seq: pa.Array) -> pa.Array:
    """The seqs of the after images: with the lowest bit set."""
    words = np.frombuffer(seq.buffers()[1], dtype="<u8")[
        2 * seq.offset : 2 * (seq.offset + len(seq))
    ].copy()
    words[::2] |= np.uint64(1)
    return pa.Array.from_buffers(SEQ_TYPE, len(seq), [None, pa.py_buffer(words)])


def filled(
    after: pa.RecordBatch, before: pa.RecordBatch, from_before: NDArray[np.bool_]
) -> pa.RecordBatch:
    """`after` with the values of `before` wherever `from_before` (n, columns) is set."""
    arrays = [
        pc.if_else(pa.array(from_before[:, index]), before.column(index), after.column(index))
        if from_before[:, index].any()
        else after.column(index)
        for index in range(after.num_columns)
    ]
    return pa.record_batch(arrays, names=after.schema.names)


def check_images(rows: DecodedRows, key: tuple[str, ...]) -> None:
    """An insert or update holds its key, an update or delete that by which it finds its row; the
    key () is all columns. Raises IncompleteRowsError.
    """
    if not rows.all_present:
        _check_key(rows, key, rows.has_value, rows.has_before)


def _check_key(
    rows: DecodedRows,
    key: tuple[str, ...],
    present: NDArray[np.bool_],
    before_present: NDArray[np.bool_],
) -> None:
    names = rows.schema.column_names
    key = key or names
    indexes = [names.index(name) for name in key]
    new_missing = ~present[:, indexes] & (rows.op != changes.DELETE)[:, np.newaxis]
    old_missing = ~before_present[:, indexes] & (rows.op != changes.INSERT)[:, np.newaxis]
    missing = new_missing | old_missing
    if missing.any():
        raise IncompleteRowsError(
            "a row image lacks key columns",
            table=rows.schema.full_name,
            setting="binlog_row_image",
            expected=f"key columns {', '.join(key)} in every image",
            got=f"{int(missing.any(axis=1).sum())} changes without "
            f"{key[int(np.argmax(missing.any(axis=0)))]}",
            next_step="SET GLOBAL binlog_row_image = 'FULL' at the source, end all older "
            "sessions, and start after them; or give the target's rule another "
            "name, and the primary key as its key",
        )


def _key_differs(
    before: pa.RecordBatch, after: pa.RecordBatch, key: list[int]
) -> NDArray[np.bool_]:
    differs = np.zeros(before.num_rows, dtype=np.bool_)
    for index in key:
        old, new = before.column(index), after.column(index)
        differs |= ~pc.equal(old, new).fill_null(False).to_numpy(zero_copy_only=False)
    return differs
