"""Which rows of two sides are unlike: each is read once, and held only if the sums of its bucket
differ (K17).

Rules:
- A row's bucket is a hash of its key, the same on both sides: no order and no collation is
  involved. Of a bucket and side two independent hashes of its rows are summed, which no order
  changes. Other rows have the same two sums with a chance of 2**-128.
- Keys that changed, or are unread, may differ: their buckets are looked at in any case.
- Memory does not grow with a table: 33 MiB of sums, and at most `_HELD_BYTES_MAX` of rows that are
  unlike. More than these is Spark's. Of a sample the hash of each key is held, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.row_hashes import add_up
from cdc_pipeline.sink.read.row_hashes import Hashes, RowHasher
from cdc_pipeline.sink.read.rows import SMALL_BYTES, SMALL_ROWS
from cdc_pipeline.sink.verify.in_memory import KeyUse, Parts, later_than
from cdc_pipeline.sink.verify.sides import ComparisonSql

_BUCKETS: Final = 1 << 20
_FEW_BUCKETS: Final = 1 << 14  # where both sides are held
_HELD_ROWS_MAX: Final = 2 * SMALL_ROWS
_HELD_BYTES_MAX: Final = 5 * SMALL_BYTES
_SAMPLE_KEYS_MAX: Final = 16 << 20
_LARGEST: Final = np.array([np.iinfo(np.uint64).max], np.uint64)


class Unlike(NamedTuple):
    """`rows`: of both sides, all those of each key, with ``_in_source``; `equal`: how many others
    each side has.
    """

    rows: pa.Table
    equal: int
    buckets: int
    buckets_differing: int


def unlike_rows(
    sides: ComparisonSql,
    both: tuple[Parts, Parts],
    keys: Mapping[KeyUse, pa.Table],
    after_seq: int | None,
    *,
    sampled: bool,
) -> Unlike | None:
    """Of the source and the lake; the rest is as in `mark_keys`. None: they are too many to be
    held. Raises OSError, ArrowException: a file cannot be read.
    """
    buckets = _FEW_BUCKETS if all(isinstance(side, list) for side in both) else _BUCKETS
    counts, sums = np.zeros((buckets, 2), np.int64), np.zeros((buckets, 2), np.uint64)
    chosen = np.zeros(buckets, np.bool_)

    def buckets_of(hashes: Hashes) -> NDArray[np.int64]:
        places: NDArray[np.int64] = (hashes[:, 0] & np.uint64(buckets - 1)).astype(np.int64)
        return places

    def of_key(rows: pa.Table) -> tuple[RowHasher, Hashes]:
        hasher = RowHasher(len(rows))
        return hasher, hasher.take(rows.column(f"c{at}") for at in sides.key_positions)

    for of_use in keys.values():
        chosen[buckets_of(of_key(of_use)[1])] = True
    sample: list[NDArray[np.uint64]] = []
    for side, parts in enumerate(both if "wanted" not in keys else ()):
        known = np.unique(np.concatenate([*sample, _LARGEST])) if sampled and side else None
        for part in parts:
            hasher, of_keys = of_key(part)
            hashes = hasher.take(part.column(f"c{at}") for at in sides.value_positions)
            places, weights = buckets_of(of_keys), part.column("_weight").to_numpy()
            if known is not None:
                kept = _is_in(of_keys[:, 1], known)
                places, hashes, weights = places[kept], hashes[kept], weights[kept]
            elif sampled:
                sample.append(of_keys[:, 1])
                if sum(map(len, sample)) > _SAMPLE_KEYS_MAX:
                    return None
            add_up(places, hashes, weights, side, counts, sums)
            if side and after_seq is not None:
                chosen[buckets_of(of_keys[later_than(part, after_seq)])] = True
    unlike = (sums != 0).any(axis=1) | (counts[:, 0] != counts[:, 1])
    chosen |= unlike
    if counts[chosen].sum() > _HELD_ROWS_MAX:
        return None
    held, held_bytes, held_rows = [], 0, 0
    for side, parts in enumerate(both):
        for part in parts:
            rows = part
            if len(part):
                rows = part.filter(pa.array(chosen[buckets_of(of_key(part)[1])]))
            held_bytes, held_rows = held_bytes + rows.nbytes, held_rows + len(rows)
            if held_bytes > _HELD_BYTES_MAX or held_rows > _HELD_ROWS_MAX:
                return None
            if len(rows) or not len(part):
                in_source = pa.array(np.full(len(rows), not side))
                held.append(rows.append_column("_in_source", in_source))
    filled = np.count_nonzero(counts.any(axis=1))
    return Unlike(
        pa.concat_tables(held),
        int(counts[~chosen, 0].sum()),
        max(1, int(filled)),
        int(np.count_nonzero(unlike)),
    )


def _is_in(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """`known`: in order, the largest number at least."""
    found: NDArray[np.bool_] = known[np.searchsorted(known, hashes)] == hashes
    return found
