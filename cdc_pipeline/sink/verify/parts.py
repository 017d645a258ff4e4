"""Read the sides of a comparison in Arrow, part by part (`side_columns.py`).

Rules:
- A side is read as often as it is wanted, and held if its rows are few.
- Rows of the source that pass expressions of Spark's SQL (`modes/shape.py`) go through Spark, some
  at a time. Nothing else does.
- A table whose columns are not as they were written is an error: another program changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import LakeStateError, SparkNeededError
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.failures import reading_failed
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.modes.expand import INSERT
from cdc_pipeline.sink.modes.mode_columns import (
    ABSENT_COLUMN,
    BEFORE_ABSENT_COLUMN,
    BEFORE_COLUMN,
    DELETED_COLUMN,
    END_COLUMN,
    OP_COLUMN,
    RESCUED,
    SEQ_COLUMN,
)
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.shape import needs_shaping, shaped_view
from cdc_pipeline.sink.read.row_numbers import live_rows
from cdc_pipeline.sink.read.rows import SMALL_BYTES, SMALL_ROWS, open_rows
from cdc_pipeline.sink.read.spilled import Spill, StoredRows
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.verify.changelog import rows_left
from cdc_pipeline.sink.verify.side_columns import (
    NAMES_TYPE,
    arrow_of,
    column_of,
    of_shard,
    side_rows,
    where,
)
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_CHANGES: Final = {OP_COLUMN: pa.string(), ABSENT_COLUMN: NAMES_TYPE}
_KEYS_HELD: Final = 10_000  # at least, before the smallest of them are chosen

Parts: TypeAlias = Iterable[pa.Table]
StartSpark: TypeAlias = "Callable[[], SparkSession] | None"


class _ReadParts(Iterable[pa.Table]):
    """Read again whenever they are wanted."""

    def __init__(self, read: Callable[[], Iterator[pa.Table]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[pa.Table]:
        return self._read()


def source_parts(
    sides: ComparisonSides, stored: StoredRows, start: StartSpark, spill: Spill
) -> Parts:
    """Of staged inserts. Raises SparkNeededError: Spark may not start; MergeError: it failed."""
    if needs_shaping(sides.target.spec):
        stored = _shaped(sides, stored, start, spill)

    def parts() -> Iterator[pa.Table]:
        for rows in chain([pa.table({})], stored.batches()):
            values = {at: column_of(rows, f"c{at}") for at in sides.positions}
            yield side_rows(sides, values, len(rows))

    return _ReadParts(parts) if stored.tables is None else list(parts())


def _shaped(
    sides: ComparisonSides, stored: StoredRows, start: StartSpark, spill: Spill
) -> StoredRows:
    """What a batch would write of them, without the rows that pass no filter."""
    if start is None:
        raise SparkNeededError("the rows of the source pass expressions that only Spark evaluates")
    plain = sides.target.with_spec(mode="mirror").model_copy(update={"all_present": True})
    values = ", ".join(f"c{at}" for at in sides.positions)
    passed = StoredRows(spill)
    try:
        session = new_session(start())
        for rows in stored.batches():
            named: Any = {name: rows.column(name) for name in ("_op", "_seq", "_ts")}
            for at in range(len(plain.spec.columns)):
                kind, given = arrow_of(sides.type_of(at)), column_of(rows, f"c{at}")
                named[f"c{at}"] = pa.nulls(len(rows), kind) if given is None else given.cast(kind)
            frame = session.createDataFrame(pa.table(named), Layout(plain).read_schema())
            shaped_view(session, plain, frame, "staged_source")
            of_target = f"SELECT {values} FROM staged_source WHERE _op = {INSERT}"  # noqa: S608 - places
            passed.add(session.sql(of_target).toArrow())
    except Exception as error:
        what = "Spark could not evaluate the expressions of the table's rule"
        raise reading_failed(error, table=sides.target.table, what=what) from None
    return passed


def lake_parts(
    sides: ComparisonSides, version: VersionedTable, spill: Spill, keys: Sequence[pa.Table] = ()
) -> Parts:
    """The rows that represent rows of the source; only those with the first column of `keys` (``c0
    ...``), if there are any. LakeStateError: columns are not as written.
    """
    spec = sides.target.spec
    mode = MODES[spec.mode]
    own = {SEQ_COLUMN: SEQ_TYPE}
    own |= _OF_CHANGES if mode.rows_are_changes else {}
    own |= {BEFORE_ABSENT_COLUMN: NAMES_TYPE} if sides.is_sum else {}
    own |= {DELETED_COLUMN: pa.bool_()} if mode.marks_deleted_rows else {}
    own |= {END_COLUMN: SEQ_TYPE} if mode.keeps_versions else {}
    needed = {sides.name_of(at) for at in sides.positions} | own.keys()
    needed |= set() if sides.shard is None else {sides.shard[0]}
    needed |= {BEFORE_COLUMN} if mode.rows_are_changes else set()
    maybe = {RESCUED.name, BEFORE_ABSENT_COLUMN} - own.keys()
    keys_before = (key for layout in sides.layouts for key in layout.keys.values())
    maybe |= {name for key in keys_before for name in key} - needed
    values = None
    if keys and not mode.rows_are_changes:
        first = sides.key_positions[0]
        chunks = [chunk for some in keys for chunk in some.column(f"c{first}").chunks]
        column = pa.chunked_array(chunks, arrow_of(sides.type_of(first)))
        values = sides.name_of(first), column.unique()
    rows = version.rows(needed | maybe, values)
    _check_columns(rows.schema, needed - maybe, own, version.table)
    if mode.rows_are_changes:
        left = rows_left(sides, rows, spill)
        names = [*(f"c{at}" for at in sides.positions), "_seq", "_absent", "_weight"]
        empty = side_rows(sides, dict.fromkeys(sides.positions), 0)
        left_parts = _ReadParts(
            lambda: (part.select(names) for part in chain([empty], left.batches()))
        )
        return left_parts if left.tables is None else list(left_parts)

    def live_side(part: pa.Table) -> pa.Table:
        live = live_rows(of_shard(sides, part), mode)
        columns = {at: column_of(live, sides.name_of(at)) for at in sides.positions}
        return side_rows(sides, columns, len(live), seq=live.column(SEQ_COLUMN))

    nothing = rows.schema.empty_table()
    parts = _ReadParts(lambda: map(live_side, chain([nothing], rows.batches())))
    may_fit = rows.rows is not None and rows.rows <= SMALL_ROWS and rows.size_bytes <= SMALL_BYTES
    return _held(parts) if may_fit or values is not None else parts


def _held(parts: Parts) -> Parts:
    """Unless they are too many: a few bytes of a file can stand for many."""
    held, row_count, size_bytes = [], 0, 0
    for part in parts:
        held.append(part)
        row_count, size_bytes = row_count + len(part), size_bytes + part.nbytes
        if row_count > SMALL_ROWS or size_bytes > 4 * SMALL_BYTES:
            return parts
    return held


def _check_columns(
    schema: pa.Schema, needed: set[str], own: dict[str, pa.DataType], table: str
) -> None:
    wrong = sorted(needed - set(schema.names))
    wrong += [
        f"{name} {schema.field(name).type}"
        for name, kind in own.items()
        if name in schema.names and schema.field(name).type != kind
    ]
    if BEFORE_COLUMN in needed & set(schema.names):
        kind = schema.field(BEFORE_COLUMN).type
        wrong += [] if pa.types.is_struct(kind) else [f"{BEFORE_COLUMN} {kind}"]
    if wrong:
        raise LakeStateError(
            "columns of the table are not as they were written: another program changed them",
            table=table,
            expected="the columns of its last batch",
            got=", ".join(wrong),
            next_step="restore the table from a backup of the lake, or take a new snapshot of it",
        )


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
                rows = where(rows, _is_above(rows, after))
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
