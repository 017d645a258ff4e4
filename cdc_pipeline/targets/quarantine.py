"""Turn rows that cannot be applied into quarantine entries (`lake/quarantine.py`).

Rules:
- An entry holds the row's place, the error, its images as the JSON lines of `cdc-pipeline binlog`,
  its decoded values, and the bytes of its event.
- If columns are hidden, neither their values nor the event's bytes are kept (K14).
- One Python step for each such row: they are the exception.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.events.gtid import gtid_texts
from cdc_pipeline.binlog.rows.rows import RowsSelection
from cdc_pipeline.binlog.rows.text_jsonl import jsonl_lines
from cdc_pipeline.binlog.seq import seq_of_place
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.prepared_rows import encode_stream
from cdc_pipeline.lake.quarantine import SCHEMA

WHOLE_EVENT: Final = 0  # in place of an op


@dataclass(frozen=True, slots=True)
class BadRows:
    table: str
    entries: pa.Table


def bad_rows(
    rows: DecodedRows,
    causes: Mapping[int, tuple[str, str]],
    parts: Sequence[RowsSelection],
    *,
    hidden: Collection[str] = (),
    keeps_bytes: bool,
) -> BadRows:
    """`causes`: by row; `hidden`: columns that nobody may see; `keeps_bytes`: of events."""
    wanted = np.zeros(len(rows), np.bool_)
    wanted[list(causes)] = True
    bad = without_values(rows.where(wanted), hidden)
    offsets = np.concatenate([part.chunk.events["offset"][part.rows] for part in parts]).astype(
        np.int64
    )
    ends = np.cumsum([len(part.rows) for part in parts])
    events: dict[int, tuple[Chunk, int]] = {}
    gtids: list[str | None] = [None] * len(offsets)
    for at in np.unique(bad.event_row).tolist():
        of = int(np.searchsorted(ends, at, side="right"))
        events[at] = parts[of].chunk, int(parts[of].rows[at - int(ends[of]) + len(parts[of].rows)])
        gtids[at] = _gtid(*events[at]) or None
    schema = bad.schema.to_json()
    lines = list(_lines(bad, events, offsets, gtids))
    seen = set[int]()
    entries = []
    for place, (row, (error, what)) in enumerate(sorted(causes.items())):
        at = int(bad.event_row[place])
        chunk, event = events[at]
        entries.append(
            {
                "_op": int(rows.op[row]),
                "_seq": bad.seq[place].as_py(),
                "ts_us": int(bad.commit_ts_us[place]),
                "table": bad.schema.full_name,
                "journal": chunk.journal,
                "offset": int(offsets[at]),
                "gtid": gtids[at],
                "error": error,
                "what": what,
                "change": lines[place],
                "schema": schema,
                "row": encode_stream(bad.part(place, place + 1)),
                "raw": _bytes_of(chunk, event)
                if keeps_bytes and not hidden and at not in seen
                else None,
            }
        )
        seen.add(at)
    return BadRows(bad.schema.full_name, pa.Table.from_pylist(entries, schema=SCHEMA))


def bad_event(
    part: RowsSelection,
    at: int,
    schema: TableSchema,
    error: CdcError,
    *,
    epoch: int,
    keeps_bytes: bool,
) -> BadRows:
    """The entry of a rows event that cannot be decoded: event `at` of `part`."""
    chunk, row = part.chunk, int(part.rows[at])
    event = chunk.events[row]
    seq = seq_of_place(epoch, chunk.journal, int(event["tx_offset"]), int(event["tx_ordinal"]))
    entry = {
        "_op": WHOLE_EVENT,
        "_seq": Decimal(seq),
        "ts_us": int(event["commit_ts_us"]),
        "table": schema.full_name,
        "journal": chunk.journal,
        "offset": int(event["offset"]),
        "gtid": _gtid(chunk, row) or None,
        "error": type(error).__name__,
        "what": error.what,
        "schema": schema.to_json(),
        "raw": _bytes_of(chunk, row) if keeps_bytes else None,
    }
    return BadRows(schema.full_name, pa.Table.from_pylist([entry], schema=SCHEMA))


def _lines(
    rows: DecodedRows,
    events: Mapping[int, tuple[Chunk, int]],
    offsets: NDArray[np.int64],
    gtids: list[str | None],
) -> list[str]:
    line_of_row: dict[int, str] = {}
    journals = [events[at][0].journal for at in rows.event_row.tolist()]
    for journal in dict.fromkeys(journals):
        mask = np.array([name == journal for name in journals])
        lines = jsonl_lines(rows.where(mask), journal=journal, offsets=offsets, gtids=gtids)
        line_of_row.update(zip(np.flatnonzero(mask).tolist(), lines, strict=True))
    return [line_of_row[row] for row in range(len(rows))]


def without_values(rows: DecodedRows, hidden: Collection[str]) -> DecodedRows:
    # A masked value is what everybody may see.
    hidden = {
        column.name for column in rows.schema.columns if column.name in hidden and not column.masked
    }
    if not hidden:
        return rows
    names = rows.schema.column_names
    images = [
        pa.record_batch(
            [
                pa.nulls(len(rows), array.type) if name in hidden else array
                for name, array in zip(names, image.columns, strict=True)
            ],
            schema=image.schema,
        )
        for image in (rows.before, rows.after)
    ]
    invalid = [value for value in rows.invalid if names[value.column] not in hidden]
    return replace(rows, before=images[0], after=images[1], invalid=invalid)


def _gtid(chunk: Chunk, row: int) -> str:
    """ "" without GTIDs, or if the transaction began in an earlier piece."""
    begin = int(chunk.events["tx_offset"][row])
    first = int(np.searchsorted(chunk.events["offset"][: row + 1], begin))
    if first > row or int(chunk.events["offset"][first]) != begin:
        return ""
    return gtid_texts(chunk, first, first + 1).get(begin, "")


def _bytes_of(chunk: Chunk, row: int) -> bytes:
    first = int(chunk.events["start"][row])
    return chunk.data[first : first + int(chunk.events["event_length"][row])].tobytes()
