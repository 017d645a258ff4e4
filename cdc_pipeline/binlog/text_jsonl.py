"""Decoded rows as JSON lines for people: one object per change.

Rules:
- Integers, BIT and YEAR are exact JSON numbers; DECIMAL is a string; FLOAT and DOUBLE the shortest number that reads
  back. Dates and times stand as the server prints them, TIMESTAMP in UTC, with the declared fraction. ENUM and SET are
  their labels, JSON its canonical text, binary types and geometry (SRID, then WKB, as stored) lower-case hex, a VECTOR
  a list of numbers.
- An absent column is left out, NULL is null. A value that Arrow cannot hold is the text that the decoder reports.
- This is the only page of the decoder that loops over rows: it prints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import OP_NAMES, DecodedRows
from cdc_pipeline.binlog.table_schema import Column, Kind

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_TO_SECOND: Final = len("2024-01-31 23:59:59")


def jsonl_lines(
    rows: DecodedRows,
    *,
    journal: str | Sequence[str],
    offsets: NDArray[np.int64] | Sequence[int],
    gtids: Sequence[str | None],
) -> Iterator[str]:
    """One JSON text without line end per change, in order.

    Keys: schema, table, op (insert, update, delete), before, after, journal, offset (of the rows event), gtid, ts
    (commit time, ISO 8601, UTC; null where unknown). `before` of an insert and `after` of a delete are null.

    Args:
        rows: the changes.
        journal: one name, or one for each event that was decoded.
        offsets, gtids: one for each event that was decoded, by `rows.event_row`.
    """
    before = _image_rows(rows, "before")
    after = _image_rows(rows, "after")
    events = rows.event_row.tolist()
    for row, (event, op, commit_ts_us) in enumerate(
        zip(events, rows.op.tolist(), rows.commit_ts_us.tolist(), strict=True)
    ):
        line = {
            "schema": rows.schema.database,
            "table": rows.schema.table,
            "op": OP_NAMES[op],
            "before": None if OP_NAMES[op] == "insert" else before[row],
            "after": None if OP_NAMES[op] == "delete" else after[row],
            "journal": journal if isinstance(journal, str) else journal[event],
            "offset": int(offsets[event]),
            "gtid": gtids[event],
            "ts": None if commit_ts_us < 0 else iso_time(commit_ts_us),
        }
        yield json.dumps(line, ensure_ascii=False)


def iso_time(since_1970_us: int) -> str:
    """ISO 8601 text in UTC with six digits, such as ``2024-01-31T23:59:59.000000Z``."""
    moment = _EPOCH + timedelta(microseconds=since_1970_us)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def text_values(column: Column, values: pa.Array) -> list[Any]:
    """Values of one column as they stand in a line; None for null."""
    write = _writer(column)
    return [None if value is None else write(value) for value in values.to_pylist()]


def _image_rows(rows: DecodedRows, image: str) -> list[dict[str, Any]]:
    batch = rows.before if image == "before" else rows.after
    present = rows.before_present if image == "before" else rows.after_present
    columns = [text_values(column, batch.column(index)) for index, column in enumerate(rows.schema.columns)]
    for value in rows.invalid:
        if value.image == image:
            columns[value.column][value.row] = value.text
    names = rows.schema.column_names
    bits = np.unpackbits(present, axis=1, bitorder="little", count=len(names)).astype(bool)
    whole = np.count_nonzero(bits, axis=1) == len(names)
    return [
        dict(zip(names, cells, strict=True))
        if whole[row]
        else {name: cell for name, cell, there in zip(names, cells, bits[row], strict=True) if there}
        for row, cells in enumerate(zip(*columns, strict=True))
    ]


def _writer(column: Column) -> Callable[[Any], Any]:
    """How one value of a column is written."""
    kind = column.kind
    if kind in (Kind.INT8, Kind.INT16, Kind.INT24, Kind.INT32, Kind.INT64, Kind.BIT, Kind.YEAR):
        return int
    if kind is Kind.DECIMAL:
        return _decimal
    if kind is Kind.FLOAT:
        return shortest_float
    if kind is Kind.VECTOR:
        return lambda elements: [shortest_float(element) for element in elements]
    if kind is Kind.DATE:
        return date.isoformat
    if kind in (Kind.DATETIME, Kind.TIMESTAMP):
        end = _TEXT_TO_SECOND + (column.fraction_digits + 1 if column.fraction_digits else 0)
        return lambda moment: moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")[:end]
    if kind is Kind.BINARY:
        return bytes.hex
    if kind is Kind.GEOMETRY:
        return lambda value: (value["srid"].to_bytes(4, "little", signed=True) + value["wkb"]).hex()
    return lambda value: value


def _decimal(value: Decimal | str) -> str:
    return value if isinstance(value, str) else format(value, "f")


def shortest_float(value: float) -> float:
    """The double whose shortest text is the shortest that reads back as this 32-bit float."""
    return float(str(np.float32(value)))
