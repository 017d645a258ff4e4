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
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DELETE, INSERT, OP_NAMES, DecodedRows, InvalidValue
from cdc_pipeline.binlog.rows.partial_rows import DIFFERENCES
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.binlog.value_text import text_of
from cdc_pipeline.errors import BinlogError

_BLOCK_CELLS: Final = 1 << 17
_BLOCK_BYTES: Final = 4 << 20

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT: Final = pa.large_string()
_OP_NAMES: Final = pa.array([OP_NAMES.get(op) for op in range(max(OP_NAMES) + 1)], _TEXT)
_NO_NUMBERS: Final = {"nan": '"NaN"', "inf": '"inf"', "-inf": '"-inf"'}

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode


def jsonl_lines(
    rows: DecodedRows,
    *,
    journal: str,
    offsets: NDArray[np.int64] | Sequence[int],
    gtids: Sequence[str | None],
) -> list[str]:
    """Return one JSON text without line end per change, in order.

    Args:
        offsets, gtids: one for each decoded event, by `rows.event_row`.
    """
    blocks = jsonl_blocks(
        rows,
        journal=journal,
        offsets=np.asarray(offsets, np.int64),
        gtids=pa.array(gtids, pa.string()),
    )
    return [line[:-1] for block in blocks for line in block.to_pylist()]


