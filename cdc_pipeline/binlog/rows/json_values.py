"""Convert Arrow columns to JSON texts, column by column, in compiled code, for `text_jsonl`.

Rules:
- Integers, BIT and YEAR are exact JSON numbers; DECIMAL is a string; FLOAT and DOUBLE the shortest
  number that reads back. Dates and times are printed as by the server, TIMESTAMP in UTC, with the
  declared fraction. Every column of text (ENUM, SET, TIME, JSON's canonical text, UUID ...) is a
  string; binary types and geometry (SRID, then WKB, as stored) are lower-case hex; a VECTOR is a
  list of numbers.
- The Arrow type selects the writer; the kind does only if one Arrow type has two forms.
- NULL is null. A value that Arrow cannot hold is the decoder's text of it, as a string.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.kernels.json import json_escapes, json_strings, json_text
from cdc_pipeline.binlog.kernels.text.shortest import powers_of_ten
from cdc_pipeline.binlog.table_schema import Column
from cdc_pipeline.errors import BinlogError

_NULL: Final = np.frombuffer(b"null", np.uint8)
_ROOM_BYTES_MIN: Final = 1 << 16
_NO_SRIDS: Final = np.zeros(0, np.int32)
_NO_SRIDS.flags.writeable = False


class ValueBuffer:
    """Texts of many columns, one after the other; all NULLs share the ``null`` at the front.

    Attributes:
        data: uint8; existing views do not follow when it grows.
        used: bytes in use.
    """

    def __init__(self) -> None:
        self.data: NDArray[np.uint8] = np.empty(_ROOM_BYTES_MIN, np.uint8)
        self.data[: json_text.NULL_BYTES] = _NULL
        self.used = json_text.NULL_BYTES

    def clear(self) -> None:
        """Forget all texts but keep the memory."""
        self.used = json_text.NULL_BYTES

    def room(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return the buffer with room for `size_bytes` after the used part."""
        if self.used + size_bytes > len(self.data):
            larger = np.empty(max(2 * len(self.data), self.used + size_bytes), np.uint8)
            larger[: self.used] = self.data[: self.used]
            self.data = larger
        return self.data

    def append(self, text: bytes) -> tuple[int, int]:
        """Append a text; return its start and end."""
        data, start = self.room(len(text)), self.used
        data[start : start + len(text)] = np.frombuffer(text, np.uint8)
        self.used += len(text)
        return start, self.used


def write_values(
    column: Column,
    values: pa.Array,
    buffer: ValueBuffer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    invalid: Iterable[tuple[int, str]] = (),
) -> None:
    """Append the texts of one column to `buffer`.

    Args:
        values: n values of the type from `arrow_types.arrow_type`.
        starts, ends: int64 (n,), written: where the text of each row is.
        invalid: row of values that the array cannot hold, and their replacement as JSON.
    """
    if values.null_count == len(values):
        starts[:], ends[:] = 0, json_text.NULL_BYTES
    else:
        _write(column, values, buffer, starts, ends)
    for row, text in invalid:
        starts[row], ends[row] = buffer.append(text.encode())


