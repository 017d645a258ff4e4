"""Compare tables in Arrow, without a JVM, by the rules of `sides.py` and `compare.py`.

A side is read in parts, as often as they are wanted: ``c0 ...``, ``_seq``, ``_absent`` and
``_weight``.

Rules:
- None instead of a side means that Spark must compare: `read/rows.py` does not read the table, rows
  pass expressions of Spark's SQL (filters, computed columns), a changelog is large or spans DDL
  that changed its layout or defaults, its images lack columns, or another program changed one of
  our own.
- Rows are equal as `read/row_numbers.py` numbers them, which is as `exact` has it (`rescue.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.binlog.column_types import DELTA_TYPES_COMPARED_AS_TEXT
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import SparkNeededError
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.replay import readable_state, table_state
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    DELETED_COLUMN,
    END_COLUMN,
    OP_COLUMN,
    RESCUED,
    SEQ_COLUMN,
    START_COLUMN,
)
from cdc_pipeline.sink.modes.shape import needs_shaping
from cdc_pipeline.sink.read.row_numbers import Numbers, live_rows, number_rows
from cdc_pipeline.sink.read.rows import TableRows, open_rows, small_rows
from cdc_pipeline.sink.verify.scratch import StoredRows
from cdc_pipeline.sink.verify.sides import ComparisonSql

_NAMES: Final = pa.list_(pa.string())
_RESCUED_TYPE: Final = pa.map_(pa.string(), pa.string())
_OF_CHANGES: Final = {OP_COLUMN: pa.string(), ABSENT_COLUMN: _NAMES}
_KEYS_HELD: Final = 10_000  # at least, before the smallest of them are chosen

_PART_ROWS: Final = 64, 65_536  # that are held at once, as their files' size has it
_PART_BYTES: Final = 8 << 20

KeyUse = Literal["changed", "unread", "wanted"]
Parts: TypeAlias = Iterable[pa.Table]


class _ReadParts(Iterable[pa.Table]):
    """Read again whenever they are wanted."""

    def __init__(self, read: Callable[[], Iterator[pa.Table]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[pa.Table]:
        return self._read()


def source_parts(sides: ComparisonSql, stored: StoredRows) -> Parts | None:
    """Of staged inserts."""
    if not is_known(sides):
        return None

    def parts() -> Iterator[pa.Table]:
        for rows in chain([pa.table({})], stored.batches()):
            values = {at: _column(rows, f"c{at}") for at in sides.positions}
            yield _side(sides, values, len(rows))

    return _ReadParts(parts) if stored.tables is None else list(parts())


def is_known(sides: ComparisonSql) -> bool:
    """Whether the source's rows need no Spark to be compared."""
    return _are_known(sides) and not needs_shaping(sides.target.spec)


def keys_of(sides: ComparisonSql, tables: Sequence[pa.Table]) -> pa.Table:
    """Of keys ``k0 ...``: their columns as a side has them."""
    schema = pa.schema([(f"c{at}", arrow_of(sides.type_of(at))) for at in sides.key_positions])
    named = [table.select(sides.keys).rename_columns(schema.names) for table in tables]
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in named)])


