"""The columns of a side: ``c0 ...`` (values, by the column's position in the target), ``_seq`` and
``_absent`` (NULL at the source) and ``_weight`` (rows that one represents: -1 if a change removes
one).

Rules:
- Rows are equal as `read/row_numbers.py` numbers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.sink.modes.mode_columns import RESCUED
from cdc_pipeline.sink.read.row_hashes import Hashes, RowHasher
from cdc_pipeline.sink.read.row_numbers import Numbers, number_rows
from cdc_pipeline.sink.verify.sides import ComparisonSides

NAMES_TYPE: Final = pa.list_(pa.string())
_RESCUED_TYPE: Final = pa.map_(pa.string(), pa.string())


def arrow_of(delta_type: str) -> pa.DataType:
    """Raises KeyError: no column of a target has this type."""
    kind = _RESCUED_TYPE if delta_type == RESCUED.delta_type else arrow_of_delta(delta_type)
    if kind is None:
        raise KeyError(delta_type)
    return kind


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    return table.column(name) if name in table.column_names else None


def where(rows: pa.Table, condition: Any) -> pa.Table:
    return rows.filter(condition, null_selection_behavior="drop")


def of_shard(sides: ComparisonSides, rows: pa.Table) -> pa.Table:
    if sides.shard is None:
        return rows
    return where(rows, pc.equal(rows.column(sides.shard[0]), sides.shard[1]))


def side_rows(
    sides: ComparisonSides,
    values: Mapping[int, Any],
    count: int,
    *,
    seq: Any = None,
    absent: Any = None,
) -> pa.Table:
    """Each row once. Raises ArrowException: a value does not fit its recorded type."""
    arrays: dict[str, Any] = {}
    for at, given in values.items():
        kind = arrow_of(sides.type_of(at))
        arrays[f"c{at}"] = pa.nulls(count, kind) if given is None else given.cast(kind)
    arrays["_seq"] = pa.nulls(count, SEQ_TYPE) if seq is None else seq
    arrays["_absent"] = pa.nulls(count, NAMES_TYPE) if absent is None else absent
    arrays["_weight"] = np.ones(count, np.int64)
    return pa.table(arrays)


def later_than(rows: pa.Table, seq: int) -> NDArray[np.bool_]:
    later = pc.greater(rows.column("_seq"), pa.scalar(Decimal(seq), SEQ_TYPE))
    is_later: NDArray[np.bool_] = pc.fill_null(later, False).to_numpy()
    return is_later


def identities(
    sides: ComparisonSides, tables: Sequence[pa.Table], positions: Sequence[int] | None = None
) -> list[Numbers]:
    """Numbers of each table's rows, equal where the values at `positions` (the key) are equal."""
    positions = sides.key_positions if positions is None else positions
    rows = pa.concat_tables([table.select([f"c{at}" for at in positions]) for table in tables])
    numbers = number_rows(rows, [sides.type_of(at) for at in positions])
    return np.split(numbers, np.cumsum([len(table) for table in tables])[:-1])


def hashed(rows: pa.Table, positions: Sequence[int]) -> Hashes:
    return RowHasher(len(rows)).take(rows.column(f"c{at}") for at in positions)


def merged(sides: ComparisonSides, rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    """Equal rows as one, with the sum of their weights; the last of them by ``_seq``."""
    rows = rows.take(pc.array_sort_indices(rows.column("_seq"), null_placement="at_start"))
    (numbers,) = identities(sides, [rows], positions)
    count = int(numbers.max(initial=-1)) + 1
    last = np.empty(count, np.int64)
    last[numbers] = np.arange(len(rows))
    weights = np.bincount(numbers, rows.column("_weight").to_numpy(), count).astype(np.int64)
    at = rows.column_names.index("_weight")
    return rows.take(pa.array(last)).set_column(at, "_weight", pa.array(weights))
