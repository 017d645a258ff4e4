"""The rows that the changes of a changelog leave, found without holding them all.

Rules:
- Changes count from the last TRUNCATE on.
- With a key: the last image, unless it is a delete; an update that moves a key is a delete of the
  old one, just before it.
- Without a key each change is one row more or less (``_weight`` 1 or -1): an insert adds its row, a
  delete removes it, an update does both. Their sum is the rows of the source with their
  multiplicity.
- Where a DDL changed the key, the rows that the changes before it leave by their key are the first
  rows of what follows (`lake/earlier_layouts.py`).
- A row from before an ADD COLUMN counts with the value that the server gave it then.
- An image that lacks a column makes a sum uncertain, and so does one that lacks a column of a later
  key: such a table is not compared.
- Keys are equal as the server has it, to which 0.0 and -0.0 are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.errors import CdcError, LakeStateError
from cdc_pipeline.lake.records import ColumnDefault
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    OP_COLUMN,
    SEQ_COLUMN,
)
from cdc_pipeline.sink.read.row_numbers import Numbers, number_rows
from cdc_pipeline.sink.read.spilled import Partitions, Spill, StoredRows, partition_count
from cdc_pipeline.sink.verify.side_columns import (
    NAMES_TYPE,
    arrow_of,
    column_of,
    hashed,
    merged,
    of_shard,
    side_rows,
    where,
)
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionRows
from cdc_pipeline.text.spark_sql import text_of_literal

# What a row in memory takes of a compressed file's, about.
_EXPANSION: Final = 4
_CONSTANT: Final = re.compile(
    r"(CAST\()?(?P<prefix>DATE|TIMESTAMP|TIMESTAMP_NTZ|X|)(?P<literal>'[^']*')(?(1) AS (.+)\))"
)
_TYPES: Final = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}


class IncompleteChangelogError(CdcError):
    """The changes of a changelog do not determine the rows that they leave."""


@dataclass(frozen=True)
class _Part:
    """Changes between two DDL that changed the key (positions): seqs from `begin` up to `end`."""

    key: tuple[int, ...]
    begin: int
    end: int | None


def rows_left(sides: ComparisonSides, changes: VersionRows, spill: Spill) -> StoredRows:
    """As a side has them. IncompleteChangelogError: images lack columns that are needed."""
    return _RowsLeft(sides, changes, spill).stored()


def _parts(sides: ComparisonSides, first: int) -> list[_Part]:
    """The parts of the changes that a key each holds for, oldest first."""
    positions = {column.name: at for at, column in enumerate(sides.target.spec.columns)}
    parts: list[_Part] = []
    for layout in sides.layouts:
        if sides.source_table not in layout.keys:
            continue
        key = layout.keys[sides.source_table]
        if any(name not in positions for name in key):
            raise IncompleteChangelogError(
                "rows from before a change of the primary key were identified by "
                f"({', '.join(key)}), which is no longer in the table",
                table=sides.target.table,
                next_step="take a new snapshot of the table, which starts its changes again",
            )
        shard = (sides.shard[0],) if sides.shard is not None and key else ()
        end = int(layout.seq)
        parts.append(_Part(tuple(positions[name] for name in (*key, *shard)), first, end))
        first = max(first, end)
    return [*parts, _Part(tuple(sides.key_positions) if sides.key else (), first, None)]


class _RowsLeft:
    def __init__(self, sides: ComparisonSides, changes: VersionRows, spill: Spill) -> None:
        self._sides, self._changes, self._spill = sides, changes, spill
        self._parts = _parts(sides, self._first_seq())
        keys = {at for part in self._parts for at in part.key}
        self._positions = sorted({*sides.positions, *keys})
        positions = {sides.name_of(at): at for at in self._positions}
        self._defaults = [
            (f"c{positions[default.column]}", int(default.seq), _constant_of(default))
            for default in sides.column_defaults
            if default.column in positions
        ]
        self._partitions = partition_count(changes.rows or 0, _EXPANSION * changes.size_bytes)

    def stored(self) -> StoredRows:
        left, is_sum = StoredRows(self._spill), False
        for part in self._parts:
            if is_sum and part.key:
                left = self._counted(left)
            left = (self._last if part.key else self._sum)(part, left)
            is_sum = not part.key
        return left

    def _first_seq(self) -> int:
        """Behind the last TRUNCATE, of any shard: its own is NULL."""
        last = -1
        for rows in self._changes.batches({OP_COLUMN, SEQ_COLUMN}):
            truncated = where(rows, pc.equal(rows.column(OP_COLUMN), "truncate"))
            highest = pc.max(truncated.column(SEQ_COLUMN)).as_py()
            last = last if highest is None else max(last, int(highest))
        return last + 1

    def _last(self, part: _Part, earlier: StoredRows) -> StoredRows:
        """The last image of each key, of some rows and the changes after them."""
        partitions, lacking = Partitions(self._spill, self._partitions), 0

        def put(rows: pa.Table, gone: Any, *, is_image: bool = True) -> None:
            marked = rows.append_column("_gone", gone).append_column(
                "_is_image", pa.array(np.full(len(rows), is_image))
            )
            partitions.add(marked, hashed(_as_keys(rows), part.key)[:, 0])

        for rows in earlier.batches():
            lacking += int(np.count_nonzero(self._lacks(rows.column("_absent"), part.key)))
            put(rows, pa.array(np.zeros(len(rows), np.bool_)))
        if lacking:
            raise _incomplete(
                self._sides,
                f"{lacking:,} rows from before a change of the primary key have images that lack "
                "columns of the new key",
            )
        earlier.discard()
        for op, after, before in self._images(part):
            put(after, pc.equal(op, "delete"))
            updates = pc.equal(op, "update")
            new, old = (where(image, updates) for image in (after, before))
            numbers = _key_numbers(pa.concat_tables([new, old]), part.key)
            moved = pa.array(numbers[: len(new)] != numbers[len(new) :])
            old = old.filter(moved)
            put(old, pa.array(np.ones(len(old), np.bool_)), is_image=False)
        left = StoredRows(self._spill)
        for tables in partitions.tables():
            if tables:
                left.add(_last_images(pa.concat_tables(tables), part.key))
        return left

    def _sum(self, part: _Part, earlier: StoredRows) -> StoredRows:
        """Some rows, and all rows that the changes after them add or remove."""
        left, lacking = StoredRows(self._spill), 0
        for rows in earlier.batches():
            lacking += int(np.count_nonzero(self._lacks(rows.column("_absent"), self._positions)))
            left.add(rows)
        earlier.discard()
        for op, after, before in self._images(part):
            gone, updated = (pc.equal(op, what).to_numpy() for what in ("delete", "update"))
            lacks_after, lacks_before = (
                self._lacks(image.column("_absent"), self._positions) for image in (after, before)
            )
            lacking += int(np.count_nonzero(lacks_after | (lacks_before & updated)))
            left.add(_weighted(after, np.where(gone, -1, 1)))
            removed = before.filter(pa.array(updated))
            left.add(_weighted(removed, np.full(len(removed), -1)))
        if lacking:
            raise _incomplete(
                self._sides,
                f"{lacking:,} changes of a table without a key have images that lack columns: "
                "their sum is unknown",
            )
        return left

    def _counted(self, changes: StoredRows) -> StoredRows:
        """The rows that a sum of changes adds up to, where each is there once: a key follows."""
        partitions, left = Partitions(self._spill, self._partitions), StoredRows(self._spill)
        for rows in changes.batches():
            partitions.add(rows, hashed(rows, self._positions)[:, 0])
        changes.discard()
        for tables in filter(None, partitions.tables()):
            summed = merged(self._sides, pa.concat_tables(tables), self._positions)
            there = where(summed, pc.greater(summed.column("_weight"), 0))
            left.add(_weighted(there, np.ones(len(there))))
        return left

    # -- images ------------------------------------------------------------------------------------

    def _images(self, part: _Part) -> Iterator[tuple[pa.ChunkedArray, pa.Table, pa.Table]]:
        """What the changes of a part did, and their rows after and before (n each)."""
        for changes in self._changes.batches():
            seq = changes.column(SEQ_COLUMN)
            is_of_part = pc.greater_equal(seq, _seq_scalar(part.begin))
            if part.end is not None:
                is_of_part = pc.and_(is_of_part, pc.less(seq, _seq_scalar(part.end)))
            is_row = pc.not_equal(changes.column(OP_COLUMN), "truncate")
            rows = of_shard(self._sides, where(changes, pc.and_(is_of_part, is_row)))
            before = rows.column(BEFORE_COLUMN)
            names = [before.type.field(at).name for at in range(before.type.num_fields)]
            fields = pa.table([pc.struct_field(before, [name]) for name in names], names)
            yield (
                rows.column(OP_COLUMN),
                self._image(rows, rows, ABSENT_COLUMN),
                self._image(rows, fields, BEFORE_ABSENT_COLUMN),
            )

    def _image(self, rows: pa.Table, values: pa.Table, absent_name: str) -> pa.Table:
        seq, absent = rows.column(SEQ_COLUMN), column_of(rows, absent_name)
        image = side_rows(
            self._sides,
            {at: column_of(values, self._sides.name_of(at)) for at in self._positions},
            len(rows),
            seq=seq,
            absent=None if absent is None else self._absent_now(absent.combine_chunks(), seq),
        )
        for name, before_seq, value in self._defaults:
            given = image.column(name)
            lacks = pc.and_(pc.less(seq, _seq_scalar(before_seq)), pc.is_null(given))
            at = image.column_names.index(name)
            image = image.set_column(at, name, pc.if_else(lacks, value, given))
        return image

    def _absent_now(self, absent: pa.ListArray, seq: pa.ChunkedArray) -> pa.ListArray:
        """The present names of the columns that images lack."""
        for layout in self._sides.layouts:
            if layout.names and len(pc.list_flatten(absent)):
                is_earlier = pc.less(seq, _seq_scalar(int(layout.seq))).to_numpy()
                absent = _renamed(absent, is_earlier, layout.names)
        return absent

    def _lacks(self, absent: pa.ChunkedArray, positions: Sequence[int]) -> NDArray[np.bool_]:
        """Whether images lack one of some columns (n,)."""
        lists, lacks = absent.combine_chunks(), np.zeros(len(absent), np.bool_)
        names = pa.array([self._sides.name_of(at) for at in positions], pa.string())
        is_named = pc.is_in(pc.list_flatten(lists), value_set=names)
        lacks[pc.list_parent_indices(lists).filter(is_named).to_numpy()] = True
        return lacks


def _seq_scalar(seq: int) -> pa.Scalar:
    return pa.scalar(Decimal(seq), SEQ_TYPE)


def _weighted(rows: pa.Table, weights: NDArray[Any]) -> pa.Table:
    """As changes of a sum, whose images lack no column."""
    at = rows.column_names.index("_weight")
    rows = rows.set_column(at, "_weight", pa.array(weights.astype(np.int64)))
    nothing = pa.nulls(len(rows), NAMES_TYPE)
    return rows.set_column(rows.column_names.index("_absent"), "_absent", nothing)


def _as_keys(rows: pa.Table) -> pa.Table:
    """As the server tells keys apart: 0.0 and -0.0 are one."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            zero = pa.scalar(0.0, field.type)
            rows = rows.set_column(at, field.name, pc.add(rows.column(at), zero))
    return rows


