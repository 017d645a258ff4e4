"""Rows of a Delta table beside rows of the server, and what differs, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.campaigns.sink.column_types import plain
from tests.campaigns.sink.oracle import State
from tests.support.delta_reader import DeltaTable


def rows_of(table: DeltaTable, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(plain(row[name]) for name in columns) for row in table.rows), key=repr)


def difference(there: DeltaTable, expected: State) -> str:
    """What of a table is not as the server had it; "" where nothing is."""
    assert expected.columns is not None
    absent = [name for name in expected.columns if name not in there.columns]
    if absent:
        return f"lacks the columns {absent}; it has {list(there.columns)}"
    return row_difference(
        list(expected.rows), rows_of(there, expected.columns), columns=expected.columns
    )


def row_difference(expected: list[Any], got: list[Any], *, columns: Sequence[str]) -> str:
    wanted, there = Counter(map(repr, expected)), Counter(map(repr, got))
    if wanted == there:
        return ""
    missing, extra = list((wanted - there).elements()), list((there - wanted).elements())
    return (
        (
            f"{len(missing)} rows missing, {len(extra)} too many, of {len(expected)}; columns "
            f"{tuple(columns)}\n"
        )
        + "".join(f"    missing: {row[:600]}\n" for row in missing[:3])
        + "".join(f"    extra:   {row[:600]}\n" for row in extra[:3])
    )