def jsonl_blocks(
    rows: DecodedRows,
    *,
    journal: str,
    offsets: NDArray[np.int64],
    gtids: pa.StringArray,
    statements: pa.LargeStringArray | None = None,
) -> Iterator[pa.LargeStringArray]:
    """Yield all changes as lines with their line ends, in blocks.

    Args:
        offsets, gtids, statements: one for each decoded event, by `rows.event_row`; no line has
            a statement without `statements`.
    """
    columns = max(len(rows.schema.columns), 1)
    bytes_per_row = max((rows.before.nbytes + rows.after.nbytes) // max(len(rows), 1), 1)
    step = max(1, min(_BLOCK_CELLS // columns, _BLOCK_BYTES // bytes_per_row))
    cuts = np.arange(0, len(rows), step)
    if statements is not None:
        lengths = pc.fill_null(pc.binary_length(statements), 0).to_numpy()
        spent = np.cumsum(lengths[rows.event_row]) // _BLOCK_BYTES
        cuts = np.union1d(cuts, np.flatnonzero(np.diff(spent)) + 1)
    for first, stop in pairwise([*cuts.tolist(), len(rows)]):
        part = rows.part(first, stop)
        events = pa.array(part.event_row)
        yield _lines(
            part,
            journal,
            pa.array(offsets[part.event_row]),
            gtids.take(events),
            None if statements is None else statements.take(events),
        )


def iso_time(since_1970_us: int) -> str:
    """Return ISO 8601 text in UTC with six digits, such as ``2024-01-31T23:59:59.000000Z``."""
    moment = _EPOCH + timedelta(microseconds=since_1970_us)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _lines(
    rows: DecodedRows,
    journal: str,
    offsets: pa.Int64Array,
    gtids: pa.StringArray,
    statements: pa.LargeStringArray | None,
) -> pa.LargeStringArray:
    ops = pa.array(rows.op)
    before = pc.if_else(pc.equal(ops, INSERT), _text("null"), _image(rows, "before"))
    after = pc.if_else(pc.equal(ops, DELETE), _text("null"), _image(rows, "after"))
    known = rows.commit_ts_us >= 0
    moments = pa.array(rows.commit_ts_us, pa.timestamp("us"), mask=~known).cast(pa.string())
    names = f'{{"schema":{_quoted(rows.schema.database)},"table":{_quoted(rows.schema.table)}'
    return _joined(
        f'{names},"op":"',
        _OP_NAMES.take(ops),
        '","before":',
        before,
        ',"after":',
        after,
        f',"journal":{_quoted(journal)},"offset":',
        offsets.cast(_TEXT),
        ',"gtid":',
        _or_null(_joined('"', gtids.cast(_TEXT), '"')),
        ',"ts":',
        _or_null(_joined('"', pc.utf8_replace_slice(moments, 10, 11, "T").cast(_TEXT), 'Z"')),
        *([] if statements is None else [_statements(statements)]),
        "}\n",
    )


def _statements(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    distinct = texts.dictionary_encode()
    quoted = pa.array(
        [f',"statement":{_quoted(text)}' for text in distinct.dictionary.to_pylist()], _TEXT
    )
    return quoted.take(distinct.indices).fill_null("")


def _image(rows: DecodedRows, image: str) -> pa.LargeStringArray:
    """Return one image of each row as a JSON object, without the columns that are absent."""
    batch = rows.before if image == "before" else rows.after
    present = rows.before_present if image == "before" else rows.after_present
    if not batch.num_columns:
        return pa.array(["{}"] * len(rows), _TEXT)
    cells = []
    for index, column in enumerate(rows.schema.columns):
        invalid = [value for value in rows.invalid if (value.image, value.column) == (image, index)]
        texts = json_texts(column, batch.column(index), invalid)
        cell = _joined(f",{_quoted(column.name)}:", texts)
        if not rows.all_present:
            is_present = present[:, index >> 3] >> (index & 7) & 1
            cell = pc.if_else(pa.array(is_present.astype(bool)), cell, _text(""))
        cells.append(cell)
    return _joined("{", pc.utf8_slice_codeunits(_joined(*cells), 1), "}")


def json_texts(
    column: Column, values: pa.Array, invalid: Iterable[InvalidValue] = ()
) -> pa.LargeStringArray:
    """Return the JSON text of each value of one column.

    Args:
        values: of the type from `arrow_types.arrow_type`.
        invalid: what the array cannot hold.
    """
    if values.null_count == len(values):
        texts = pa.array(["null"] * len(values), _TEXT)
    else:
        texts = _or_null(_value_texts(column, values))
    replacements = {value.row: _invalid_text(value, column) for value in invalid}
    if replacements:
        mask = np.zeros(len(values), bool)
        mask[list(replacements)] = True
        in_order = [replacements[row] for row in sorted(replacements)]
        texts = pc.replace_with_mask(texts, pa.array(mask), pa.array(in_order, _TEXT))
    return texts


def _value_texts(column: Column, values: pa.Array) -> pa.Array:
    type_ = values.type
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return text_of(values)
    if pa.types.is_decimal(type_) and column.type.change == "whole":  # numbers, not strings
        return text_of(values)
    if pa.types.is_decimal(type_) or pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        text = text_of(values, fraction_digits=column.fraction_digits).cast(_TEXT)
        return _joined('"', text, '"')
    if pa.types.is_floating(type_):
        return _each(_real, values.cast(pa.string()))
    if pa.types.is_string(type_):
        return _each(_quoted, values)
    if pa.types.is_binary(type_):
        return _each(lambda raw: f'"{raw.hex()}"', values)
    if pa.types.is_struct(type_):
        return _each(_geometry, values)
    if pa.types.is_list(type_):
        # `flatten`: the slice's own elements, without those of the parent's NULLs.
        reals = iter(values.flatten().cast(pa.string()).to_pylist())
        lengths = pc.list_value_length(values).to_pylist()
        return pa.array(
            [
                None
                if length is None
                else f"[{','.join(_real(next(reals)) for _ in range(length))}]"
                for length in lengths
            ],
            _TEXT,
        )
    raise BinlogError(
        f"column {column.name!r} cannot be written as JSON",
        expected="a type of docs/reference/types.md",
        got=str(type_),
        next_step="please report the type of the column",
    )


def _each(function: Any, values: pa.Array) -> pa.LargeStringArray:
    return pa.array(
        [None if value is None else function(value) for value in values.to_pylist()], _TEXT
    )


def _geometry(value: dict[str, Any]) -> str:
    return f'"{(value["srid"].to_bytes(4, "little", signed=True) + value["wkb"]).hex()}"'


def _real(shortest: str) -> str:
    """Return a number in the server's layout, from its shortest digits: as `kernels.text.shortest`
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
    """Return the JSON for an invalid value: the server's text, or an object with a document's
    differences or with the bytes in hex.

    Values of all columns are strings, numbers or lists, so an object is unambiguous.
    """
    if value.reason in DIFFERENCES and value.text.startswith("["):
        return f'{{"differences": {value.text}}}'
    text = _quoted(value.text)
    return text if column.type.not_held_text == "moment" else f'{{"hex": {text}}}'


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)


def _joined(*parts: str | pa.Array) -> pa.LargeStringArray:
    texts = [_text(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, _text(""))


def _or_null(texts: pa.Array) -> pa.LargeStringArray:
    return texts.cast(_TEXT).fill_null("null")
