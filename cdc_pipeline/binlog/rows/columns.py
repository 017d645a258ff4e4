"""Build one Arrow array from one column of the walked rows.

Rules:
- The column's type names the builder, `Column.wire_type` selects the bytes that it reads.
- State per row: NULL, VALID or INVALID. An INVALID value is null in the array and listed, with the
  server's text of it or its bytes as hex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.binlog.arrow_types import arrow_type, check_column_bytes
from cdc_pipeline.binlog.decoded import NO_KEY, InvalidValue
from cdc_pipeline.binlog.kernels import addresses, numbers, temporal
from cdc_pipeline.binlog.kernels.compressed_values import LENGTH_BYTES, plain_bytes, unpack_values
from cdc_pipeline.binlog.kernels.numbers import INVALID, VALID
from cdc_pipeline.binlog.kernels.text import text
from cdc_pipeline.binlog.native.inflate import new_stream
from cdc_pipeline.binlog.rows.cells import Block, Cells
from cdc_pipeline.binlog.rows.columns_json import json_column, json_invalid
from cdc_pipeline.binlog.rows.columns_tiled import gather_tiled
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables import columns_wire as wire
from cdc_pipeline.binlog.tables.charsets import Charset, find_charset
from cdc_pipeline.binlog.wire_types import COMPRESSED, OLD_TEMPORAL, WireType
from cdc_pipeline.errors import BinlogError

_ZERO_DATETIME: Final = "0000-00-00 00:00:00"
_TIME_TEXT_BYTES_MAX: Final = 20
_TRANSCODE_FACTOR: Final = 3  # one byte of text becomes at most three of UTF-8


def build_columns(
    schema: TableSchema,
    blocks: Sequence[Block],
    *,
    image: str,
    rows: int,
    present: bool,
    bitmap: NDArray[np.uint8] | None,
    value_bytes: NDArray[np.int64],
    nulls: NDArray[np.int64],
    rules: NDArray[np.int32],
    is_mariadb: bool,
    invalid: list[InvalidValue],
) -> list[pa.Array]:
    """Build the Arrow arrays of all columns of one image. Raises BinlogError: a column has more
    bytes than Arrow's offsets can address.

    Args:
        image: "before" or "after".
        present: False if no row has this image: all null.
        bitmap: which columns the image of each row has; None: all.
        value_bytes, nulls: int64 (columns,): sums from the walk.
        invalid: values that Arrow cannot hold, and NULLs in a key, are appended.
    """
    tiled: dict[int, pa.Array] = {}
    inexact: set[int] = set()
    if present:
        tiled, inexact = gather_tiled(
            schema,
            blocks,
            image=image,
            rows=rows,
            value_bytes=value_bytes,
            nulls=nulls,
            is_mariadb=is_mariadb,
        )
    arrays = []
    for index, column in enumerate(schema.columns):
        array = tiled.get(index)
        if array is None and (not present or nulls[index] == rows):
            array = pa.nulls(rows, arrow_type(column))
        if array is not None and index not in inexact:
            arrays.append(array)
            continue
        cells = Cells(
            column=column,
            index=index,
            image=image,
            blocks=blocks,
            rows=rows,
            value_bytes=int(value_bytes[index]),
            rule=int(rules[index]),
            is_mariadb=is_mariadb,
            is_key=index in schema.primary_key,
            state=np.empty(rows, np.uint8),
        )
        if array is None:
            try:
                if column.wire_type in COMPRESSED:
                    invalid.extend(_unpack(cells))
                array = DECODERS[column.type.decoder](cells, arrow_type(column))
            except BinlogError as error:
                error.table = schema.full_name
                raise
            bad = np.flatnonzero(cells.state == INVALID)
        else:
            bad = cells.lost_in(array)
        arrays.append(array)
        if len(bad):
            invalid.extend(_describe(cells, bad))
    if present:
        invalid.extend([*_null_keys(schema, arrays, bitmap, image, invalid)])
    return arrays


def _null_keys(
    schema: TableSchema,
    arrays: Sequence[pa.Array],
    bitmap: NDArray[np.uint8] | None,
    image: str,
    invalid: Sequence[InvalidValue],
) -> Iterator[InvalidValue]:
    """The server has as many rows as it likes with NULL in columns that a rule calls a key."""
    for index in schema.primary_key:
        if not schema.columns[index].nullable or not arrays[index].null_count:
            continue
        is_null = arrays[index].is_null().to_numpy(zero_copy_only=False)
        if bitmap is not None:
            is_null = is_null & (bitmap[:, index >> 3] >> (index & 7) & 1).astype(np.bool_)
        listed = {value.row for value in invalid if (value.image, value.column) == (image, index)}
        for row in sorted({*np.flatnonzero(is_null).tolist()} - listed):
            yield InvalidValue(row, image, index, NO_KEY, "")


def _fits(cells: Cells, total_bytes: int) -> int:
    return check_column_bytes(cells.column, cells.rows, total_bytes)


def _unpack(cells: Cells) -> list[InvalidValue]:
    """Unpack the values of a COMPRESSED column of MariaDB in `cells` to plain bytes with a length;
    return those that cannot be unpacked, now null. Raises RuntimeSetupError: this machine has no
    shared zlib; BinlogError: zlib is out of memory.
    """
    column, prefix, parts = cells.column, -cells.rule, cells.parts()
    # The metadata of a VARCHAR also counts the first byte.
    if column.wire_type == WireType.VARCHAR_COMPRESSED:
        size_max = column.wire_meta - 1
    else:
        size_max = int((1 << 8 * column.wire_meta) - 1)
    sizes_bytes = [
        int(plain_bytes(block.data, block.base, relative, prefix, size_max))
        for block, relative, _ in parts
    ]
    cells.value_bytes = _fits(cells, sum(sizes_bytes))
    damaged = np.zeros(cells.rows, np.uint8)
    unpacked = []
    for size_bytes, (block, relative, rows) in zip(sizes_bytes, parts, strict=True):
        out, base = np.empty(max(size_bytes, 1), np.uint8), np.empty(len(block.base), np.int64)
        new_relative, bad = np.empty(len(base), np.int32), np.empty(len(base), np.uint8)
        code = unpack_values(
            block.data, block.base, relative, prefix, size_max, new_stream(),
            out, base, new_relative, bad,
        )  # fmt: skip
        if code != 0:
            raise BinlogError(
                f"zlib cannot decompress column {column.name!r}",
                got=f"zlib error {code}",
                next_step="give the run more memory",
            )
        damaged[rows] = bad
        unpacked.append((replace(block, data=out, base=base), new_relative, rows))
    reported = [
        InvalidValue(
            int(row),
            cells.image,
            cells.index,
            "not a compressed value of MariaDB",
            cells.raw(int(row)).hex(),
        )
        for row in np.flatnonzero(damaged)
    ]
    cells.unpacked, cells.rule = unpacked, -LENGTH_BYTES
    return reported


def _bit(cells: Cells, kind: pa.DataType) -> pa.Array:
    values = cells.integers(signed=False)
    if pa.types.is_boolean(kind):
        return cells.array(kind, [pa.py_buffer(np.packbits(values != 0, bitorder="little"))])
    if pa.types.is_decimal(kind):
        words = np.zeros((cells.rows, 2), np.uint64)
        words[:, 0] = values.view(np.uint64)
        return cells.array(kind, [pa.py_buffer(words)])
    return cells.array(kind, [pa.py_buffer(values)])


def _year(cells: Cells, kind: pa.DataType) -> pa.Array:
    values = cells.integers(signed=False).astype(np.int16)
    values[values > 0] += 1900
    return cells.array(kind, [pa.py_buffer(values)])


def _old_datetime(cells: Cells, kind: pa.DataType) -> pa.Array:
    out = np.empty(cells.rows, np.int64)
    digits = cells.column.fraction_digits
    if digits:
        temporal.fractional_datetimes(cells.integers(signed=False), digits, out, cells.state)
    else:
        temporal.old_datetimes(cells.integers(signed=True), out, cells.state)
    return cells.array(kind, [pa.py_buffer(out)])


def _old_timestamp(cells: Cells, kind: pa.DataType) -> pa.Array:
    out = np.empty(cells.rows, np.int64)
    packed = cells.integers(signed=False)
    temporal.old_timestamps(packed, cells.column.fraction_digits, out, cells.state)
    return cells.array(kind, [pa.py_buffer(out)])


def _time(cells: Cells, kind: pa.DataType) -> pa.Array:
    old = cells.column.wire_type in OLD_TEMPORAL
    digits = cells.column.fraction_digits
    out = np.empty(_fits(cells, cells.rows * _TIME_TEXT_BYTES_MAX), np.uint8)
    offsets = np.empty(cells.rows + 1, np.int32)
    packed = cells.integers(signed=old and not digits)
    if old and digits:
        end = temporal.fractional_times(packed, digits, out, offsets, cells.state)
    else:
        end = temporal.times(
            packed, wire.fraction_bytes(digits), digits, old, out, offsets, cells.state
        )
    return cells.array(kind, [pa.py_buffer(offsets), pa.py_buffer(out[:end])])


def _appended(
    cells: Cells, room_bytes: int, gather: Callable[..., int], *arguments: object
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Offsets and data of a column of variable width, by a kernel that appends the values of one
    block; `arguments` are its own."""
    out = np.empty(_fits(cells, room_bytes), np.uint8)
    offsets = np.zeros(cells.rows + 1, np.int32)
    end = 0
    for block, relative, rows in cells.parts():
        end = gather(
            block.data, block.base, relative, *arguments, out, end,
            offsets[rows.start : rows.stop + 1], cells.state[rows],
        )  # fmt: skip
    return offsets, out[:end]