def lake_parts(
    sides: ComparisonSql, version: int, keys: Sequence[pa.Table] = (), *, all_held: bool = False
) -> Parts | None:
    """Of a version of the table, the rows that represent rows of the source. They are held if they
    are few, or those with the first column of `keys` (``c0 ...``) are, as `small_rows` has it; else
    they are read when they are wanted, unless `all_held`, with which any size is few.
    """
    spec = sides.target.spec
    columns = {spec.columns[at].name for at in sides.positions}
    if not _are_known(sides):
        return None
    shard = set() if sides.shard is None else {sides.shard[0]}
    mode = MODES[spec.mode]
    own = {SEQ_COLUMN: SEQ_TYPE}
    own |= _OF_CHANGES if mode.rows_are_changes else {}
    own |= {BEFORE_ABSENT_COLUMN: _NAMES} if sides.is_sum else {}
    own |= {DELETED_COLUMN: pa.bool_()} if mode.marks_deleted_rows else {}
    own |= {END_COLUMN: SEQ_TYPE} if mode.keeps_versions else {}
    maybe = {RESCUED.name, BEFORE_COLUMN}
    names = columns | shard | set(own) | maybe
    rows: pa.Table | TableRows | None = small_rows(sides.path, version, columns=names)
    if rows is None and keys and not mode.rows_are_changes:
        first = sides.key_positions[0]
        chunks = [chunk for some in keys for chunk in some.column(f"c{first}").chunks]
        values = pa.chunked_array(chunks, arrow_of(sides.type_of(first))).unique()
        rows = small_rows(
            sides.path,
            version,
            columns=names,
            values=(spec.columns[first].name, values),
            any_size=all_held,
        )
    if rows is None and not (all_held or mode.rows_are_changes):
        state = table_state(sides.path, version)
        with suppress(SparkNeededError):
            rows = None if state is None else open_rows(sides.path, state, columns=names)
    if rows is None or not (columns | shard | set(own)) - maybe <= set(rows.schema.names):
        return None
    if any(rows.schema.field(name).type != kind for name, kind in own.items()):
        return None
    if mode.rows_are_changes:
        left = _rows_left(sides, rows)
        return None if left is None else [left]

    def live_side(part: pa.Table) -> pa.Table:
        live = live_rows(_of_shard(sides, part), mode)
        values = {at: _column(live, spec.columns[at].name) for at in sides.positions}
        return _side(sides, values, len(live), seq=live.column(SEQ_COLUMN))

    if isinstance(rows, pa.Table):
        return [live_side(rows)]
    nothing, read = rows.schema.empty_table(), partial(rows.batches, _part_rows(rows))
    return _ReadParts(lambda: map(live_side, chain([nothing], read())))


def _part_rows(rows: TableRows) -> int:
    count, size_bytes = rows.known_size()
    few = _PART_BYTES * (count or 0) // max(1, size_bytes)
    return min(max(few, _PART_ROWS[0]), _PART_ROWS[1])


def next_keys(
    path: Path, version: int, spec: TargetSpec, *, after: pa.Table | None, most: int
) -> pa.Table:
    """The `most` smallest keys of a table above `after` (one), in Arrow's order, each once, of rows
    that represent rows of the source. Raises SparkNeededError: only Spark reads the table.
    """
    mode, key = MODES[spec.mode], list(spec.key)
    columns = {*key, DELETED_COLUMN, END_COLUMN}
    state = readable_state(path, version)
    first = None if after is None else after.column(key[0])[0]
    filters = [(key[0], ">=", first)] if first is not None and first.is_valid else None
    for chosen in [None] if filters is None else [filters, None]:
        opened = open_rows(path, state, columns=columns, filters=chosen)
        keys = opened.schema.empty_table().select(key)
        for part in opened.batches():
            rows = live_rows(part, mode).select(key)
            if after is not None:
                rows = _where(rows, _is_above(rows, after))
            keys = pa.concat_tables([keys, rows])
            if len(keys) > 2 * (most + _KEYS_HELD):
                keys = _smallest(keys, most)
        keys = _smallest(keys, most)
        if len(keys) == most:  # else NULLs may follow, which no filter passes
            break
    return keys


def _is_above(keys: pa.Table, after: pa.Table) -> Any:
    above: Any = pa.scalar(False)
    for name in reversed(keys.column_names):
        column, value = keys.column(name), after.column(name)[0]
        if value.is_valid:
            greater = pc.fill_null(pc.greater(column, value), True)  # NULL comes last
            equal = pc.fill_null(pc.equal(column, value), False)
            above = pc.or_(greater, pc.and_(equal, above))
        else:
            above = pc.and_(pc.is_null(column), above)
    return above


def _smallest(keys: pa.Table, most: int) -> pa.Table:
    keys = keys.group_by(keys.column_names).aggregate([])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return keys.take(order[:most])


def _are_known(sides: ComparisonSql) -> bool:
    return all(arrow_of(sides.type_of(at)) is not None for at in sides.positions)


def arrow_of(delta_type: str) -> pa.DataType | None:
    return _RESCUED_TYPE if delta_type == RESCUED.delta_type else arrow_of_delta(delta_type)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    return table.column(name) if name in table.column_names else None


