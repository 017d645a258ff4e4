"""The Arrow type of every column; docs/reference/types.md has the complete conversion table."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import BinlogError

COLUMN_BYTES_MAX: Final = (1 << 31) - 1  # 32-bit offsets

_ARROW_BY_DELTA: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "struct<srid:int,wkb:binary>": pa.struct([("srid", pa.int32()), ("wkb", pa.binary())]),
    "array<float>": pa.list_(pa.float32()),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of a column's values, or of its masks if it is masked."""
    if column.masked.startswith("hash"):
        return pa.string()
    return arrow_of_delta(column.type.delta(column))


@lru_cache(maxsize=4096)
def arrow_of_delta(delta_type: str) -> pa.DataType | None:
    """Arrow type that holds the values of a Delta type (DDL text); None for one that no column
    has."""
    found = _DECIMAL.fullmatch(delta_type)
    return pa.decimal128(int(found[1]), int(found[2])) if found else _ARROW_BY_DELTA.get(delta_type)


@lru_cache(maxsize=1024)
def arrow_schema(schema: TableSchema) -> pa.Schema:
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in schema.columns])


def label_array(labels: tuple[str, ...], *, is_key: bool) -> pa.StringArray:
    """Return the labels of an ENUM by number: '' for 0, then each label. In a key 0 is none where
    '' is a label: the server tells two rows apart that would be one. Built from buffers, because
    `pa.array` of a list imports pandas, which takes half a second.
    """
    texts = [b"", *(label.encode("utf-8") for label in labels)]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    valid = None
    if is_key and "" in labels:
        is_told = np.arange(len(texts)) > 0
        valid = pa.py_buffer(np.packbits(is_told, bitorder="little"))
    return pa.StringArray.from_buffers(
        len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts)), valid
    )


def check_column_bytes(column: Column, rows: int, total_bytes: int) -> int:
    """`total_bytes` if the offsets of one array can address them. Raises BinlogError: the array
    would be too large.
    """
    if total_bytes > COLUMN_BYTES_MAX:
        raise BinlogError(
            f"column {column.name!r} has too many bytes for one batch",
            expected=f"at most {COLUMN_BYTES_MAX} bytes",
            got=f"{total_bytes} bytes in {rows} rows",
            next_step="decode fewer events at a time",
        )
    return total_bytes
