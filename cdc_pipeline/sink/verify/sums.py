"""Which rows of two sides are unlike: each is read once, and looked at only if the sums of its
bucket differ (K17).

Rules:
- A row's bucket is a hash of its key, the same on both sides: no order and no collation is
  involved. Of a bucket and side two independent hashes of its rows are summed, which no order
  changes. Other rows have the same two sums with a chance of 2**-128.
- Keys that changed, or are unread, may differ: their buckets are looked at in any case.
- Memory does not grow with a table: 33 MiB of sums, and rows that are unlike are divided by their
  keys into parts that can be held. Of a sample the hash of each key is held, up to a bound: of more
  keys than that all rows are looked at.
- Rows without a key that are alike are one row of their number, wherever they are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.row_hashes import add_up
from cdc_pipeline.sink.read.row_hashes import Hashes, RowHasher
from cdc_pipeline.sink.read.spilled import Partitions, Spill, StoredRows, partition_count
from cdc_pipeline.sink.verify.differences import KeyUse
from cdc_pipeline.sink.verify.parts import Parts
from cdc_pipeline.sink.verify.side_columns import arrow_of, hashed, later_than, merged
from cdc_pipeline.sink.verify.sides import ComparisonSides

_BUCKETS: Final = 1 << 20
_FEW_BUCKETS: Final = 1 << 14  # where both sides are held
_SAMPLE_KEYS_MAX: Final = 16 << 20
_LARGEST: Final = np.array([np.iinfo(np.uint64).max], np.uint64)


class UnlikePart(NamedTuple):
    """`rows`: of both sides, all those of each key, with ``_in_source``; `keys`: of these rows."""

    rows: pa.Table
    keys: dict[KeyUse, pa.Table]


class Unlike(NamedTuple):
    """`equal`: how many other rows each side has."""

    parts: Iterator[UnlikePart]
    equal: int
    buckets: int
    buckets_differing: int


def unlike_rows(
    sides: ComparisonSides,
    both: tuple[Parts, Parts],
    keys: Mapping[KeyUse, StoredRows],
    spill: Spill,
) -> Unlike:
    """Of the source and the lake; `keys` as in `compare`. Raises as reading them does."""
    buckets = _FEW_BUCKETS if all(isinstance(side, list) for side in both) else _BUCKETS
    counts, sums = np.zeros((buckets, 2), np.int64), np.zeros((buckets, 2), np.uint64)
    chosen = np.zeros(buckets, np.bool_)

    def buckets_of(hashes: Hashes) -> NDArray[np.int64]:
        places: NDArray[np.int64] = (hashes[:, 0] & np.uint64(buckets - 1)).astype(np.int64)
        return places

    for of_use in keys.values():
        for some in of_use.batches():
            chosen[buckets_of(hashed(keys_of(sides, some), sides.key_positions))] = True
    sample: list[NDArray[np.uint64]] = []
    row_count = size_bytes = 0
    for side, parts in enumerate(both if "wanted" not in keys else ()):
        known = np.unique(np.concatenate([*sample, _LARGEST])) if sides.sampled and side else None
        for part in parts:
            hasher = RowHasher(len(part))
            of_keys = hasher.take(part.column(f"c{at}") for at in sides.key_positions)
            hashes = hasher.take(part.column(f"c{at}") for at in sides.value_positions)
            places, weights = buckets_of(of_keys), part.column("_weight").to_numpy()
            row_count, size_bytes = row_count + len(part), size_bytes + part.nbytes
            if known is not None:
                kept = _is_in(of_keys[:, 1], known)
                places, hashes, weights = places[kept], hashes[kept], weights[kept]
            elif sides.sampled and not chosen.all():
                sample.append(of_keys[:, 1])
                if sum(map(len, sample)) > _SAMPLE_KEYS_MAX:
                    chosen[:] = True
            add_up(places, hashes, weights, side, counts, sums)
            if side and sides.after_seq is not None:
                chosen[buckets_of(of_keys[later_than(part, sides.after_seq)])] = True
    unlike = (sums != 0).any(axis=1) | (counts[:, 0] != counts[:, 1])
    chosen |= unlike
    unlike_count = int(np.abs(counts[chosen]).sum()) + sum(of_use.rows for of_use in keys.values())
    if sides.is_sum or chosen.all():  # changes that undo each other count nothing
        unlike_count = max(unlike_count, int(row_count * chosen.mean()))
    unlike_bytes = unlike_count * (size_bytes // max(1, row_count))
    partitions = partition_count(unlike_count, unlike_bytes)

    def rows_of(part: pa.Table, in_source: bool) -> tuple[pa.Table, Hashes]:
        of_keys = hashed(part, sides.key_positions)
        is_chosen = chosen[buckets_of(of_keys)]
        rows = part.filter(pa.array(is_chosen))
        of_keys = of_keys[is_chosen]
        if not sides.key and partitions > 1:
            rows = merged(sides, rows, sides.positions)
            of_keys = hashed(rows, sides.key_positions)
        return rows.append_column("_in_source", pa.array(np.full(len(rows), in_source))), of_keys

    def unlike_parts() -> Iterator[UnlikePart]:
        rows = Partitions(spill, partitions)
        of_uses = {use: Partitions(spill, partitions) for use in keys}
        for side, parts in enumerate(both):
            for part in parts:
                some, of_keys = rows_of(part, not side)
                rows.add(some, of_keys[:, 1])
        for use, of_use in keys.items():
            for some in of_use.batches():
                named = keys_of(sides, some)
                of_uses[use].add(named, hashed(named, sides.key_positions)[:, 1])
        nothing = keys_of(sides, None)
        for tables, *tables_of_keys in zip(
            rows.tables(), *(of_use.tables() for of_use in of_uses.values()), strict=True
        ):
            if tables:
                keys_here = [pa.concat_tables([nothing, *some]) for some in tables_of_keys]
                yield UnlikePart(
                    pa.concat_tables(tables), dict(zip(of_uses, keys_here, strict=True))
                )

    filled = np.count_nonzero(counts.any(axis=1))
    return Unlike(
        unlike_parts(),
        int(counts[~chosen, 0].sum()),
        max(1, int(filled)),
        int(np.count_nonzero(unlike)),
    )


def keys_of(sides: ComparisonSides, table: pa.Table | None) -> pa.Table:
    """Keys ``k0 ...`` as the columns that a side has of them; None: no keys."""
    kinds = [(f"c{at}", arrow_of(sides.type_of(at))) for at in sides.key_positions]
    schema = pa.schema(kinds)
    if table is None:
        return schema.empty_table()
    return table.select(sides.keys).rename_columns(schema.names).cast(schema)


def _is_in(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """`known`: in order, the largest number at least."""
    found: NDArray[np.bool_] = known[np.searchsorted(known, hashes)] == hashes
    return found
