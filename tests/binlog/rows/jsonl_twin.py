"""The twin of the JSON lines: value by value, in Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_pipeline.binlog.decoded import OP_NAMES, DecodedRows
from cdc_pipeline.binlog.rows.text_jsonl import iso_time
from cdc_pipeline.binlog.table_schema import Column, Kind

_NUMBERS = {Kind.INT8, Kind.INT16, Kind.INT24, Kind.INT32, Kind.INT64, Kind.BIT, Kind.YEAR}
_TO_SECOND = len("2024-01-31 23:59:59")


def lines(
    rows: DecodedRows, *, journal: str, offsets: Sequence[int], gtids: Sequence[str | None]
) -> list[str]:
    """What `jsonl_lines` gives."""
    before, after = _images(rows, "before"), _images(rows, "after")
    found = []
    for row, event in enumerate(rows.event_row.tolist()):
        op, commit_ts_us = OP_NAMES[int(rows.op[row])], int(rows.commit_ts_us[row])
        parts = {
            "schema": json.dumps(rows.schema.database, ensure_ascii=False),
            "table": json.dumps(rows.schema.table, ensure_ascii=False),
            "op": json.dumps(op),
            "before": "null" if op == "insert" else before[row],
            "after": "null" if op == "delete" else after[row],
            "journal": json.dumps(journal, ensure_ascii=False),
            "offset": str(int(offsets[event])),
            "gtid": json.dumps(gtids[event]),
            "ts": json.dumps(None if commit_ts_us < 0 else iso_time(commit_ts_us)),
        }
        found.append(_object(parts))
    return found


def texts(column: Column, values: pa.Array) -> list[str]:
    """The JSON text of each value."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    return ["null" if value is None else _text(column, value) for value in values.to_pylist()]


def real_text(value: float, *, single: bool) -> str:
    """A finite number in the server's layout, from the shortest digits that Python or numpy
    find."""
    shortest = str(np.float32(value)) if single else repr(float(value))
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    assert isinstance(exponent, int)
    exponent += len(text) - len(stripped)
    minus = "-" if sign else ""
    if not stripped:
        return minus + "0.0"
    point = len(stripped) + exponent
    if point < -14 or (point > 15 and exponent >= 0):
        tail = f".{stripped[1:]}" if len(stripped) > 1 else ""
        return f"{minus}{stripped[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{stripped}"
    if point >= len(stripped):
        return f"{minus}{stripped}{'0' * (point - len(stripped))}.0"
    return f"{minus}{stripped[:point]}.{stripped[point:]}"


def _text(column: Column, value: Any) -> str:
    kind = column.kind
    if kind in _NUMBERS:
        return str(int(value))
    if kind is Kind.DECIMAL:
        return json.dumps(value if isinstance(value, str) else format(value, "f"))
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return real_text(value, single=kind is Kind.FLOAT)
    if kind is Kind.VECTOR:
        return "[" + ",".join(real_text(element, single=True) for element in value) + "]"
    if kind is Kind.DATE:
        return json.dumps(value.isoformat())
    if kind in (Kind.DATETIME, Kind.TIMESTAMP):
        end = _TO_SECOND + (column.fraction_digits + 1 if column.fraction_digits else 0)
        return json.dumps(value.isoformat(sep=" ", timespec="microseconds")[:end])
    if kind is Kind.BINARY:
        return json.dumps(value.hex())
    if kind is Kind.GEOMETRY:
        return json.dumps((value["srid"].to_bytes(4, "little", signed=True) + value["wkb"]).hex())
    return json.dumps(value, ensure_ascii=False)


def _images(rows: DecodedRows, image: str) -> list[str]:
    batch = rows.before if image == "before" else rows.after
    present = rows.before_present if image == "before" else rows.after_present
    columns = [
        texts(column, batch.column(index)) for index, column in enumerate(rows.schema.columns)
    ]
    for value in rows.invalid:
        if value.image == image:
            text = json.dumps(value.text, ensure_ascii=False)
            is_text = rows.schema.columns[value.column].type.not_held_text == "moment"
            columns[value.column][value.row] = text if is_text else f'{{"hex": {text}}}'
    found = []
    for row in range(len(rows)):
        cells = {
            name: columns[index][row]
            for index, name in enumerate(rows.schema.column_names)
            if present[row, index // 8] >> index % 8 & 1
        }
        found.append(_object(cells))
    return found


def _object(cells: dict[str, str]) -> str:
    return (
        "{"
        + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in cells.items())
        + "}"
    )
