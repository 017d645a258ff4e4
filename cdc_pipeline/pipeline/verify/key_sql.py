"""Express keys of a table as an SQL condition and as delete images."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import DELETE, DecodedRows
from cdc_pipeline.binlog.rows.result_columns import quoted
from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import LoadError


def deletes_of(schema: TableSchema, keys: pa.Table, *, seq: int, time_us: int) -> DecodedRows:
    """Return delete images for some keys, with no values but the key's."""
    count, columns = keys.num_rows, len(schema.columns)
    types = arrow_schema(schema)
    there = np.zeros((1, columns), np.bool_)
    arrays = []
    for at, field in enumerate(types):
        if field.name in keys.column_names:
            there[0, at] = True
            arrays.append(keys.column(field.name).combine_chunks())
        else:
            arrays.append(pa.nulls(count, field.type))
    before = pa.RecordBatch.from_arrays(arrays, schema=types)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in types], schema=types)
    inserts = SelectedRows(schema, before).as_inserts(seq_first=seq, commit_ts_us=time_us)
    present = np.packbits(there, axis=1, bitorder="little")
    return replace(
        inserts,
        op=np.full(count, DELETE, np.uint8),
        before=before,
        after=nothing,
        before_present=np.tile(present, (count, 1)),
        after_present=np.zeros_like(inserts.after_present),
        all_present=bool(there.all()),
    )


def key_condition(schema: TableSchema, keys: pa.Table) -> str:
    """Return an SQL condition that selects the rows with these keys; there must be at least one."""
    columns = [schema.columns[schema.column_names.index(name)] for name in keys.column_names]
    rows = [
        " AND ".join(f"{quoted(column.name)} = {literal(column, row[column.name])}" for column in columns)
        for row in keys.to_pylist()
    ]
    return " OR ".join(f"({row})" for row in rows)


def literal(column: Column, value: Any) -> str:
    """Return a key column's value, as decoded, as an SQL literal.

    Raises:
        LoadError: the key cannot be written as a literal.
    """
    if value is None or isinstance(value, list | dict):
        raise LoadError(f"column {column.name} cannot be part of a key", table=None, got=type(value).__name__)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        digits = repr(value)
        return digits if "e" in digits else f"{digits}e0"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP'{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    text = f"_utf8mb4 x'{str(value).encode().hex()}'"
    return f"CAST({text} AS {column.kind.name})" if column.type.key == "address" else text
