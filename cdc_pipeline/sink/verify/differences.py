"""Which keys differ, and how, among rows of both sides that are held together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.sink.read.row_numbers import Numbers
from cdc_pipeline.sink.verify.side_columns import identities, later_than
from cdc_pipeline.sink.verify.sides import ComparisonSides

KeyUse = Literal["changed", "unread", "wanted"]


def mark_keys(
    sides: ComparisonSides, rows: pa.Table, keys: Mapping[KeyUse, pa.Table]
) -> tuple[pa.Table, int]:
    """Rows of both sides with ``_changed``, and how many of `unread` keys are left out."""
    of_rows, *others = identities(sides, [rows, *keys.values()])
    numbers = dict(zip(keys, others, strict=True))
    none = np.zeros(0, np.int64)
    in_source = rows.column("_in_source").to_numpy()
    kept = in_source | ~np.isin(of_rows, numbers.get("unread", none))
    stale = int((~kept).sum())
    if "wanted" in numbers:
        kept &= np.isin(of_rows, numbers["wanted"])
    if sides.sampled:
        kept &= np.isin(of_rows, of_rows[kept & in_source])
    changed = numbers.get("changed", none)
    if sides.after_seq is not None:
        changed = np.concatenate([changed, of_rows[kept & later_than(rows, sides.after_seq)]])
    marked = rows.append_column("_changed", pa.array(np.isin(of_rows, changed)))
    return marked.filter(pa.array(kept)), stale


def differences(sides: ComparisonSides, rows: pa.Table) -> pa.Table:
    """And those that changed, as `ComparisonResult.keys`. Of each key, `rows` has every row."""
    rows = rows.take(pc.array_sort_indices(rows.column("_seq"), null_placement="at_start"))
    in_source = rows.column("_in_source").to_numpy()
    weights = rows.column("_weight").to_numpy()
    (keys,) = identities(sides, [rows])
    (values,) = identities(sides, [rows], sides.positions)
    size = int(keys.max(initial=-1)) + 1

    def of_side(mask: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """By key: how many rows, and the last of them (-1: there is none)."""
        last, at = np.full(size, -1, np.int64), np.flatnonzero(mask)
        last[keys[at]] = at
        return np.bincount(keys[at], weights[at], size).astype(np.int64), last

    def any_of(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        by_key = np.zeros(size, np.bool_)
        by_key[keys[mask]] = True
        return by_key

    source_count, source_row = of_side(in_source)
    lake_count, lake_row = of_side(~in_source)
    of_source, of_lake, more = source_row >= 0, lake_row >= 0, source_count - lake_count
    changed = any_of(rows.column("_changed").to_numpy())
    # Not the same rows, each as many times, on both sides.
    signed = np.bincount(values, np.where(in_source, weights, -weights))
    unlike = any_of(signed[values] != 0) & ~changed
    both = np.flatnonzero(unlike & of_source & of_lake)
    names = _differing(sides, rows.take(source_row[both]), rows.take(lake_row[both]))
    differs, names_at = np.zeros(size, np.bool_), np.full(size, len(both))
    differs[both] = pc.list_value_length(names).to_numpy()[:-1] > 0
    names_at[both] = np.arange(len(both))
    if sides.key:
        tests = {
            "missing": of_source & ~of_lake,
            "extra": of_lake & ~of_source,
            "ambiguous": unlike & (source_count > 1),
            "duplicate": unlike & (lake_count > 1),
            "different": differs,
        }
    else:
        tests = {"missing": more > 0, "extra": more < 0}
    kinds = np.select([changed, *tests.values()], ["left_out", *tests], default="")
    at = np.flatnonzero(kinds != "")
    shown = rows.select([f"c{position}" for position in sides.positions]).take(
        pa.array(np.where(of_source, source_row, lake_row)[at])
    )
    found = {
        "_kind": pa.array(kinds[at], pa.string()),
        "_columns": names.take(pa.array(names_at[at])),
        "_more": np.where(changed, 0, more)[at],
        "_lake_seq": rows.column("_seq").take(pa.array(lake_row[at], mask=~of_lake[at])),
    }
    return pa.table(found | dict(zip(shown.column_names, shown.columns, strict=True)))


def _differing(sides: ComparisonSides, source: pa.Table, lake: pa.Table) -> pa.ListArray:
    """The names of the columns that differ, of n pairs of rows (n + 1,): the last list is empty."""
    names = pa.array([sides.name_of(at) for at in sides.value_positions], pa.string())
    differ = np.zeros((len(source), len(names)), np.bool_)
    absent = lake.column("_absent").combine_chunks()
    rows, absent_names = pc.list_parent_indices(absent).to_numpy(), pc.list_flatten(absent)
    for number, at in enumerate(sides.value_positions):
        here, there = identities(sides, [source, lake], [at])
        lacks = pc.is_in(absent_names, value_set=names.slice(number, 1))
        differ[:, number] = here != there
        differ[rows[lacks.to_numpy(zero_copy_only=False)], number] = False
    counts = differ.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts), [counts.sum()]]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names.take(pa.array(np.nonzero(differ)[1])))
