"""Gather the frequent kinds of columns together into Arrow arrays, by `kernels.tiles`.

One kernel to load instead of ten: that is 0.1 to 0.4 CPU-s of a process's start, and wide tables
decode in two thirds of the time.

Rules:
- The plan of a table depends only on its schema (`_plan`) and is cached.
- `columns` builds all others, and lists the values that Arrow cannot hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import COLUMN_BYTES_MAX, arrow_type, label_array
from cdc_pipeline.binlog.column_types import DECIMAL_DIGITS_MAX
from cdc_pipeline.binlog.kernels import tiles
from cdc_pipeline.binlog.kernels.text import text
from cdc_pipeline.binlog.rows.cells import Block
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.binlog.tables import columns_wire as wire
from cdc_pipeline.binlog.tables.charsets import find_charset
from cdc_pipeline.binlog.wire_types import WIRE_TYPES

# By `TypeSpec.decoder`, what is always gathered here; others only in the form of today's servers.
TILED: Final = frozenset({"integer", "real", "date", "enum"})
_ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class _Line:
    """How one column is gathered: fields of `kernels.tiles`, and the form of its buffers."""

    column: int
    op: int
    width: int
    first: int
    second: int
    value_bytes: int  # size of one value, or of one offset
    kind: pa.DataType
    labels: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """All lines of one table, with the sizes that depend on the count of rows as arrays."""

    lines: tuple[_Line, ...]
    program: NDArray[np.int64]
    value_bytes: NDArray[np.int64]
    is_text: NDArray[np.bool_]


@lru_cache(maxsize=1024)
def _plan(schema: TableSchema, is_mariadb: bool) -> _Plan:
    lines = tuple(
        line
        for index, column in enumerate(schema.columns)
        if (line := _line(index, column, schema, is_mariadb=is_mariadb)) is not None
    )
    program = np.zeros((len(lines), tiles.FIELDS), np.int64)
    for row, line in zip(program, lines, strict=True):
        row[: tiles.OUT] = line.column, line.op, line.width, line.first, line.second
    return _Plan(
        lines,
        program,
        np.array([line.value_bytes for line in lines], np.int64),
        np.array([line.op == tiles.TEXT for line in lines], np.bool_),
    )


def _line(index: int, column: Column, schema: TableSchema, *, is_mariadb: bool) -> _Line | None:
    rule = wire.width_rule(column)
    arrow = arrow_type(column)
    digits = wire.fraction_bytes(column.fraction_digits)
    code, spec = column.wire_type, column.type
    is_todays = not spec.wire or code == spec.wire[0]
    decoder = spec.decoder if spec.decoder in TILED or is_todays else ""
    if decoder == "integer":
        size = arrow.bit_width // 8
        return _Line(index, tiles.INTEGER, rule, int(not column.unsigned), size, size, arrow)
    if decoder == "real":
        return _Line(index, tiles.REAL, rule, 0, 0, rule, arrow)
    if decoder == "date":
        return _Line(index, tiles.DATE, rule, 0, 0, 4, arrow)
    if decoder == "datetime":
        return _Line(index, tiles.DATETIME, rule, digits, 0, 8, arrow)
    if decoder == "timestamp":
        return _Line(index, tiles.TIMESTAMP, rule, digits, 0, 8, arrow)
    if decoder == "decimal" and column.precision <= DECIMAL_DIGITS_MAX:
        return _Line(index, tiles.DECIMAL, rule, column.precision, column.scale, 16, arrow)
    if decoder == "enum":
        labels = label_array(column.labels, is_key=index in schema.primary_key)
        return _Line(index, tiles.NUMBER, rule, len(column.labels), 0, 4, pa.int32(), labels)
    if not WIRE_TYPES[code].is_text or WIRE_TYPES[code].is_compressed:
        return None
    if decoder == "binary":
        return _Line(index, tiles.TEXT, -rule, text.BYTES, column.pad_bytes, 4, arrow)
    if decoder == "text":
        charset = find_charset(column.charset, is_mariadb=is_mariadb)
        if (mode := charset.copied_as) is not None:
            return _Line(index, tiles.TEXT, -rule, mode, column.pad_bytes, 4, arrow)
    return None


def gather_tiled(
    schema: TableSchema,
    blocks: Sequence[Block],
    *,
    image: str,
    rows: int,
    value_bytes: NDArray[np.int64],
    nulls: NDArray[np.int64],
    is_mariadb: bool,
) -> tuple[dict[int, pa.Array], set[int]]:
    """Arrow arrays by index, for the columns handled here, and which of them have values that are
    null because Arrow cannot hold them; arguments as for `build_columns`."""
    plan = _plan(schema, is_mariadb)
    columns = plan.program[:, tiles.COLUMN]
    data_bytes = np.where(
        plan.is_text, value_bytes[columns] + rows * plan.program[:, tiles.SECOND], 0
    )
    chosen = np.flatnonzero((nulls[columns] < rows) & (data_bytes <= COLUMN_BYTES_MAX))
    if not len(chosen):
        return {}, set()
    program = plan.program[chosen]
    sizes = plan.value_bytes[chosen]
    is_text = plan.is_text[chosen]
    # The arena: all bitmaps, all values (offsets for text), all data.
    count = len(chosen)
    lengths = np.concatenate(
        [np.full(count, (rows + 7) // 8), rows * sizes + 4 * is_text, data_bytes[chosen]]
    )
    starts = np.zeros(3 * count + 1, np.int64)
    np.cumsum((lengths + _ALIGN - 1) // _ALIGN * _ALIGN, out=starts[1:])
    buffer = pa.allocate_buffer(int(starts[-1]))  # Arrow's pool reuses pages
    arena = np.frombuffer(buffer, np.uint8)
    arena[: starts[count]] = 0xFF
    words32 = arena.view(np.int32)
    program[:, tiles.VALID] = starts[:count]
    program[:, tiles.OUT] = starts[count : 2 * count] // sizes
    program[:, tiles.DATA] = program[:, tiles.END] = starts[2 * count : -1]
    words32[program[is_text, tiles.OUT]] = 0
    for block in blocks:
        relative = block.before if image == "before" else block.after
        tiles.gather_tiles(
            block.data,
            block.base,
            relative,
            block.first_row,
            program,
            arena,
            arena.view(np.int16),
            words32,
            arena.view(np.int64),
        )
    arrays, inexact = {}, set()
    bitmaps_at, values_at, data_at = starts[:-1].reshape(3, count).tolist()
    value_lengths = lengths[count : 2 * count].tolist()
    ends, null_counts, invalids = program[:, [tiles.END, tiles.NULLS, tiles.INVALIDS]].T.tolist()
    for index, chosen_line in enumerate(chosen.tolist()):
        line = plan.lines[chosen_line]
        if invalids[index]:
            inexact.add(line.column)
        nulls_here = null_counts[index] + invalids[index]
        validity = buffer.slice(bitmaps_at[index], (rows + 7) // 8) if nulls_here else None
        buffers = [validity, buffer.slice(values_at[index], value_lengths[index])]
        if line.op == tiles.TEXT:
            buffers.append(buffer.slice(data_at[index], ends[index] - data_at[index]))
        array = pa.Array.from_buffers(line.kind, rows, buffers, nulls_here)
        if line.labels is not None:
            array = line.labels.take(array)
            if array.null_count > nulls_here:
                inexact.add(line.column)
        arrays[line.column] = array
    return arrays, inexact
