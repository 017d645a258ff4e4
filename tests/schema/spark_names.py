"""Spark's name of an Arrow type, as Spark's own Arrow conversion maps it."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def spark_name(arrow: pa.DataType) -> str:
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"array<{spark_name(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return (
            "struct<" + ",".join(f"{field.name}:{spark_name(field.type)}" for field in arrow) + ">"
        )
    return _NAMES[arrow]
