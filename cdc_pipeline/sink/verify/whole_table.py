"""Questions of a whole table of the lake, whatever its size: its rows are read part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.sink.modes.mode_columns import DELETED_COLUMN, END_COLUMN, START_COLUMN
from cdc_pipeline.sink.read.row_hashes import RowHasher
from cdc_pipeline.sink.read.row_numbers import live_rows, number_rows
from cdc_pipeline.sink.read.spilled import Partitions, Spill, partition_count
from cdc_pipeline.sink.verify.tables import VersionedTable, VersionRows

_HASHES: Final = ("_hash_a", "_hash_b")


def count_strays(table: VersionedTable, shard_column: str, values: Collection[str]) -> int:
    """How many rows of a merged table have a shard column with none of `values`."""
    known, strays = pa.array(sorted(values), pa.string()), 0
    for rows in table.rows([shard_column]).batches():
        is_known = pc.is_in(rows.column(shard_column), value_set=known)
        strays += len(rows) - int(np.count_nonzero(is_known.to_numpy()))
    return strays


def duplicate_keys(table: VersionedTable, mode: Mode, key: Sequence[str], spill: Spill) -> int:
    spec, duplicates = MODES[mode], 0
    if spec.rows_are_changes:
        return 0
    for part in _by_key(table.rows([*key, DELETED_COLUMN, END_COLUMN]), key, spill):
        keys = number_rows(live_rows(part, spec).select(_HASHES), ["", ""])
        duplicates += int(np.count_nonzero(np.bincount(keys) > 1))
    return duplicates


def history_intervals(table: VersionedTable, key: Sequence[str], spill: Spill) -> dict[str, int]:
    """`overlaps`: versions that end after the next begins, or before they begin; `not_ended`:
    current ones that another follows; `gaps`: that end before the next begins.
    """
    counts = Counter[str]()
    for part in _by_key(table.rows([*key, START_COLUMN, END_COLUMN]), key, spill):
        counts.update(_intervals(part))
    return dict(counts)


def _by_key(rows: VersionRows, key: Sequence[str], spill: Spill) -> Iterator[pa.Table]:
    """Those of a key in one part, with two hashes in its place: no two keys have the same two."""
    divided = Partitions(spill, partition_count(rows.rows or 0, rows.size_bytes))
    for part in chain([rows.schema.empty_table()], rows.batches()):
        hashed = _hashed(part, key)
        divided.add(hashed, hashed.column(_HASHES[1]).to_numpy())
    yield from (pa.concat_tables(tables) for tables in divided.tables() if tables)


def _hashed(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    hashes = RowHasher(len(rows)).take(rows.column(name) for name in key)
    others = rows.drop_columns(list(key))
    for name, lane in zip(_HASHES, hashes.T, strict=True):
        others = others.append_column(name, pa.array(np.ascontiguousarray(lane)))
    return others


def _intervals(rows: pa.Table) -> dict[str, int]:
    both = [rows.column(name) for name in (START_COLUMN, END_COLUMN)]
    places = pa.concat_arrays([column.combine_chunks() for column in both]).drop_null().unique()
    places = places.take(pc.sort_indices(places))
    start, end = (
        pc.fill_null(pc.index_in(column, value_set=places), -1).to_numpy() for column in both
    )
    keys = number_rows(rows.select(_HASHES), ["", ""])
    # Of two that begin at the same place the current one comes last.
    order = np.lexsort((np.where(end < 0, len(places), end), start, keys))
    keys, start, end = keys[order], start[order], end[order]
    following = np.full(len(rows), -1, np.int64)  # where the next version of the key begins
    following[:-1] = np.where(keys[1:] == keys[:-1], start[1:], -1)
    ended, followed = end >= 0, following >= 0
    overlaps = (
        (ended & ((followed & (end > following)) | (end < start)))
        | (start < 0)
        | (followed & (following == start))
    )
    return {
        "versions": len(rows),
        "keys": len(np.unique(keys)),
        "overlaps": int(overlaps.sum()),
        "not_ended": int((~ended & followed).sum()),
        "gaps": int((ended & followed & (end < following)).sum()),
    }
