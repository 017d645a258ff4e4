"""What changed in a table between two of its versions, row by row, in Arrow.

Rules:
- Only files are read that one version has and the other has not, and the rows of files of both that
  one of them marks.
- A change is net: a row with equal values in both versions is none, whichever files hold it (a
  compaction has no changes), however often it changed in between. A key has one change at most.
- Rows are those of the source that the mode shows: no deleted rows, no ended versions, no columns
  of the mode. Of a changelog every change is given, as it has them, in their order.
- Before and after have the columns of the newer version. Each is the older one with its place in
  the files (so that a rename changes no row), else it was NULL. After a snapshot names tell, and
  all files are read.
- What has no certain answer is an error, never fewer changes: another mode or key, a type that
  cannot hold the older values or tells them by other texts, two rows of a key, a column whose name
  was dropped and added again (no file says so).
- Where there is no older version, rows with a key are inserts as they are read, after their keys
  alone were compared.
- Else at most `_HELD_BYTES_MAX` of rows are in memory, beside numbers for each. What is more lies
  in nameless files of the temporary folder, by a hash of the key (of a changelog by ranges of the
  seq, as small as wide rows need), and is compared one of `_PARTS` at a time (`spilled.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE, in_order
from cdc_pipeline.config.modes import MODES, key_label
from cdc_pipeline.errors import CutsNotComparableError, SinkError
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import INTEGERS, is_lossless
from cdc_pipeline.sink.delta.replay import TableState
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    DELETED_COLUMN,
    END_COLUMN,
    OP_COLUMN,
    ORDINAL_COLUMN,
    RESCUED,
    SEQ_COLUMN,
    TRANSACTION_COLUMN,
    TS_COLUMN,
)
from cdc_pipeline.sink.read.row_numbers import Numbers, live_rows, number_rows
from cdc_pipeline.sink.read.rows import (
    TableRows,
    open_rows,
    physical,
    placed_as,
    reader_of,
    schema_of,
)
from cdc_pipeline.sink.read.spilled import Partitions, Spill

_HELD_BYTES_MAX: Final = 256 << 20
_PARTS: Final = 128
_SIGN: Final = "_cdc_sign"  # -1: a row of the older version, 1: of the newer
_OF_CHANGE: Final = {  # what a changelog says of a change, by its column there
    SEQ_COLUMN: pa.field("seq", SEQ_TYPE),
    TRANSACTION_COLUMN: pa.field("transaction", pa.string()),
    TS_COLUMN: pa.field("committed_at", pa.timestamp("us", "UTC")),
    ABSENT_COLUMN: pa.field("absent", pa.list_(pa.string())),
    BEFORE_ABSENT_COLUMN: pa.field("before_absent", pa.list_(pa.string())),
}
_IDENTITY: Final = (SEQ_COLUMN, OP_COLUMN, ORDINAL_COLUMN)  # of a change: DDL may fill its values


class TableVersion(NamedTuple):
    """`app_id`: a snapshot gives the table another one."""

    app_id: str
    spec: TargetSpec
    state: TableState


def table_changes(
    table: str,
    path: Path,
    old: TableVersion | None,
    new: TableVersion,
    *,
    was_erased: Callable[[], bool] = lambda: False,
) -> TableChanges:
    """Reads no data file. `old`: None if all rows are new. Raises CutsNotComparableError."""
    spec, key = new.spec, _key_of(table, new.spec)
    rows = open_rows(path, new.state)
    if old is None:
        return TableChanges(table, spec, key, {}, None, rows)
    if old.spec.mode != spec.mode:
        raise not_comparable(table, f"the mode was {old.spec.mode} and is {spec.mode}")
    fields = _older_fields(table, old, new)
    renamed = {was.name: name for name, was in fields.items() if was.name != name}
    key_before = tuple(renamed.get(name, name) for name in _key_of(table, old.spec))
    if key_before != key:
        was, now = (key_label(spec.mode, names) for names in (key_before, key))
        raise not_comparable(table, f"the key was {was} and is {now}")
    types = {column.name: column.delta_type for column in old.spec.columns}
    for column in spec.columns:
        was_field = fields.get(column.name)
        before = None if was_field is None else types.get(was_field.name)
        if before is not None and not _is_comparable(before, column.delta_type):
            raise not_comparable(
                table, f"column {column.name} was {before} and is {column.delta_type}"
            )
    schema, older_rows = schema_of(new.state), open_rows(path, old.state)
    is_same = old.app_id == new.app_id
    read_as = pa.schema(
        placed_as(field, fields.get(field.name), within=not is_same) for field in schema
    )
    only_old = older_rows.besides(new.state if is_same else None, read_as)
    only_new = rows.besides(old.state if is_same else None, schema)
    return TableChanges(table, spec, key, renamed, only_old, only_new, was_erased)


def _is_comparable(before: str, after: str) -> bool:
    """The source may write a number or a time as another text than the one that Arrow makes."""
    is_new_text = after == "string" != before
    return before in INTEGERS if is_new_text else is_lossless(before, after)


def not_comparable(table: str, what: str) -> CutsNotComparableError:
    return CutsNotComparableError(
        f"the changes between the two cuts cannot be told: {what}",
        table=table,
        next_step="read the table whole as of the newer cut, and take its changes from there on",
    )


def _key_of(table: str, spec: TargetSpec) -> tuple[str, ...]:
    """Of a changelog that of its source tables, if they have the same."""
    if MODES[spec.mode].has_key:
        return spec.key
    names = {column.name for column in spec.columns}
    keys = {of.key_in_target for of in spec.sources_of(table).values()}
    key = keys.pop() if len(keys) == 1 else ()
    return key if names.issuperset(key) else ()


def _older_fields(table: str, old: TableVersion, new: TableVersion) -> dict[str, pa.Field]:
    before, after = schema_of(old.state), schema_of(new.state)
    by_name = {field.name: field for field in before}
    if old.app_id != new.app_id:
        return {field.name: by_name[field.name] for field in after if field.name in by_name}
    by_place = {physical(field): field for field in before}
    places = {physical(field) for field in after}
    for field in after:
        named = by_name.get(field.name, field)
        if physical(named) not in places and physical(field) not in by_place:
            raise not_comparable(table, f"column {field.name} was dropped and added again")
    return {field.name: by_place[physical(field)] for field in after if physical(field) in by_place}


@dataclass(frozen=True, slots=True)
class TableChanges:
    """`old`, `new`: the rows that the other one lacks; `renamed`: newer names, by older ones."""

    table: str
    spec: TargetSpec
    key: tuple[str, ...]
    renamed: Mapping[str, str]
    old: TableRows | None
    new: TableRows
    was_erased: Callable[[], bool] = lambda: False

    def read(self) -> pa.RecordBatchReader:
        if MODES[self.spec.mode].rows_are_changes:
            return reader_of(self.table, self._schema(), self._each())
        if self.old is None and self.key:
            return reader_of(self.table, self._schema(), self._inserts())
        compared = self._by_value(self._columns.names, self.key or self._columns.names)
        return reader_of(self.table, self._schema(), map(self._net, compared))

    @property
    def _columns(self) -> pa.Schema:
        names = {column.name for column in self.spec.columns} | {RESCUED.name}
        fields = [field for field in self.new.schema if field.name in names]
        return pa.schema([pa.field(field.name, field.type) for field in fields])

    def _schema(self) -> pa.Schema:
        columns = self._columns
        fields = [pa.field("operation", pa.string())]
        if self.key:
            fields.append(pa.field("key", pa.struct([columns.field(name) for name in self.key])))
        fields += [pa.field(name, pa.struct(list(columns))) for name in ("before", "after")]
        if MODES[self.spec.mode].rows_are_changes:
            fields += _OF_CHANGE.values()
        elif not self.key:
            fields.append(pa.field("count", pa.int64()))
        return pa.schema(fields)

    def _parts(self, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
        for sign, side in ((-1, self.old), (1, self.new)):
            if side is None:
                continue
            if columns is not None:
                side = side.only({*columns, DELETED_COLUMN, END_COLUMN})  # noqa: PLW2901
            for part in side.batches():
                rows = live_rows(part, MODES[self.spec.mode])
                yield rows.append_column(_SIGN, pa.array(np.full(len(rows), sign, np.int8)))

    def _by_value(self, columns: Sequence[str], by: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of both versions' rows; all rows with equal values in `by` in one table."""
        signed = (part.select([*columns, _SIGN]) for part in self._parts(columns))
        return _in_parts(signed, partial(_hashes, by=by), self.table)

    def _numbers(self, rows: pa.Table, names: Sequence[str]) -> Numbers:
        types = {column.name: column.delta_type for column in (*self.spec.columns, RESCUED)}
        return number_rows(rows.select(list(names)), [types.get(name, "") for name in names])

    def _inserts(self) -> Iterator[pa.Table]:
        for keys in self._by_value(self.key, self.key):
            if int(self._numbers(keys, self.key).max(initial=-1)) + 1 < len(keys):
                raise self._key_has_several_rows()
        for rows in self._parts():
            after = _struct(rows.select(self._columns.names))
            operations = pa.repeat(pa.scalar("insert"), len(rows))
            before = pa.nulls(len(rows), after.type)
            yield self._changes({"operation": operations, "before": before, "after": after})

    def _net(self, rows: pa.Table) -> pa.Table:
        """Of all rows that there are of some keys."""
        gone, come, counts = _uneven(rows, self._numbers(rows, self._columns.names))
        before = np.concatenate([gone, np.full(len(come), -1)])
        after = np.concatenate([np.full(len(gone), -1), come])
        if self.key:
            keys = self._numbers(rows.take(pa.array(np.maximum(before, after))), self.key)
            size = int(keys.max(initial=-1)) + 1
            before, after = np.full(size, -1), np.full(size, -1)
            before[keys[: len(gone)]], after[keys[len(gone) :]] = gone, come
            if (before >= 0).sum() + (after >= 0).sum() < counts.sum():
                raise self._key_has_several_rows()
        kinds = np.select([after < 0, before < 0], ["delete", "insert"], "update")
        columns: dict[str, Any] = {"operation": pa.array(kinds, pa.string())}
        for name, at in (("before", before), ("after", after)):
            taken = rows.select(self._columns.names).take(pa.array(at, mask=at < 0))
            columns[name] = _struct(taken, at < 0)
        return self._changes(columns | {"count": pa.array(counts)})

    def _key_has_several_rows(self) -> CutsNotComparableError:
        return not_comparable(self.table, "a key has several rows (verify the table)")

    def _each(self) -> Iterator[pa.Table]:
        """Of a changelog, the changes that the newer version has more, in its order."""
        # Bounds, which only more rows than memory holds need.
        bounds = cache(lambda: self._seq_bounds(self._parts((SEQ_COLUMN,))))
        for rows in self._in_ranges(self._parts(), bounds):
            gone, come, counts = _uneven(rows, self._numbers(rows, _IDENTITY))
            if len(gone) or counts.sum() > len(come):
                why = (
                    "rows of it were erased"
                    if self.was_erased()
                    else ("the changelog has lost changes, or has some twice")
                )
                raise not_comparable(self.table, why)
            added = rows.take(pa.array(come)).sort_by(SEQ_COLUMN)
            yield self._told(added)

    def _in_ranges(
        self, parts: Iterator[pa.Table], bounds: Callable[[], NDArray[np.bytes_]]
    ) -> Iterator[pa.Table]:
        """By ranges of the seq; one that is too large, since its rows are wide, by ranges again."""

        def smaller(read: Callable[[], Iterator[pa.Table]]) -> Iterator[pa.Table]:
            within = self._seq_bounds(read())
            return self._in_ranges(read(), lambda: within)

        def number_of(rows: pa.Table) -> NDArray[Any]:
            return np.searchsorted(bounds(), _seqs(rows), side="right")

        return _in_parts(parts, number_of, self.table, smaller)

    def _seq_bounds(self, parts: Iterator[pa.Table]) -> NDArray[np.bytes_]:
        """The first seq of each of `_PARTS` ranges with equally many seqs, but for the first."""
        seqs = np.unique(np.concatenate([_seqs(rows) for rows in parts]))
        if len(seqs) == 1:
            raise _too_large(self.table)
        return seqs[len(seqs) * np.arange(1, _PARTS) // _PARTS]

    def _told(self, added: pa.Table) -> pa.Table:
        kinds = added.column(OP_COLUMN).combine_chunks()
        no_row = pc.is_in(kinds, value_set=pa.array(["delete", "truncate"])).to_numpy(False)
        before = added.column(BEFORE_COLUMN).combine_chunks()
        fields = {before.type.field(at).name for at in range(before.type.num_fields)}
        images = [
            pc.struct_field(before, [field.name]).cast(field.type)
            if field.name in fields
            else pa.nulls(len(added), field.type)
            for field in self._columns
        ]
        columns = {field.name: added.column(name) for name, field in _OF_CHANGE.items()}
        columns["operation"] = kinds
        columns["before"] = _struct(
            pa.table(images, schema=self._columns), before.is_null().to_numpy(False)
        )
        columns["after"] = _struct(added.select(self._columns.names), no_row)
        return self._changes(columns)

    def _changes(self, columns: dict[str, Any]) -> pa.Table:
        """The key is that of the newer row, if there is one."""
        row = pc.if_else(columns["after"].is_valid(), columns["after"], columns["before"])
        if self.key:
            key = [pc.struct_field(row, [name]) for name in self.key]
            columns["key"] = _struct(pa.table(key, list(self.key)))
        schema = self._schema()
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _struct(rows: pa.Table, is_null: NDArray[np.bool_] | None = None) -> pa.StructArray:
    fields = [pa.field(field.name, field.type) for field in rows.schema]
    columns = [column.combine_chunks() for column in rows.columns]
    mask = None if is_null is None else pa.array(is_null)
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _uneven(rows: pa.Table, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """One row each of those that the older side has more, and the newer; how many more."""
    more = np.bincount(numbers, rows.column(_SIGN).to_numpy()).astype(np.int64)
    rows_at = np.empty(len(more), np.int64)
    rows_at[numbers] = np.arange(len(rows))
    gone, come = np.flatnonzero(more < 0), np.flatnonzero(more > 0)
    return rows_at[gone], rows_at[come], np.abs(more[np.concatenate([gone, come])])


# -- more rows than memory -------------------------------------------------------------------------


def _in_parts(
    parts: Iterator[pa.Table],
    number_of: Callable[[pa.Table], NDArray[Any]],
    table: str,
    smaller: Callable[[Callable[[], Iterator[pa.Table]]], Iterator[pa.Table]] | None = None,
) -> Iterator[pa.Table]:
    """In one table, or if they are too many, those of each number below `_PARTS` in one, in their
    order; `smaller` divides those of one number.
    """
    held, held_bytes = [], 0
    for part in parts:
        held.append(part)
        held_bytes += part.nbytes
        if held_bytes > _HELD_BYTES_MAX:
            break
    else:
        if held:
            yield pa.concat_tables(held)
        return
    divided = Partitions(Spill(held_bytes_max=0), _PARTS, group_bytes=0)
    try:
        for part in chain(held, parts):
            divided.add(part, number_of(part))
        held.clear()
        for rows in divided.parts:
            if rows.size_bytes > _HELD_BYTES_MAX and smaller is None:
                raise _too_large(table)
        for rows in divided.parts:
            if rows.size_bytes > _HELD_BYTES_MAX and smaller is not None:
                yield from smaller(rows.batches)
            elif rows.rows:
                yield pa.concat_tables(rows.batches())
            rows.discard()
    except SinkError as error:
        error.table = error.table or table
        raise


def _too_large(table: str) -> CutsNotComparableError:
    error = not_comparable(
        table, f"rows that are compared together take more than {_HELD_BYTES_MAX >> 20} MiB"
    )
    error.next_step = f"give a cut in between as to_cut, or {error.next_step}"
    return error


def _seqs(rows: pa.Table) -> NDArray[np.bytes_]:
    return in_order(rows.column(SEQ_COLUMN).combine_chunks())


def _hashes(rows: pa.Table, by: Sequence[str]) -> NDArray[np.uint64]:
    """A number below `_PARTS` for each row, of the columns `by`."""
    from cdc_pipeline.sink.read.row_hashes import RowHasher  # compiled: where rows are many

    hashes = RowHasher(len(rows)).take(rows.column(name) for name in by)
    parts: NDArray[np.uint64] = hashes[:, 0] % np.uint64(_PARTS)
    return parts
