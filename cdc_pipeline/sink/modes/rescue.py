"""Values that their Delta type cannot hold (docs/tables/rescue.md): NULL in their columns, and
their text in the row's ``_cdc_rescued``.

Rules:
- ``_cdc_rescued`` is a map from column name to the server's own text, or NULL if a row has no such
  value. It is the last of the target's columns, and each mode treats it like a column of the
  source.
- The last present value of a row counts, column by column (K10). An image that holds all columns of
  which the target has ever rescued a value determines ``_cdc_rescued``; one that holds none of them
  leaves it as it is; one that holds some of them cannot be applied, and stops its table by name.
- A table gets the column when a batch first needs it: a difference between record and table (K13).
- A value that becomes NULL without its text (`NULLED`) is counted all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.column_types import DELTA_TYPES_COMPARED_AS_TEXT
from cdc_pipeline.binlog.decoded import DELETE, INSERT, UPDATE, DecodedRows, InvalidValue
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.errors import IncompleteRowsError
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.mode_columns import BEFORE_COLUMN, RESCUED, RESCUED_COLUMN
from cdc_pipeline.sink.spark.sql import quoted, table_at, text_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.sink.delta.table_log import TableLog

NULLED: Final = "NULL by zero_dates"  # reason of an invalid value whose text is not kept

_TYPE: Final = pa.map_(pa.string(), pa.string())
_COLUMN: Final = Column(RESCUED_COLUMN, Kind.TEXT, 0, 0, True)  # its kind is never used


def rescued_names(rows: DecodedRows, mode: Mode) -> set[str]:
    """A mirror uses no before images."""
    rescued_columns = {
        value.column
        for value in rows.invalid
        if value.reason != NULLED
        and (MODES[mode].keeps_past or value.image == "after" or _is_kept(value, rows))
    }
    return {rows.schema.column_names[column] for column in rescued_columns}


def counted(rows: DecodedRows) -> Counter[str]:
    """After-image values that become NULL, by column; a row whose update keeps one counts again."""
    counts = Counter(value.column for value in rows.invalid if value.image == "after")
    return Counter({rows.schema.column_names[column]: number for column, number in counts.items()})


def rows_counted(rows: DecodedRows) -> int:
    return len({value.row for value in rows.invalid if value.image == "after"})


def check_images(rows: DecodedRows, known: Collection[str]) -> None:
    """IncompleteRowsError: an image holds only some of the columns with rescued values."""
    if rows.all_present or len(known) < 2:
        return
    there = _of_known(rows.has_value, rows, known)
    odd = there.any(axis=1) & ~there.all(axis=1) & (rows.op != DELETE)
    if odd.any():
        raise IncompleteRowsError(
            "a row image holds only some of the columns whose values were rescued: "
            f"{', '.join(sorted(known))}",
            table=rows.schema.full_name,
            setting="binlog_row_image",
            expected=f"images with all or none of these columns, because {RESCUED_COLUMN} is a "
            "single value of the row",
            got=f"{int(odd.sum())} updates with some of them",
            next_step="SET GLOBAL binlog_row_image = 'FULL', end all older sessions, and "
            "take a new snapshot of the table; or keep only one such column in a table",
        )


def with_rescued(
    rows: DecodedRows, known: Collection[str] | None, *, mode: Mode = "mirror"
) -> DecodedRows:
    """With ``_cdc_rescued`` as their last column, and without invalid values; `known` None: the
    target has no such column. A changelog's image stands for itself. Raises IncompleteRowsError.
    """
    if known is None:
        if rescued_names(rows, mode):
            return rows  # staging refuses them
        return replace(rows, invalid=[]) if rows.invalid else rows
    if not MODES[mode].rows_are_changes:
        check_images(rows, known)
    schema = replace(rows.schema, columns=(*rows.schema.columns, _COLUMN))
    texts = [value for value in rows.invalid if value.reason != NULLED]
    before = _maps(rows, [value for value in texts if value.image == "before"])
    after = _maps(
        rows, [value for value in texts if value.image == "after" or _is_kept(value, rows)]
    )
    before_has: NDArray[np.bool_] | None = None
    after_has: NDArray[np.bool_] | None = None
    if not rows.all_present and known and not MODES[mode].rows_are_changes:
        before_has = np.all(_of_known(rows.has_before, rows, known), axis=1)
        after_has = np.all(_of_known(rows.has_value, rows, known), axis=1)
    return replace(
        rows,
        schema=schema,
        before=rows.before.append_column(RESCUED_COLUMN, before),
        after=rows.after.append_column(RESCUED_COLUMN, after),
        before_present=_with_bit(
            rows.before_present, rows.op != INSERT, before_has, len(rows.schema.columns)
        ),
        after_present=_with_bit(
            rows.after_present, rows.op != DELETE, after_has, len(rows.schema.columns)
        ),
        invalid=[],
    )


def _is_kept(value: InvalidValue, rows: DecodedRows) -> bool:
    """Whether the after image has the before image's value: the update lacks the column."""
    held = rows.after_present[value.row]
    return rows.op[value.row] == UPDATE and not held[value.column // 8] >> value.column % 8 & 1


def _of_known(
    there: NDArray[np.bool_], rows: DecodedRows, known: Collection[str]
) -> NDArray[np.bool_]:
    """(n, known) of (n, columns); none that the rows lack."""
    names = rows.schema.column_names
    none = np.zeros(len(rows), np.bool_)
    return np.stack(
        [there[:, names.index(name)] if name in names else none for name in sorted(known)], axis=1
    )


def _with_bit(
    bitmap: NDArray[np.uint8],
    of_op: NDArray[np.bool_],
    selected: NDArray[np.bool_] | None,
    column: int,
) -> NDArray[np.uint8]:
    there = of_op if selected is None else of_op & selected
    if column % 8 == 0:
        bitmap = np.concatenate([bitmap, np.zeros((len(bitmap), 1), np.uint8)], axis=1)
    else:
        bitmap = bitmap.copy()
    bitmap[:, column // 8] |= there.astype(np.uint8) << np.uint8(column % 8)
    return bitmap


def _maps(rows: DecodedRows, values: list[InvalidValue]) -> pa.Array:
    if not values:
        return pa.nulls(len(rows), _TYPE)
    values = sorted(values, key=lambda value: (value.row, value.column))
    of_row = np.fromiter((value.row for value in values), np.int64, len(values))
    columns = pa.array(np.fromiter((value.column for value in values), np.int64, len(values)))
    offsets = np.searchsorted(of_row, np.arange(len(rows) + 1)).astype(np.int32)
    keys = pa.array(rows.schema.column_names, pa.string()).take(columns)
    items = pa.array([value.text for value in values], pa.string())
    empty = np.append(offsets[1:] == offsets[:-1], False)
    return pa.MapArray.from_arrays(pa.array(offsets, mask=empty), keys, items, type=_TYPE)


# -- the table -------------------------------------------------------------------------------------


def with_rescued_column(target: RecordedTarget) -> RecordedTarget:
    """As its files are staged: with ``_cdc_rescued`` among its columns, if it has that."""
    spec = target.spec
    if not target.rescues or RESCUED in spec.columns:
        return target
    return target.with_spec(columns=(*spec.columns, RESCUED))


def add_rescued_column(
    session: SparkSession, path: Path, there: TableLog, target: RecordedTarget
) -> bool:
    """Whether the batch is the first to need it, so that the table has changed. Idempotent."""
    if not target.rescues or RESCUED_COLUMN in there.columns:
        return False
    if MODES[target.spec.mode].rows_are_changes:
        before = session.read.format("delta").load(str(path)).schema[BEFORE_COLUMN].dataType
        if RESCUED_COLUMN not in before.fieldNames():  # type: ignore[attr-defined]
            session.sql(
                f"ALTER TABLE {table_at(path)} ADD COLUMNS ({BEFORE_COLUMN}.{RESCUED_COLUMN} "
                f"{RESCUED.delta_type})"
            )
    session.sql(
        f"ALTER TABLE {table_at(path)} ADD COLUMNS ({quoted(RESCUED_COLUMN)} {RESCUED.delta_type})"
    )
    return True


def comparable(column: str, delta_type: str, *, names: Collection[str] = ()) -> str:
    """Spark compares no maps. `names`: the entries of ``_cdc_rescued`` that count; () for all."""
    if not delta_type.startswith("map<"):
        return column
    if names:
        wanted = ", ".join(text_literal(name) for name in sorted(names))
        column = f"map_filter({column}, (k, v) -> k IN ({wanted}))"
    return f"array_sort(map_entries({column}))"


def exact(column: str, delta_type: str) -> str:
    """Distinguishes two values even if ``=`` does not."""
    if delta_type in DELTA_TYPES_COMPARED_AS_TEXT:
        return f"CAST({column} AS string)"
    return comparable(column, delta_type)


def undone_counts(column: pa.ChunkedArray) -> tuple[int, Counter[str]]:
    """Rows, and values by column, in staged ``_cdc_rescued`` values that do not count after all."""
    maps = column.combine_chunks().drop_null()
    value_counts = pc.value_counts(maps.keys) if len(maps) else []
    return len(maps), Counter(
        {str(entry["values"]): entry["counts"].as_py() for entry in value_counts}
    )


def summed(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    names = sorted({*before, *more})
    return {name: before.get(name, 0) + more.get(name, 0) for name in names}
