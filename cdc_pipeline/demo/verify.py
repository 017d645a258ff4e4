"""Compares the lake's tables with the rows that the server's SELECT returned during the recording.

Rules:
- The expected values are the server's text, never our decoder's output.
- Each lake column is converted to the text that the server prints for its type; FLOAT and DOUBLE
  are compared as numbers.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def read_expected(file: Path) -> tuple[dict[str, Any], pa.Table]:
    """Header and rows (all columns as text) of an expected file."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        header = json.loads(next(lines))
        rows = [json.loads(line) for line in lines]
    names = [column["name"] for column in header["columns"]]
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return header, pa.table(
        {name: pa.array(values, pa.string()) for name, values in zip(names, columns, strict=True)}
    )


def differences(actual: pa.Table, header: dict[str, Any], expected: pa.Table) -> tuple[str, ...]:
    if actual.num_rows != expected.num_rows:
        return (f"{actual.num_rows} rows instead of {expected.num_rows}",)
    types = {column["name"]: column["type"].lower() for column in header["columns"]}
    key = [(name, "ascending") for name in header["key"]]
    shown = pa.table({name: _as_server_text(actual[name], types[name]) for name in types})
    shown, expected = shown.sort_by(key), expected.sort_by(key)
    found = []
    for name, column_type in types.items():
        unequal = _unequal(shown[name], expected[name], column_type)
        if len(unequal):
            row = int(unequal[0])
            found.append(
                f"{name}: {len(unequal)} rows differ, first at key "
                f"{[expected[part][row].as_py() for part in header['key']]}: "
                f"{shown[name][row].as_py()!r} instead of {expected[name][row].as_py()!r}"
            )
    return tuple(found[:5])


def _as_server_text(values: pa.ChunkedArray, column_type: str) -> pa.ChunkedArray:
    kind = re.split(r"[( ]", column_type, maxsplit=1)[0]
    if pa.types.is_boolean(values.type):
        return pc.cast(pc.cast(values, pa.int8()), pa.string())
    if pa.types.is_timestamp(values.type):
        digits = re.search(r"\((\d)\)", column_type)
        return _timestamp_text(values, int(digits[1]) if digits else 0)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pa.chunked_array(
            [
                pa.array(
                    [None if v is None else v.hex().upper() for v in values.to_pylist()],
                    pa.string(),
                )
            ]
        )
    if kind == "year":
        return pc.utf8_lpad(pc.cast(values, pa.string()), width=4, padding="0")
    return pc.cast(values, pa.string())


def _timestamp_text(values: pa.ChunkedArray, digits: int) -> pa.ChunkedArray:
    # Without a zone strftime prints the wall clock; instants are stored in UTC, the zone of the
    # server's SELECT.
    plain = pc.cast(values, pa.timestamp("us"))
    text = pc.strftime(pc.cast(plain, pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
    whole = 19
    length = whole + 1 + digits if digits else whole
    return pc.utf8_slice_codeunits(text, 0, length)


def _unequal(shown: pa.ChunkedArray, expected: pa.ChunkedArray, column_type: str) -> np.ndarray:
    if column_type.startswith(("float", "double")):
        bits = pa.float32() if column_type.startswith("float") else pa.float64()
        shown, expected = pc.cast(shown, bits), pc.cast(expected, bits)
    same_null = pc.equal(pc.is_null(shown), pc.is_null(expected))
    same = pc.and_(same_null, pc.fill_null(pc.equal(shown, expected), fill_value=True))
    return np.flatnonzero(~np.asarray(same))
