"""Leave out of a log what was erased on request (`lake/erasures.py`).

Rules:
- Rows are judged as they are decoded, before masks (K14).
- Rows under a name that another table had before or has had since are that table's.
- A row whose key changes from or to an erased one is like one that leaves or enters a filter: its
  insert, or its delete, remains, so that the other key is right in every mode.
- A row of a prepared XA transaction counts where it was prepared: an erasure waits for those.
- Which rows an erasure reaches is told by the journal that they are of (`Erasure.reach`).
- Where no erasure is, nothing is computed; nor behind the last `until`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.errors import IncompleteRowsError, SchemaError
from cdc_pipeline.lake.erasures import Erasure, KeyNames, Reach, ReadJournal, digests_of
from cdc_pipeline.position.position import ServerIdentity


class _Keys:
    """What was erased of one table, under one of its names and those of its key, with one salt; and
    how far that reaches into a journal, since one place or time.
    """

    def __init__(self, key: KeyNames, reaching: Sequence[tuple[Erasure, Reach]]) -> None:
        self._key = key
        self.newest, self._since = reaching[-1]
        self._salt = bytes.fromhex(self.newest.salt)
        seqs: dict[str, int] = {}
        times_us: dict[str, int] = {}
        for one, reach in reaching:
            for digest in one.digests:
                seqs[digest] = max(reach.until, seqs.get(digest, -1))
                times_us[digest] = max(reach.until_us, times_us.get(digest, -1))
        digests = sorted(seqs)
        self._digests = pa.array(digests, pa.string())
        self._seqs = pa.array([Decimal(seqs[one]) for one in digests], SEQ_TYPE)
        self._times_us = np.array([times_us[one] for one in digests], np.int64)
        self._last_seq = max(seqs.values(), default=-1)
        self._last_us = max(times_us.values(), default=-1)

    def is_apart(self, rows: DecodedRows) -> bool:
        """Whether all rows are newer than every erasure, or older than what it reaches."""
        first, last = (int(seq.as_py()) for seq in pc.min_max(rows.seq).values())
        first_us, last_us = int(rows.commit_ts_us.min()), int(rows.commit_ts_us.max())
        is_older = last < self._since.since or last_us < self._since.since_us
        return is_older or not self.covers(first, first_us)

    def covers(self, seq: int, time_us: int) -> bool:
        return seq < self._last_seq or time_us <= self._last_us

    def images(self, rows: DecodedRows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        names = [column.name for column in rows.schema.columns]
        key = self._key.among(names, rows.schema.key_names)
        if key is None:
            raise SchemaError(
                "rows of this table were erased, and this part of the log has another key, or "
                "columns that had other names: nothing shows which rows those are",
                table=rows.schema.full_name,
                expected=f"a key of {', '.join(self.newest.key)}",
                got=", ".join(rows.schema.key_names) or "no key",
                next_step=f"take a snapshot, or read the log from {self.newest.position} on",
            )
        before, after = _images_of(rows, [names.index(name) for name in key])
        return (
            self._has(before, rows) & (rows.op != INSERT),
            self._has(after, rows) & (rows.op != DELETE),
        )

    def _has(self, keys: Sequence[pa.Array], rows: DecodedRows) -> NDArray[np.bool_]:
        at = pc.index_in(digests_of(keys, self._salt), self._digests)
        is_older = pc.fill_null(pc.less(rows.seq, self._seqs.take(at)), False)
        since = pa.scalar(Decimal(self._since.since), SEQ_TYPE)
        found: NDArray[np.bool_] = np.array(pc.and_(is_older, pc.greater_equal(rows.seq, since)))
        times_us = self._times_us[np.array(pc.fill_null(at, 0))] if len(self._digests) else -1
        is_since = rows.commit_ts_us >= self._since.since_us
        found |= np.array(pc.is_valid(at)) & (rows.commit_ts_us <= times_us) & is_since
        return found


def _images_of(rows: DecodedRows, columns: Sequence[int]) -> tuple[list[pa.Array], list[pa.Array]]:
    """Columns before and after; a partial image lacks what did not change."""
    before = [rows.before.column(column) for column in columns]
    has_value = rows.has_after
    after = [
        pc.if_else(pa.array(has_value[:, column]), rows.after.column(column), old)
        for column, old in zip(columns, before, strict=True)
    ]
    return before, after


class ErasedRows:
    """What readings of a source's log leave out; false if that is nothing."""

    def __init__(
        self, erasures: Iterable[Erasure], *, identity: ServerIdentity, epoch: int
    ) -> None:
        """`identity`, `epoch`: of the log that is read."""
        self._erasures, self._identity, self._epoch = tuple(erasures), identity, epoch
        self._tables_of = lru_cache(maxsize=64)(self._tables_in)

    def _tables_in(self, journal: tuple[int, int]) -> Mapping[str, Sequence[_Keys]]:
        of = ReadJournal(self._identity, self._epoch, *journal)
        groups: dict[tuple[str, KeyNames, str, int, int], list[tuple[Erasure, Reach]]]
        groups = defaultdict(list)
        for one in self._erasures:
            for name in one.names:
                for key, reach in one.reaches(name, of):
                    alike = name, key, one.salt, reach.since, reach.since_us
                    groups[alike].append((one, reach))
        tables: dict[str, list[_Keys]] = defaultdict(list)
        for (name, key, *_), reaching in groups.items():
            tables[name].append(_Keys(key, reaching))
        return tables

    def __bool__(self) -> bool:
        return bool(self._erasures)

    def may_be_in(self, name: str, journal: tuple[int, int], *, seq: int, time_us: int) -> bool:
        """Whether an event of a table, which cannot be decoded, may have erased rows."""
        return any(one.covers(seq, time_us) for one in self._tables_of(journal).get(name, ()))

    def without(
        self, rows: DecodedRows, journals: Collection[tuple[int, int]]
    ) -> tuple[DecodedRows, int]:
        """What remains of unmasked rows, and how many of them were left out or changed. `journals`:
        theirs, by number and second of creation. Raises SchemaError: they have another key.
        """
        before = after = np.zeros(len(rows), np.bool_)
        for journal in journals if len(rows) else ():
            is_of = True if len(journals) == 1 else self._is_of(journal[0], rows)
            for keys in self._tables_of(journal).get(rows.schema.full_name, ()):
                if not keys.is_apart(rows):
                    images = keys.images(rows)
                    before, after = before | images[0] & is_of, after | images[1] & is_of
        touched = before | after
        if not touched.any():
            return rows, 0
        enters = before & ~after & (rows.op == UPDATE)
        leaves = after & ~before & (rows.op == UPDATE)
        kept = ~touched | enters | leaves
        if enters.any() or leaves.any():
            rows = _without_images(rows, enters, leaves)
        return rows.where(kept), int(touched.sum())

    def _is_of(self, number: int, rows: DecodedRows) -> NDArray[np.bool_]:
        begin, end = (
            pa.scalar(Decimal(pack_seq(self._epoch, one, 0)), SEQ_TYPE)
            for one in (number, number + 1)
        )
        return np.array(pc.and_(pc.greater_equal(rows.seq, begin), pc.less(rows.seq, end)))