def _where(rows: pa.Table, condition: Any) -> pa.Table:
    return rows.filter(condition, null_selection_behavior="drop")


def _of_shard(sides: ComparisonSql, rows: pa.Table) -> pa.Table:
    if sides.shard is None:
        return rows
    return _where(rows, pc.equal(rows.column(sides.shard[0]), sides.shard[1]))


def _side(
    sides: ComparisonSql,
    values: Mapping[int, Any],
    count: int,
    *,
    seq: Any = None,
    absent: Any = None,
    weight: NDArray[np.int64] | None = None,
) -> pa.Table:
    """Raises ArrowException: a value does not fit the type that it is recorded with."""
    arrays: dict[str, Any] = {}
    for at, given in values.items():
        kind = arrow_of(sides.type_of(at))
        arrays[f"c{at}"] = pa.nulls(count, kind) if given is None else given.cast(kind)
    arrays["_seq"] = pa.nulls(count, SEQ_TYPE) if seq is None else seq
    arrays["_absent"] = pa.nulls(count, _NAMES) if absent is None else absent
    arrays["_weight"] = np.ones(count, np.int64) if weight is None else weight
    return pa.table(arrays)


def _rows_left(sides: ComparisonSql, rows: pa.Table) -> pa.Table | None:
    """The rows that the changes of a changelog leave."""
    if sides.layouts or sides.column_defaults or rows.column(SEQ_COLUMN).null_count:
        return None
    before_type = rows.schema.field(BEFORE_COLUMN).type
    if not pa.types.is_struct(before_type):
        return None
    truncated = pc.equal(rows.column(OP_COLUMN), "truncate")
    since = pc.max(rows.column(SEQ_COLUMN).filter(truncated))  # of any shard: its own is NULL
    rows = _of_shard(sides, _where(rows, pc.invert(truncated)))
    if since.is_valid:
        rows = _where(rows, pc.greater(rows.column(SEQ_COLUMN), since))
    op, seq = rows.column(OP_COLUMN), rows.column(SEQ_COLUMN)
    before = rows.column(BEFORE_COLUMN)
    fields = {before_type.field(at).name for at in range(before_type.num_fields)}
    names = {at: sides.target.spec.columns[at].name for at in sides.positions}
    after_values = {at: _column(rows, name) for at, name in names.items()}
    before_values = {
        at: pc.struct_field(before, [name]) if name in fields else None
        for at, name in names.items()
    }
    after = _side(sides, after_values, len(rows), seq=seq, absent=rows.column(ABSENT_COLUMN))
    old = _side(sides, before_values, len(rows), seq=seq)
    gone = pc.equal(op, "delete").to_numpy()
    updated = pc.equal(op, "update").to_numpy()
    if sides.is_sum:
        lists = (ABSENT_COLUMN, BEFORE_ABSENT_COLUMN)
        if any(_any_names(rows.column(name)) for name in lists):
            return None
        weight = np.where(gone, -1, 1).astype(np.int64)
        removed = old.filter(pa.array(updated))
        added = after.set_column(after.num_columns - 1, "_weight", [weight])
        lost = np.full(len(removed), -1, np.int64)
        return pa.concat_tables(
            [added, removed.set_column(removed.num_columns - 1, "_weight", [lost])]
        )
    if any(sides.type_of(at) in DELTA_TYPES_COMPARED_AS_TEXT for at in sides.key_positions):
        return None  # Spark groups these by `=`
    # An update that moves a key removes the row with the old one, just before.
    new_keys, old_keys = _identities(sides, [after, old])
    moved = np.flatnonzero(updated & (new_keys != old_keys))
    order = np.empty(len(rows), np.int64)
    order[pc.sort_indices(seq.combine_chunks()).to_numpy()] = np.arange(len(rows))
    keys = np.concatenate([new_keys, old_keys[moved]])
    places = np.concatenate([2 * order + 1, 2 * order[moved]])
    last = np.full(keys.max(initial=-1) + 1, -1, np.int64)
    in_order = np.argsort(places)
    last[keys[in_order]] = in_order
    last = last[(last >= 0) & (last < len(rows))]
    return after.take(pa.array(last[~gone[last]]))


def _any_names(lists: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.greater(pc.list_value_length(lists), 0)).as_py())


