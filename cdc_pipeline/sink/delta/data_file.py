"""Write Delta data files with Arrow, with the statistics by which readers skip files.

Spark spends ten times the CPU on the same rows: it makes a row of each and a Parquet value of each
of its fields. So the rows of tables that need only columns of plain types are written here
(`plain_table`).

Rules:
- A value is stored exactly as the column's Delta type represents it, or the write fails.
- A bound may be wide and is never narrow: texts are cut to 32 characters and the highest is raised,
  times are rounded to milliseconds, down and up. Columns that allow no such bound (NaN among the
  values, a text that cannot be raised, a year without four digits in ISO 8601) have none.
- Nothing refers to a file before its commit; a file that is never committed is garbage that VACUUM
  removes.

Source: Delta's protocol, "Add File and Remove File", "Per-file Statistics"; Apache Parquet,
"Logical Types".
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.lake.staged_file import CountingFile, repeating
from cdc_pipeline.sink.delta.plain_table import MappedColumn

# level 1: half the CPU and half the bytes of Snappy; every reader of Delta knows it
CODEC: Final = "zstd"
CODECS: Final = frozenset({"zstd", "snappy", "gzip"})
FILE_BYTES: Final = 256 << 20
_ROW_GROUP_BYTES: Final = 32 << 20
_ROW_GROUP_ROWS: Final = 1 << 20
_TEXT_CHARACTERS: Final = 32
_HIGHEST_CHARACTER: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INDEXED_COLUMNS: Final = 32
_INDEXED_PROPERTY: Final = "delta.dataSkippingNumIndexedCols"

# Without it readers take dates before 1582 for dates of the Julian calendar, or refuse them.
_PROLEPTIC: Final = {b"org.apache.spark.version": b"4.2.0"}


def plain_type(delta_type: str) -> pa.DataType | None:
    arrow_type = arrow_of_delta(delta_type)
    return None if arrow_type is None or pa.types.is_nested(arrow_type) else arrow_type


def write_data_files(
    folder: Path,
    pieces: Iterable[pa.Table],
    types: dict[str, pa.DataType],
    *,
    properties: dict[str, str],
    mapped: Mapping[str, MappedColumn] = MappingProxyType({}),
    bounded: Iterable[str] = (),
    codec: str = CODEC,
) -> list[dict[str, Any]]:
    """Write rows into new files of a table; return the ``add`` actions.

    Args:
        pieces: columns in any order and of types that cast to `types`.
        mapped: names and ids of columns in the files, if the table has column mapping.
        properties: how many columns have statistics, and whether bounds are said to be tight.
        bounded: columns that have statistics in any case.

    Raises pa.ArrowInvalid: a value does not fit its column; OSError, SinkError: the file system
    is full.
    """
    fields = {name: _field(name, kind, mapped.get(name)) for name, kind in types.items()}
    schema = pa.schema(list(fields.values()), metadata=_PROLEPTIC)
    indexed_columns = int(properties.get(_INDEXED_PROPERTY, _INDEXED_COLUMNS))
    named = [*list(types)[: indexed_columns if indexed_columns >= 0 else None], *bounded]
    indexed = list(dict.fromkeys(fields[name].name for name in named))
    marks = properties.get("delta.enableDeletionVectors") == "true"
    added: list[dict[str, Any]] = []
    writer: _DataFileWriter | None = None
    try:
        for group in _groups(pieces, list(types), schema):
            writer = writer or _DataFileWriter(
                folder, schema, group, codec=codec, indexed=indexed, marks=marks
            )
            writer.write(group)
            if writer.size_bytes >= FILE_BYTES:
                added.append(writer.close())
                writer = None
        if writer is not None:
            added.append(writer.close())
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    return added


def _field(name: str, kind: pa.DataType, mapped: MappedColumn | None) -> pa.Field:
    if mapped is None:
        return pa.field(name, kind)
    return pa.field(mapped.name, kind, metadata={"PARQUET:field_id": str(mapped.id)})


def _groups(pieces: Iterable[pa.Table], names: list[str], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for piece in pieces:
        if not len(piece):
            continue
        waiting.append(piece.select(names).rename_columns(schema.names).cast(schema))
        rows, size_bytes = sum(map(len, waiting)), sum(table.nbytes for table in waiting)
        if rows >= _ROW_GROUP_ROWS or size_bytes >= _ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


class _DataFileWriter:
    """One file under way. Its first rows say for which columns a dictionary pays."""

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        first: pa.Table,
        *,
        codec: str,
        indexed: list[str],
        marks: bool,
    ) -> None:
        self._name = f"part-00000-{uuid.uuid4()}-c000.{codec}.parquet"
        self._path = folder / self._name
        self._file = CountingFile(self._path)
        self._rows = 0
        self._marks = marks
        self._bounds = {name: _Bounds(schema.field(name).type) for name in indexed}
        # Readers see plain Parquet: Arrow's own schema is not stored in the file.
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"),
            schema,
            compression=codec,
            compression_level=1 if codec == "zstd" else None,
            use_dictionary=repeating(schema, [first]),
            store_decimal_as_integer=True,
            store_schema=False,
        )

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=len(group))
        self._rows += len(group)
        for name, bounds in self._bounds.items():
            bounds.take(group.column(name))

    def close(self) -> dict[str, Any]:
        self._writer.close()
        self._file.finish()
        lows, highs = {}, {}
        for name, bounds in self._bounds.items():
            bound_texts = bounds.texts()
            if bound_texts is not None:
                lows[name], highs[name] = bound_texts
        counts = {name: str(bounds.nulls) for name, bounds in self._bounds.items()}
        parts = {
            "minValues": _object(lows),
            "maxValues": _object(highs),
            "nullCount": _object(counts),
        }
        tight = {"tightBounds": "true"} if self._marks else {}
        statistics = _object({"numRecords": str(self._rows), **parts, **tight})
        return {
            "path": self._name,
            "partitionValues": {},
            "size": self._file.size_bytes,
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": statistics,
        }

    def discard(self) -> None:
        with suppress(Exception):  # the first error is reported, not its consequences here
            self._writer.close()
            self._file.finish()
        self._path.unlink(missing_ok=True)


class _Bounds:
    def __init__(self, kind: pa.DataType) -> None:
        self.nulls = 0
        self._kind = kind
        self._has_bounds = not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))
        self._low: Any = None
        self._high: Any = None

    def take(self, values: pa.ChunkedArray) -> None:
        self.nulls += values.null_count
        if not self._has_bounds or values.null_count == len(values):
            return
        if pa.types.is_floating(self._kind) and pc.any(pc.is_nan(values)).as_py():
            self._has_bounds = False
            return
        if pa.types.is_timestamp(self._kind):
            values = values.cast(pa.int64())
        try:
            least_and_most = pc.min_max(values).as_py()
        except (ValueError, OverflowError):  # no such Python value
            self._has_bounds = False
            return
        self._low = (
            least_and_most["min"] if self._low is None else min(self._low, least_and_most["min"])
        )
        self._high = (
            least_and_most["max"] if self._high is None else max(self._high, least_and_most["max"])
        )

    def texts(self) -> tuple[str, str] | None:
        if not self._has_bounds or self._low is None:
            return None
        low, high = (self._text(self._low, up=False), self._text(self._high, up=True))
        return None if low is None or high is None else (low, high)

    def _text(self, value: Any, *, up: bool) -> str | None:
        if pa.types.is_timestamp(self._kind):
            value = -(-value // 1000) if up else value // 1000
            try:
                moment = _EPOCH + timedelta(milliseconds=value)
            except OverflowError:
                return None
            zone = "" if self._kind.tz is None else "Z"
            return json.dumps(moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone)
        if isinstance(value, str):
            return _text_bound(value, up=up)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else None
        return json_text(value.isoformat() if isinstance(value, date) else value)


def _text_bound(value: str, *, up: bool) -> str | None:
    if len(value) <= _TEXT_CHARACTERS:
        return json.dumps(value)
    cut = value[:_TEXT_CHARACTERS]
    if up and value[_TEXT_CHARACTERS] == _HIGHEST_CHARACTER:
        return None
    return json.dumps(cut + _HIGHEST_CHARACTER if up else cut)


def _object(fields: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}"


def json_text(value: Any) -> str:
    """Plain values as JSON, with each `Decimal` digit by digit (see `read_statistics`)."""
    if isinstance(value, dict):
        return _object({name: json_text(part) for name, part in value.items()})
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def read_statistics(text: str | None) -> dict[str, Any]:
    """Numbers that are not whole are `Decimal`: a binary fraction could make a bound narrower."""
    statistics = json.loads(text or "{}", parse_float=Decimal)
    return statistics if isinstance(statistics, dict) else {}