def _completed(rows: DecodedRows, enters: NDArray[np.bool_]) -> DecodedRows:
    """With earlier values where a row that enters lacks them. Raises IncompleteRowsError."""
    before, after = rows.has_before, rows.has_after
    lacking = int((~(before | after)[enters]).any(axis=1).sum())
    if lacking:
        raise IncompleteRowsError(
            "the key of an erased row changed, and its other values are not logged again",
            table=rows.schema.full_name,
            expected="whole images (binlog_row_image = FULL) where a key changes from an erased "
            "one, or an erasure of both keys",
            got=f"{lacking} changes without some columns",
            next_step="erase the other key, too, or take a new snapshot of the table",
        )
    taken = enters[:, np.newaxis] & ~after
    columns = [
        pc.if_else(pa.array(taken[:, at]), rows.before.column(at), column)
        for at, column in enumerate(rows.after.columns)
    ]
    present = np.where(enters[:, np.newaxis], rows.before_present, 0) | rows.after_present
    return replace(
        rows,
        after=pa.RecordBatch.from_arrays(columns, schema=rows.after.schema),
        after_present=present.astype(np.uint8),
    )


def _without_images(
    rows: DecodedRows, enters: NDArray[np.bool_], leaves: NDArray[np.bool_]
) -> DecodedRows:
    """Updates that enter become inserts, those that leave deletes. Raises as `_completed`."""
    if not rows.all_present and enters.any():
        rows = _completed(rows, enters)
    gone = {"before": enters, "after": leaves}
    return replace(
        rows,
        op=np.where(enters, INSERT, np.where(leaves, DELETE, rows.op)).astype(rows.op.dtype),
        before=_emptied(rows.before, enters),
        after=_emptied(rows.after, leaves),
        before_present=np.where(enters[:, np.newaxis], 0, rows.before_present).astype(np.uint8),
        after_present=np.where(leaves[:, np.newaxis], 0, rows.after_present).astype(np.uint8),
        invalid=[value for value in rows.invalid if not gone[value.image][value.row]],
    )


def _emptied(image: pa.RecordBatch, gone: NDArray[np.bool_]) -> pa.RecordBatch:
    mask = pa.array(gone)
    columns = [pc.if_else(mask, pa.scalar(None, column.type), column) for column in image.columns]
    return pa.RecordBatch.from_arrays(columns, schema=image.schema)
