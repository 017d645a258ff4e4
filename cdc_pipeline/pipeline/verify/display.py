"""Format differing keys for people: values as their types print, masked ones as hashes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cdc_pipeline.pipeline.verify.report import Difference
from cdc_pipeline.sink.verify.sides import Sides


def display(sides: Sides, rows: pa.Table) -> tuple[Difference, ...]:
    """Format rows returned by `read_differences`."""
    names = {f"c{at}": sides.target.spec.columns[at].name for at in sides.key_positions}
    return tuple(
        Difference(
            kind=row["_kind"],
            key={name: text_of(row[place]) for place, name in names.items()},
            columns=tuple(row["_columns"] or ()),
            rows=abs(row["_more"]) if not sides.key else 1,
        )
        for row in rows.to_pylist()
    )


def text_of(value: Any) -> str | None:
    """Bytes as hex."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return f"0x{value.hex().upper()}"
    if isinstance(value, bool):
        return str(int(value))
    return str(value)