def _of_text(
    cells: Cells, kind: pa.DataType, text_: tuple[NDArray[np.int32], NDArray[np.uint8]]
) -> pa.Array:
    return cells.array(kind, [pa.py_buffer(buffer) for buffer in text_])


def _long_decimal(cells: Cells, kind: pa.DataType) -> pa.Array:
    precision, scale = cells.column.precision, cells.column.scale
    room_bytes = cells.rows * (precision + 3)
    return _of_text(
        cells, kind, _appended(cells, room_bytes, numbers.gather_decimal_text, precision, scale)
    )


def _gathered(
    cells: Cells, *, mode: int, skip: int = 0
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Copy a variable-width column unchanged; return its offsets and data."""
    pad_to = cells.column.pad_bytes
    room_bytes = cells.value_bytes + cells.rows * pad_to
    return _appended(cells, room_bytes, text.gather_bytes, -cells.rule, skip, pad_to, mode)


def _binary(cells: Cells, kind: pa.DataType) -> pa.Array:
    return _of_text(cells, kind, _gathered(cells, mode=text.BYTES))


def _address(cells: Cells, kind: pa.DataType, *, form: int) -> pa.Array:
    room_bytes = cells.rows * addresses.TEXT_BYTES_MAX
    return _of_text(
        cells, kind, _appended(cells, room_bytes, addresses.gather_addresses, -cells.rule, form)
    )


def _charset(cells: Cells) -> Charset:
    return find_charset(cells.column.charset, is_mariadb=cells.is_mariadb, is_key=cells.is_key)


def _text(cells: Cells, kind: pa.DataType) -> pa.Array:
    charset = _charset(cells)
    if charset.copied_as is not None:
        return _of_text(cells, kind, _gathered(cells, mode=charset.copied_as))
    transcoded = _appended(
        cells,
        cells.value_bytes * _TRANSCODE_FACTOR,
        text.transcode,
        -cells.rule,
        charset.mode,
        charset.one,
        charset.two,
        charset.three,
    )
    return _of_text(cells, kind, transcoded)


def _set(cells: Cells, kind: pa.DataType) -> pa.Array:
    """As the server prints them. A label '' behind nothing adds no text: in a key, only the number
    without it has one.
    """
    values = cells.integers(signed=False)
    labels = [label.encode() for label in cells.column.labels]
    if cells.is_key and b"" in labels:
        bit = np.array(1 << labels.index(b""), np.uint64).view(np.int64)
        cells.state[(cells.state == VALID) & (values & -values == bit)] = INVALID
    label_offsets = np.zeros(len(labels) + 1, np.int64)
    np.cumsum([len(label) for label in labels], out=label_offsets[1:])
    label_data = np.frombuffer(b"".join(labels) or b"\0", np.uint8)
    out = np.empty(_fits(cells, int(text.set_bytes(values, label_offsets, cells.state))), np.uint8)
    offsets = np.empty(cells.rows + 1, np.int32)
    end = text.set_labels(values, label_data, label_offsets, out, offsets, cells.state)
    return cells.array(kind, [pa.py_buffer(offsets), pa.py_buffer(out[:end])])


def _geometry(cells: Cells, kind: pa.DataType) -> pa.Array:
    srid_bytes = 4
    offsets, data = _gathered(cells, mode=text.BYTES, skip=srid_bytes)
    srids = np.zeros(cells.rows, np.int64)
    valid = cells.state == VALID
    for block, relative, rows in cells.parts():
        # The SRID follows the length bytes; a value too short for one is skipped here as above.
        at = np.where(valid[rows], relative - np.int32(cells.rule), np.int32(-1))
        numbers.gather_integers(
            block.data,
            block.base,
            at,
            srid_bytes,
            False,
            True,
            srids[rows],
            np.empty(block.rows, np.uint8),
        )
    wkb = pa.Array.from_buffers(
        pa.binary(), cells.rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return cells.array(kind, [], [pa.array(srids.astype(np.int32)), wkb])


def _vector(cells: Cells, kind: pa.DataType) -> pa.Array:
    offsets, data = _gathered(cells, mode=text.BYTES)
    lengths = np.diff(offsets)
    odd = (lengths % 4 != 0) & (cells.state == VALID)
    if odd.any():
        # Their bytes are left out, so that all others begin at a whole element.
        keep = np.repeat(~odd, lengths)
        data = data[keep]
        offsets = np.concatenate([[0], np.cumsum(np.where(odd, 0, lengths))]).astype(np.int32)
        cells.state[odd] = INVALID
    strange = np.flatnonzero(~np.isfinite(data.view(np.float32)))
    cells.state[np.searchsorted(offsets, 4 * strange, side="right") - 1] = INVALID
    elements = pa.Array.from_buffers(pa.float32(), len(data) // 4, [None, pa.py_buffer(data)])
    return cells.array(kind, [pa.py_buffer((offsets // 4).astype(np.int32))], [elements])


# By `TypeSpec.decoder`, for all that is not in `columns_tiled.TILED`.
DECODERS: Final[dict[str, Callable[[Cells, pa.DataType], pa.Array]]] = {
    "bit": _bit,
    "decimal": _long_decimal,
    "year": _year,
    "datetime": _old_datetime,
    "timestamp": _old_timestamp,
    "time": _time,
    "text": _text,
    "binary": _binary,
    "set": _set,
    "json": json_column,
    "geometry": _geometry,
    "vector": _vector,
    "uuid": partial(_address, form=addresses.UUID),
    "inet4": partial(_address, form=addresses.INET4),
    "inet6": partial(_address, form=addresses.INET6),
}


def _describe(cells: Cells, bad: NDArray[np.int64]) -> list[InvalidValue]:
    """Reason and text of invalid values, the only values that are handled one by one."""
    column = cells.column
    reason = column.type.not_held.format(charset=column.charset)
    if cells.is_key and column.type.decoder == "text" and _charset(cells).mode == text.TABLE:
        reason += " in a key, where each character has one code"
    if column.type.not_held_text == "moment":
        packed = cells.integers(signed=False) if cells.packed is None else cells.packed
        values, inverse = np.unique(packed[bad], return_inverse=True)
        known = [_temporal_text(column, int(value)) for value in values]
        return [
            InvalidValue(int(row), cells.image, cells.index, reason, known[which])
            for row, which in zip(bad, inverse, strict=True)
        ]
    if column.type.not_held_text == "document":
        return json_invalid(cells, bad, reason)
    return [
        InvalidValue(int(row), cells.image, cells.index, reason, cells.raw(int(row)).hex())
        for row in bad
    ]


def _temporal_text(column: Column, packed: int) -> str:
    """The server's text of what Arrow cannot hold: zero, partial and impossible dates. `packed`:
    the value's bits as `kernels.numbers.gather_integers` reads them (int64).
    """
    digits = column.fraction_digits
    if column.kind is Kind.DATE:
        return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"
    if column.kind is Kind.TIME:
        return f"{packed:#x}"  # not a time: the server itself would not print it
    if column.wire_type in OLD_TEMPORAL and digits:
        return _old_fractional(column.kind, packed, digits)
    if column.wire_type in OLD_TEMPORAL:
        if column.kind is Kind.TIMESTAMP:
            return _ZERO_DATETIME
        text = f"{packed:014d}"
        return f"{text[:-10]}-{text[-10:-8]}-{text[-8:-6]} {text[-6:-4]}:{text[-4:-2]}:{text[-2:]}"
    size = wire.fraction_bytes(digits)
    fraction = packed & (1 << 8 * size) - 1
    tail = f".{fraction:0{2 * size}d}"[: digits + 1] if digits else ""
    if column.kind is Kind.TIMESTAMP:
        return _ZERO_DATETIME + tail
    whole = (packed ^ 1 << 39 + 8 * size) >> 8 * size & (1 << 40) - 1
    months, day = whole >> 22, whole >> 17 & 31
    hour, minute, second = whole >> 12 & 31, whole >> 6 & 63, whole & 63
    return (
        f"{months // 13:04d}-{months % 13:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}{tail}"
    )


def _old_fractional(kind: Kind, packed: int, digits: int) -> str:
    """The text of a value of MariaDB's old types with a fraction (see `kernels.temporal`)."""
    if kind is Kind.TIMESTAMP:
        return f"{_ZERO_DATETIME}.{0:0{digits}d}"
    whole, fraction = divmod(packed, 10**digits)
    parts = []
    for radix in (60, 60, 24, 32, 13):
        whole, part = divmod(whole, radix)
        parts.append(part)
    second, minute, hour, day, month = parts
    return (
        f"{whole:04d}-{month:02d}-{day:02d} "
        f"{hour:02d}:{minute:02d}:{second:02d}.{fraction:0{digits}d}"
    )