def _key_numbers(rows: pa.Table, key: Sequence[int]) -> Numbers:
    keys = _as_keys(rows.select([f"c{at}" for at in key]))
    return number_rows(keys, [""] * len(key))


def _last_images(rows: pa.Table, key: Sequence[int]) -> pa.Table:
    numbers = _key_numbers(rows, key)
    order = pc.sort_indices(rows, [("_seq", "ascending"), ("_is_image", "ascending")]).to_numpy()
    last = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    last[numbers[order]] = order
    left = rows.take(pa.array(last))
    return left.filter(pc.invert(left.column("_gone"))).drop_columns(["_gone", "_is_image"])


def _renamed(
    lists: pa.ListArray, is_earlier: NDArray[np.bool_], names: Mapping[str, tuple[str, ...]]
) -> pa.ListArray:
    """Lists (n,) whose names became others, or none, in the rows (n,) from before a DDL."""
    values, rows = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    after = [pa.array(of_name, pa.string()) for of_name in names.values()]
    found = pc.fill_null(pc.index_in(values, value_set=pa.array(list(names))), -1).to_numpy()
    found = np.where(is_earlier[rows], found, -1)
    lengths = np.array([len(of_name) for of_name in after])
    counts = np.where(found < 0, 1, lengths[found])
    origin = np.repeat(np.arange(len(values)), counts)
    within = np.arange(len(origin)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = len(values) + np.cumsum(lengths) - lengths
    places = np.where(found[origin] < 0, origin, begins[found[origin]] + within)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[origin], minlength=len(lists)))])
    taken = pa.concat_arrays([values, *after]).take(pa.array(places))
    return pa.ListArray.from_arrays(offsets.astype(np.int32), taken, mask=pc.is_null(lists))