def _write(
    column: Column,
    values: pa.Array,
    buffer: ValueBuffer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    kind, rows, valid = values.type, len(values), _valid(values)
    place = (starts, ends)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        out = buffer.room(rows * json_text.INTEGER_BYTES_MAX)
        buffer.used = json_text.put_integers(
            _integers(values), valid, True, out, buffer.used, *place
        )
    elif pa.types.is_decimal(kind):
        words = _fixed(values, np.uint64, 2)
        if column.type.change == "whole":  # they are numbers, not strings
            out = buffer.room(rows * json_text.INTEGER_BYTES_MAX)
            low = np.ascontiguousarray(words[:, 0]).view(np.int64)
            buffer.used = json_text.put_integers(low, valid, False, out, buffer.used, *place)
        else:
            out = buffer.room(rows * json_text.DECIMAL_BYTES_MAX)
            buffer.used = json_text.put_decimals(words, valid, kind.scale, out, buffer.used, *place)
    elif pa.types.is_floating(kind):
        single = pa.types.is_float32(kind)
        bits = _fixed(values, np.uint32 if single else np.uint64, 1)[:, 0].astype(np.uint64)
        out = buffer.room(rows * json_text.REAL_BYTES_MAX)
        buffer.used = json_text.put_reals(
            bits, valid, single, powers_of_ten(), out, buffer.used, *place
        )
    elif pa.types.is_date32(kind):
        out = buffer.room(rows * json_text.DATETIME_BYTES_MAX)
        days = _fixed(values, np.int32, 1)[:, 0]
        buffer.used = json_text.put_dates(days, valid, out, buffer.used, *place)
    elif pa.types.is_timestamp(kind):
        out = buffer.room(rows * json_text.DATETIME_BYTES_MAX)
        moments = _fixed(values, np.int64, 1)[:, 0]
        buffer.used = json_text.put_datetimes(
            moments, valid, column.fraction_digits, out, buffer.used, *place
        )  # fmt: skip
    elif pa.types.is_string(kind):
        offsets, data = _variable(values)
        escapes = int(json_escapes.escaped_bytes(data, int(offsets[0]), int(offsets[-1])))
        size = int(offsets[-1] - offsets[0]) + escapes * json_escapes.ESCAPED_BYTES_MORE
        out = buffer.room(size + rows * json_strings.QUOTES_BYTES)
        buffer.used = json_strings.put_strings(
            offsets, data, valid, escapes == 0, out, buffer.used, *place
        )
    elif pa.types.is_binary(kind):
        _write_hex(values, _NO_SRIDS, valid, buffer, starts, ends)
    elif pa.types.is_struct(kind):
        # `field`, not `flatten`: the slice's own range of the children, without the parent's NULLs.
        srids = _fixed(values.field(0), np.int32, 1)[:, 0]
        _write_hex(values.field(1), srids, valid, buffer, starts, ends)
    elif pa.types.is_list(kind):
        offsets = _buffer(values, 1, np.int32)[values.offset : values.offset + rows + 1]
        elements = _buffer(values.values, 1, np.uint32)[values.values.offset :]
        floats = int(offsets[-1] - offsets[0])
        out = buffer.room(
            floats * (json_text.REAL_BYTES_MAX + 1) + rows * json_strings.QUOTES_BYTES
        )
        buffer.used = json_text.put_vectors(
            offsets, elements, valid, powers_of_ten(), out, buffer.used, *place
        )
    else:
        raise BinlogError(
            f"column {column.name!r} cannot be written as JSON",
            expected="a type of docs/reference/types.md",
            got=str(kind),
            next_step="please report the type of the column",
        )


def _write_hex(
    values: pa.Array,
    srids: NDArray[np.int32],
    valid: NDArray[np.uint8],
    buffer: ValueBuffer,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    offsets, data = _variable(values)
    srid_digits = 8 if len(srids) else 0
    size = 2 * int(offsets[-1] - offsets[0]) + len(values) * (
        json_strings.QUOTES_BYTES + srid_digits
    )
    out = buffer.room(size)
    buffer.used = json_strings.put_hex(offsets, data, srids, valid, out, buffer.used, starts, ends)


def _valid(values: pa.Array) -> NDArray[np.uint8]:
    """Return 1 for each row with a value."""
    validity = values.buffers()[0]
    if validity is None or not values.null_count:
        return np.ones(len(values), np.uint8)
    return _bits(validity, values)


def _bits(buffer: pa.Buffer, values: pa.Array) -> NDArray[np.uint8]:
    first = values.offset // 8
    raw = np.frombuffer(buffer, np.uint8)[first : (values.offset + len(values) + 7) // 8]
    bits = np.unpackbits(raw, bitorder="little")
    return bits[values.offset - 8 * first :][: len(values)]


def _integers(values: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_boolean(values.type):
        return _bits(values.buffers()[1], values).astype(np.int64)
    numbers: NDArray[np.int64] = _fixed(values, values.type.to_pandas_dtype(), 1)[:, 0].astype(
        np.int64
    )
    return numbers


def _buffer(values: pa.Array, index: int, dtype: type[np.generic]) -> NDArray[Any]:
    buffer = values.buffers()[index]
    empty = buffer is None or not buffer.size
    view = (
        np.zeros(1, dtype)
        if empty
        else np.frombuffer(buffer, dtype, buffer.size // np.dtype(dtype).itemsize)
    )
    # Make the view read-only, so that kernels are compiled only for read-only arrays.
    view.flags.writeable = False
    return view


def _fixed(values: pa.Array, dtype: type[np.generic], width: int) -> NDArray[Any]:
    """Return a view (rows, width) of a column of fixed width."""
    raw = _buffer(values, 1, dtype)
    return raw[values.offset * width : (values.offset + len(values)) * width].reshape(-1, width)


def _variable(values: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return offsets (rows + 1,) and bytes of a column of variable width."""
    offsets = _buffer(values, 1, np.int32)[values.offset : values.offset + len(values) + 1]
    return offsets, _buffer(values, 2, np.uint8)
