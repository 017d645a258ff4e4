"""The Arrow type of every column; docs/types.md has the complete conversion table."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import BinlogError

COLUMN_BYTES_MAX: Final = (1 << 31) - 1  # 32-bit offsets
DECIMAL_DIGITS_MAX: Final = 38  # of decimal128, of Spark and of Delta; wider ones travel as text

BIGINT_UNSIGNED: Final = pa.decimal128(20, 0)
GEOMETRY: Final = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])
VECTOR: Final = pa.list_(pa.float32())

# (signed, unsigned)
_INTEGERS: Final = {
    Kind.INT8: (pa.int8(), pa.int16()),
    Kind.INT16: (pa.int16(), pa.int32()),
    Kind.INT24: (pa.int32(), pa.int32()),
    Kind.INT32: (pa.int32(), pa.int64()),
    Kind.INT64: (pa.int64(), BIGINT_UNSIGNED),
}

_PLAIN: Final = {
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.YEAR: pa.int16(),
    Kind.DATE: pa.date32(),
    Kind.DATETIME: pa.timestamp("us"),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.TIME: pa.string(),
    Kind.TEXT: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.ENUM: pa.string(),
    Kind.SET: pa.string(),
    Kind.JSON: pa.string(),
    Kind.GEOMETRY: GEOMETRY,
    Kind.VECTOR: VECTOR,
    Kind.UUID: pa.string(),
    Kind.INET4: pa.string(),
    Kind.INET6: pa.string(),
}


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column's values, or of its masks if it is masked."""
    if column.masked.startswith("hash"):
        return pa.string()
    if column.kind in _INTEGERS:
        return _INTEGERS[column.kind][column.unsigned]
    if column.kind is Kind.BIT:
        if column.bits == 1:
            return pa.bool_()
        return BIGINT_UNSIGNED if column.bits == 64 else pa.int64()
    if column.kind is Kind.DECIMAL:
        if column.precision > DECIMAL_DIGITS_MAX:
            return pa.string()
        return pa.decimal128(column.precision, column.scale)
    return _PLAIN[column.kind]


@lru_cache(maxsize=1024)
def arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of a table's rows;
    all fields are nullable, because images may lack columns.
    """
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in schema.columns])


def label_array(labels: tuple[str, ...]) -> pa.StringArray:
    """Return the labels of an ENUM by number: '' for 0, then each label. Built from buffers,
    because `pa.array` of a list imports pandas, which takes half a second.
    """
    texts = [b"", *(label.encode("utf-8") for label in labels)]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts)))


def check_column_bytes(column: Column, rows: int, total_bytes: int) -> int:
    """Return `total_bytes` if the offsets of one array can address them.

    Raises:
        BinlogError: the array would be too large.
    """
    if total_bytes > COLUMN_BYTES_MAX:
        raise BinlogError(
            f"column {column.name!r} has too many bytes for one batch",
            expected=f"at most {COLUMN_BYTES_MAX} bytes",
            got=f"{total_bytes} bytes in {rows} rows",
            next_step="decode fewer events at a time",
        )
    return total_bytes