# -- what differs ----------------------------------------------------------------------------------


def mark_keys(
    sides: ComparisonSql,
    rows: pa.Table,
    keys: Mapping[KeyUse, pa.Table],
    after_seq: int | None,
    *,
    sampled: bool,
) -> tuple[pa.Table, int]:
    """Rows of both sides with ``_changed``, and how many the lake has of `unread` keys: left out.
    The rest is as in `compare`.
    """
    of_rows, *others = _identities(sides, [rows, *keys.values()])
    numbers = dict(zip(keys, others, strict=True))
    none = np.zeros(0, np.int64)
    in_source = rows.column("_in_source").to_numpy()
    kept = in_source | ~np.isin(of_rows, numbers.get("unread", none))
    stale = int((~kept).sum())
    if "wanted" in numbers:
        kept &= np.isin(of_rows, numbers["wanted"])
    if sampled:
        kept &= np.isin(of_rows, of_rows[kept & in_source])
    changed = numbers.get("changed", none)
    if after_seq is not None:
        changed = np.concatenate([changed, of_rows[kept & later_than(rows, after_seq)]])
    marked = rows.append_column("_changed", pa.array(np.isin(of_rows, changed)))
    return marked.filter(pa.array(kept)), stale


def later_than(rows: pa.Table, seq: int) -> NDArray[np.bool_]:
    later = pc.greater(rows.column("_seq"), pa.scalar(Decimal(seq), SEQ_TYPE))
    is_later: NDArray[np.bool_] = pc.fill_null(later, False).to_numpy()
    return is_later


def differences(sides: ComparisonSql, rows: pa.Table) -> pa.Table:
    """The keys that differ, and those that changed, as `ComparisonResult.folder` has them. Of each
    key that there is, `rows` has every row of both sides.
    """
    rows = rows.take(pc.array_sort_indices(rows.column("_seq"), null_placement="at_start"))
    in_source = rows.column("_in_source").to_numpy()
    weights = rows.column("_weight").to_numpy()
    (keys,) = _identities(sides, [rows])
    (values,) = _identities(sides, [rows], sides.positions)
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


def _differing(sides: ComparisonSql, source: pa.Table, lake: pa.Table) -> pa.ListArray:
    """The names of the columns that differ, of n pairs of rows (n + 1,): the last list is empty."""
    names = pa.array(
        [sides.target.spec.columns[at].name for at in sides.value_positions], pa.string()
    )
    differ = np.zeros((len(source), len(names)), np.bool_)
    absent = lake.column("_absent").combine_chunks()
    rows, absent_names = pc.list_parent_indices(absent).to_numpy(), pc.list_flatten(absent)
    for number, at in enumerate(sides.value_positions):
        here, there = _identities(sides, [source, lake], [at])
        lacks = pc.is_in(absent_names, value_set=names.slice(number, 1))
        differ[:, number] = here != there
        differ[rows[lacks.to_numpy(zero_copy_only=False)], number] = False
    counts = differ.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts), [counts.sum()]]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names.take(pa.array(np.nonzero(differ)[1])))


def _identities(
    sides: ComparisonSql, tables: Sequence[pa.Table], positions: Sequence[int] | None = None
) -> list[Numbers]:
    """Numbers of each table's rows, equal where the values at `positions` (the key) are equal."""
    positions = sides.key_positions if positions is None else positions
    rows = pa.concat_tables([table.select([f"c{at}" for at in positions]) for table in tables])
    numbers = number_rows(rows, [sides.type_of(at) for at in positions])
    return np.split(numbers, np.cumsum([len(table) for table in tables])[:-1])


def history_intervals(rows: pa.Table, key: Sequence[str]) -> dict[str, int]:
    """As `compare.history_intervals`."""
    both = [rows.column(name) for name in (START_COLUMN, END_COLUMN)]
    places = pa.concat_arrays([column.combine_chunks() for column in both]).drop_null().unique()
    places = places.take(pc.sort_indices(places))
    start, end = (
        pc.fill_null(pc.index_in(column, value_set=places), -1).to_numpy() for column in both
    )
    keys = number_rows(rows.select(list(key)), [""] * len(key))
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
