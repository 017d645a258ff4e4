"""Columns of the catalog as a reader of rows needs them: with a type on the wire, which a catalog does not tell.

A SELECT's rows are rewritten for the decoder anyway (`binlog.result_columns`): any wire type of the column's kind does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cdc_pipeline.binlog.columns_wire import WireType
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema

_W = WireType
_LENGTH_BYTES: Final = 4
_TYPES: Final = {
    Kind.INT8: _W.TINY, Kind.INT16: _W.SHORT, Kind.INT24: _W.INT24, Kind.INT32: _W.LONG, Kind.INT64: _W.LONGLONG,
    Kind.BIT: _W.BIT, Kind.DECIMAL: _W.NEWDECIMAL, Kind.FLOAT: _W.FLOAT, Kind.DOUBLE: _W.DOUBLE, Kind.YEAR: _W.YEAR,
    Kind.DATE: _W.DATE, Kind.DATETIME: _W.DATETIME2, Kind.TIMESTAMP: _W.TIMESTAMP2, Kind.TIME: _W.TIME2,
    Kind.TEXT: _W.LONG_BLOB, Kind.BINARY: _W.LONG_BLOB, Kind.ENUM: _W.ENUM, Kind.SET: _W.SET, Kind.JSON: _W.JSON,
    Kind.GEOMETRY: _W.GEOMETRY, Kind.VECTOR: _W.VECTOR, Kind.UUID: _W.LONG_BLOB, Kind.INET4: _W.LONG_BLOB,
    Kind.INET6: _W.LONG_BLOB,
}  # fmt: skip


def on_the_wire(schema: TableSchema) -> TableSchema:
    """The schema with a wire type for each column that has none."""
    return replace(schema, columns=tuple(_column(column) for column in schema.columns))


def _column(column: Column) -> Column:
    if column.wire_type >= 0:
        return column
    meta = {
        Kind.ENUM: 1 if len(column.labels) < 256 else 2,
        Kind.SET: next(size for size in (1, 2, 3, 4, 8) if len(column.labels) <= 8 * size),
        Kind.DECIMAL: column.precision << 8 | column.scale,
        Kind.BIT: column.bits,
    }.get(column.kind, _LENGTH_BYTES)
    return replace(column, wire_type=int(_TYPES[column.kind]), wire_meta=meta)