def _constant_of(default: ColumnDefault) -> pa.Scalar:
    """The default of a column, which a cut has as Spark SQL."""
    try:
        return constant(default.value).cast(arrow_of(default.delta_type))
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise LakeStateError(
            "a cut has the default of a column in an unknown form",
            expected="a constant of Spark SQL",
            got=f"{type(error).__name__} of column {default.column}",
            next_step="take a new snapshot of the table, which starts its changes again",
        ) from None


def constant(sql: str) -> pa.Scalar:
    """As `schema/evolution/backfill.py` writes it. Raises ValueError, KeyError, ArrowException."""
    if sql in ("true", "false", "NULL"):
        return pa.scalar(None if sql == "NULL" else sql == "true")
    form = _CONSTANT.fullmatch(sql)
    if form is None:
        raise ValueError(sql)
    text = text_of_literal(form["literal"])
    if form["prefix"] == "X":
        return pa.scalar(bytes.fromhex(text))
    return pa.scalar(text).cast(arrow_of(form[4] or _TYPES.get(form["prefix"], "string")))


def _incomplete(sides: ComparisonSides, what: str) -> IncompleteChangelogError:
    return IncompleteChangelogError(
        what,
        table=sides.target.table,
        setting="binlog_row_image",
        expected="complete images (FULL)",
        next_step="SET GLOBAL binlog_row_image = 'FULL', then take a new snapshot of the table, "
        "which starts its changes again",
    )
