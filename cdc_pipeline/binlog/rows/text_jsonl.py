"""Decoded rows as JSON lines for people: one object per change.

Rules:
- Keys: schema, table, op (insert, update, delete), before, after, journal, offset (of the rows
  event), gtid, ts (commit time, ISO 8601, UTC; null if unknown). `before` of an insert and `after`
  of a delete are null.
- If statements are given, `statement` comes last, on the changes of rows events that have one.
- Integers, BIT and YEAR are exact JSON numbers; DECIMAL is a string; FLOAT and DOUBLE the shortest
  number that reads back. Dates and times are printed as by the server, TIMESTAMP in UTC, with the
  declared fraction. Every column of text (ENUM, SET, TIME, JSON's canonical text, UUID ...) is a
  string; binary types and geometry (SRID, then WKB, as stored) are lower-case hex; a VECTOR is a
  list of numbers. The Arrow type decides; the kind does only if one Arrow type has two forms.
- An absent column is omitted, NULL is null. A value that Arrow cannot hold is the decoder's text of
  it, as a string.
- Text is unchanged UTF-8; only mandatory JSON escapes are used. There are no blanks between keys
  and values.
- Rows are written in blocks, so that memory does not grow with the batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DELETE, INSERT, NO_KEY, OP_NAMES, DecodedRows, InvalidValue
from cdc_pipeline.binlog.rows.partial_rows import DIFFERENCES
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.binlog.value_text import text_of
from cdc_pipeline.errors import BinlogError

_BLOCK_CELLS: Final = 1 << 17
_BLOCK_BYTES: Final = 4 << 20

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_NUMBERS: Final = {"nan": '"NaN"', "inf": '"inf"', "-inf": '"-inf"'}

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode


def jsonl_lines(
    rows: DecodedRows,
    *,
    journal: str,
    offsets: NDArray[np.int64] | Sequence[int],
    gtids: Sequence[str | None],
) -> list[str]:
    """One JSON text without line end per change, in order. `offsets`, `gtids`: one for each decoded
    event, by `rows.event_row`.
    """
    blocks = jsonl_blocks(rows, journal=journal, offsets=np.asarray(offsets, np.int64), gtids=gtids)
    return [line[:-1] for block in blocks for line in block]


def jsonl_blocks(
    rows: DecodedRows,
    *,
    journal: str,
    offsets: NDArray[np.int64],
    gtids: Sequence[str | None],
    statements: Sequence[str | None] | None = None,
) -> Iterator[list[str]]:
    """All changes as lines with their line ends, in blocks. `offsets`, `gtids`, `statements`: one
    for each decoded event, by `rows.event_row`.
    """
    columns = max(len(rows.schema.columns), 1)
    bytes_per_row = max((rows.before.nbytes + rows.after.nbytes) // max(len(rows), 1), 1)
    step = max(1, min(_BLOCK_CELLS // columns, _BLOCK_BYTES // bytes_per_row))
    cuts = np.arange(0, len(rows), step)
    added = [""] * len(gtids)
    if statements is not None:
        added = ["" if text is None else f',"statement":{_quoted(text)}' for text in statements]
        lengths = np.array([len(text) for text in added], np.int64)
        spent = np.cumsum(lengths[rows.event_row]) // _BLOCK_BYTES
        cuts = np.union1d(cuts, np.flatnonzero(np.diff(spent)) + 1)
    # What the lines of one event share.
    events = [
        f',"journal":{_quoted(journal)},"offset":{offset},"gtid":{_quoted(gtid)}'
        for offset, gtid in zip(offsets.tolist(), gtids, strict=True)
    ]
    for first, stop in pairwise([*cuts.tolist(), len(rows)]):
        yield _lines(rows.part(first, stop), events, added)


def iso_time(since_1970_us: int) -> str:
    """ISO 8601 text in UTC with six digits, such as ``2024-01-31T23:59:59.000000Z``."""
    moment = _EPOCH + timedelta(microseconds=since_1970_us)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _lines(rows: DecodedRows, events: list[str], added: list[str]) -> list[str]:
    names = f'"schema":{_quoted(rows.schema.database)},"table":{_quoted(rows.schema.table)}'
    heads = {op: f'{{{names},"op":"{name}","before":' for op, name in OP_NAMES.items()}
    times = {
        time_us: "null" if time_us < 0 else f'"{iso_time(time_us)}"'
        for time_us in np.unique(rows.commit_ts_us).tolist()
    }
    return [
        f"{heads[op]}{'null' if op == INSERT else before},"
        f'"after":{"null" if op == DELETE else after}'
        f'{events[event]},"ts":{times[time_us]}{added[event]}}}\n'
        for op, before, after, event, time_us in zip(
            rows.op.tolist(),
            _images(rows, "before"),
            _images(rows, "after"),
            rows.event_row.tolist(),
            rows.commit_ts_us.tolist(),
            strict=True,
        )
    ]


def _images(rows: DecodedRows, image: str) -> list[str]:
    """One image of each row as a JSON object, without the columns that are absent."""
    batch = rows.before if image == "before" else rows.after
    present = rows.before_present if image == "before" else rows.after_present
    cells = []
    for index, column in enumerate(rows.schema.columns):
        invalid = [value for value in rows.invalid if (value.image, value.column) == (image, index)]
        texts = json_texts(column, batch.column(index), invalid)
        name = f"{_quoted(column.name)}:"
        if rows.all_present:
            cells.append([name + text for text in texts])
        else:
            bits = (present[:, index >> 3] >> (index & 7) & 1).tolist()
            cells.append(
                [name + text if bit else "" for text, bit in zip(texts, bits, strict=True)]
            )
    if rows.all_present:
        return [f"{{{','.join(row)}}}" for row in zip(*cells, strict=True)]
    return [f"{{{','.join(filter(None, row))}}}" for row in zip(*cells, strict=True)]


def json_texts(column: Column, values: pa.Array, invalid: Iterable[InvalidValue] = ()) -> list[str]:
    """The JSON text of each value of one column.

    Args:
        values: of the type from `arrow_types.arrow_type`.
        invalid: what the array cannot hold.
    """
    if values.null_count == len(values):
        texts = ["null"] * len(values)
    else:
        text_of_value, raw = _texts_of(column, values)
        texts = ["null" if value is None else text_of_value(value) for value in raw.to_pylist()]
    for value in (value for value in invalid if value.reason != NO_KEY):
        texts[value.row] = _invalid_text(value, column)
    return texts


def _texts_of(column: Column, values: pa.Array) -> tuple[Callable[[Any], str], pa.Array]:
    """What makes a JSON text of a Python object, and the array of these objects."""
    type_ = values.type
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return lambda number: str(int(number)), values
    if pa.types.is_decimal(type_):
        # "whole": integers of a wide type are numbers, not strings
        return ("{:f}" if column.type.change == "whole" else '"{:f}"').format, values
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        return '"{}"'.format, text_of(values, fraction_digits=column.fraction_digits)
    if pa.types.is_floating(type_):
        return _real, values.cast(pa.string())
    if pa.types.is_string(type_):
        return _quoted, values
    if pa.types.is_binary(type_):
        return lambda raw: f'"{raw.hex()}"', values
    if pa.types.is_struct(type_):
        return _geometry, values
    if pa.types.is_list(type_):
        return lambda reals: f"[{','.join(map(_real, reals))}]", values.cast(pa.list_(pa.string()))
    raise BinlogError(
        f"column {column.name!r} cannot be written as JSON",
        expected="a type that this version knows",
        got=str(type_),
        next_step="please report the type of the column",
    )


def _geometry(value: dict[str, Any]) -> str:
    return f'"{(value["srid"].to_bytes(4, "little", signed=True) + value["wkb"]).hex()}"'


def _real(shortest: str) -> str:
    """A number in the server's layout, from its shortest digits: as `kernels.text.shortest`
    writes them inside JSON documents. Bytes may hold what no server stores and JSON has no number
    for: ``"NaN"``, ``"inf"``, ``"-inf"``.
    """
    if shortest in _NO_NUMBERS:
        return _NO_NUMBERS[shortest]
    if "e" not in shortest and len(shortest) <= 15:
        return shortest if "." in shortest else shortest + ".0"
    sign, digit_values, exponent = Decimal(shortest).as_tuple()
    padded = "".join(map(str, digit_values)).lstrip("0")
    digits, minus = padded.rstrip("0"), "-" if sign else ""
    point = len(padded) + int(exponent)
    if point < -14 or (point > 15 and point >= len(digits)):
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{minus}{digits[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    return f"{minus}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def _invalid_text(value: InvalidValue, column: Column) -> str:
    """JSON for an invalid value: the server's text, or an object with a document's
    differences or with the bytes in hex.

    Values of all columns are strings, numbers or lists, so an object is unambiguous.
    """
    if value.reason in DIFFERENCES and value.text.startswith("["):
        return f'{{"differences": {value.text}}}'
    text = _quoted(value.text)
    return text if column.type.not_held_text == "moment" else f'{{"hex": {text}}}'
