"""Turn the lake's keys into a condition in the source's SQL, to read these rows again.

Rules:
- The condition may select more rows than intended (a case-insensitive collation), never fewer: the
  comparison uses the lake's own values.
- If a value cannot be mapped back to the source (a mask, another type, a float), there is no
  condition, and the whole table is read.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from cdc_pipeline.binlog.rows.result_columns import quoted
from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.schema.types import delta_type

KEYS_PER_STATEMENT: Final = 500

# Of `TypeSpec.key`: what is a number in the lake.
_NUMBERS: Final = frozenset({"number", "bits"})


def leads_back(schema: TableSchema, columns: Sequence[str], delta_types: Mapping[str, str]) -> bool:
    """Whether Delta values of these types can select rows by these (masked) columns."""
    by_name = {column.name: column for column in schema.columns}
    return bool(columns) and all(
        name in by_name and _leads_back(by_name[name], delta_types[name]) for name in columns
    )


def _leads_back(column: Column, kind: str) -> bool:
    if column.masked or column.type.key in ("", "real"):
        return False
    own = delta_type(column)
    return own == kind or (column.type.key in _NUMBERS and kind in ("smallint", "int", "bigint"))


def conditions(
    schema: TableSchema, columns: Sequence[str], keys: Sequence[pa.ChunkedArray]
) -> Iterator[str]:
    """Conditions that select the rows with these keys (n of each column), a limited number each."""
    by_name = {column.name: column for column in schema.columns}
    names = [quoted(name) for name in columns]
    rows = list(
        zip(
            *(
                [_literal(by_name[name], v) for v in array.to_pylist()]
                for name, array in zip(columns, keys, strict=True)
            ),
            strict=True,
        )
    )
    for first in range(0, len(rows), KEYS_PER_STATEMENT):
        some = rows[first : first + KEYS_PER_STATEMENT]
        if len(names) == 1 and (None,) not in some:
            yield f"{names[0]} IN ({', '.join(str(row[0]) for row in some)})"
            continue
        # Not (a, b) IN (...): there MariaDB compares text of another charset than utf8mb4 by the
        # charset of the first literal, and misses rows.
        yield " OR ".join(
            "("
            + " AND ".join(
                f"{name} <=> {value or 'NULL'}" for name, value in zip(names, row, strict=True)
            )
            + ")"
            for row in some
        )


def _literal(column: Column, value: Any) -> str | None:
    if value is None:
        return None
    form = column.type.key
    if form in _NUMBERS:
        number = int(value) if isinstance(value, bool) else Decimal(value)
        return f"{number:f}" if isinstance(number, Decimal) else str(number)
    if form == "bytes":
        return f"x'{bytes(value).hex()}'"
    if form in ("date", "datetime"):
        if isinstance(value, datetime.datetime):
            value = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"'{value.isoformat(sep=' ', timespec='microseconds')}'"
        return f"'{value.isoformat()}'"
    if form == "time":
        return f"'{value}'"
    return f"_utf8mb4 x'{str(value).encode().hex()}'"
