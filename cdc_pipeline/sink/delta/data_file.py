"""Write Delta data files with Arrow, with the statistics by which readers skip files.

Spark spends ten times the CPU on the same rows: it makes a row of each and a Parquet value of each
of its fields. So the rows of tables that need only columns of plain types are written here
(`plain_table`).

Rules:
- A value is stored exactly as the column's Delta type represents it, or the write fails.
- A bound may be wide and is never narrow: texts are cut to 32 characters and the highest is raised,
  times are rounded to milliseconds, down and up, and zero is -0.0 below and 0.0 above: to some
  readers these differ. Columns that allow no such bound (NaN among the values, a text that cannot
  be raised, a year without four digits in ISO 8601) have none.
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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.binlog.arrow_types import arrow_of_delta
from cdc_pipeline.lake.staged_file import CountingFile, RowGroupWriter
from cdc_pipeline.lake.storage.storage import storage_of
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
_PROLEPTIC: Final = {"org.apache.spark.version": "4.2.0"}

# In the footers of data files that are staged.
_LAYOUT_KEY: Final = "cdc.layout"
_STATISTICS_KEY: Final = "cdc.statistics"


def plain_type(delta_type: str) -> pa.DataType | None:
    arrow_type = arrow_of_delta(delta_type)
    return None if arrow_type is None or pa.types.is_nested(arrow_type) else arrow_type


@dataclass(frozen=True, slots=True)
class DataLayout:
    """`names` of the columns in the table, `schema` in the files; `indexed`: those that have
    statistics; `marks`: bounds are said to be tight.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    indexed: tuple[str, ...]
    marks: bool
    codec: str

    @property
    def text(self) -> str:
        """Of all that decides what a file holds of the same rows."""
        fields = [(f.name, str(f.type), str(f.metadata)) for f in self.schema]
        return json.dumps([fields, self.indexed, self.marks, self.codec])

    def file_name(self, unique: uuid.UUID) -> str:
        return f"part-00000-{unique}-c000.{self.codec}.parquet"


def data_layout(
    types: Mapping[str, pa.DataType],
    *,
    properties: Mapping[str, str],
    mapped: Mapping[str, MappedColumn] = MappingProxyType({}),
    bounded: Iterable[str] = (),
    codec: str = CODEC,
) -> DataLayout:
    """`mapped`: names and ids of columns in the files, if the table has column mapping;
    `properties`: how many columns have statistics, and whether bounds are said to be tight;
    `bounded`: columns that have statistics in any case.
    """
    fields = {name: _field(name, kind, mapped.get(name)) for name, kind in types.items()}
    indexed_columns = int(properties.get(_INDEXED_PROPERTY, _INDEXED_COLUMNS))
    named = [*list(types)[: indexed_columns if indexed_columns >= 0 else None], *bounded]
    return DataLayout(
        names=tuple(types),
        schema=pa.schema(list(fields.values())),
        indexed=tuple(dict.fromkeys(fields[name].name for name in named)),
        marks=properties.get("delta.enableDeletionVectors") == "true",
        codec=codec,
    )


def _field(name: str, kind: pa.DataType, mapped: MappedColumn | None) -> pa.Field:
    if mapped is None:
        return pa.field(name, kind)
    return pa.field(mapped.name, kind, metadata={"PARQUET:field_id": str(mapped.id)})


def write_data_files(
    folder: Path, pieces: Iterable[pa.Table], layout: DataLayout
) -> list[dict[str, Any]]:
    """The ``add`` actions of new files; `pieces` have columns in any order, which cast to the
    layout's. Raises pa.ArrowInvalid: a value does not fit; OSError, SinkError: the file system is
    full.
    """
    added: list[dict[str, Any]] = []
    writer: DataFileWriter | None = None
    try:
        for piece in pieces:
            if not len(piece):
                continue
            if writer is None:
                path = folder / layout.file_name(uuid.uuid4())
                writer = DataFileWriter(CountingFile(path), layout)
            writer.write(piece)
            if writer.size_bytes >= FILE_BYTES:
                added.append(_closed(writer))
                writer = None
        if writer is not None:
            added.append(_closed(writer))
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    return added


def _closed(writer: DataFileWriter) -> dict[str, Any]:
    statistics = writer.end()
    return add_action(writer.path.name, writer.size_bytes, statistics)


def add_action(name: str, size_bytes: int, statistics: str) -> dict[str, Any]:
    return {
        "path": name,
        "partitionValues": {},
        "size": size_bytes,
        "modificationTime": int(time.time() * 1000),
        "dataChange": True,
        "stats": statistics,
    }


class DataFileWriter(RowGroupWriter):
    def __init__(self, file: CountingFile, layout: DataLayout) -> None:
        super().__init__(
            file,
            layout.schema,
            group_bytes=_ROW_GROUP_BYTES,
            group_rows=_ROW_GROUP_ROWS,
            compression=layout.codec,
            compression_level=1 if layout.codec == "zstd" else None,
            store_decimal_as_integer=True,
            store_schema=False,  # readers see plain Parquet, and no metadata of the schema's
        )
        self._layout = layout
        self._bounds = {name: _Bounds(self.schema.field(name).type) for name in layout.indexed}

    def write(self, table: pa.Table) -> None:
        renamed = table.select(list(self._layout.names)).rename_columns(self.schema.names)
        super().write(renamed.cast(self.schema))

    def end(self, *, is_told: bool = False) -> str:
        """The statistics; `is_told`: the file tells them and its layout (`told_statistics`)."""
        self._flush()
        statistics = self._statistics()
        told = {_LAYOUT_KEY: self._layout.text, _STATISTICS_KEY: statistics} if is_told else {}
        self._writer.add_key_value_metadata(_PROLEPTIC | told)
        self._end()
        return statistics

    def _put(self, group: pa.Table) -> None:
        super()._put(group)
        for name, bounds in self._bounds.items():
            bounds.take(group.column(name))

    def _statistics(self) -> str:
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
        tight = {"tightBounds": "true"} if self._layout.marks else {}
        return _object({"numRecords": str(self.rows), **parts, **tight})


def told_statistics(path: Path, layout: DataLayout) -> str | None:
    """Of a file that tells its own; None if it was written in another layout."""
    told = pq.read_metadata(storage_of(path).arrow_source(path)).metadata or {}
    if told.get(_LAYOUT_KEY.encode()) != layout.text.encode():
        return None
    statistics: bytes = told[_STATISTICS_KEY.encode()]
    return statistics.decode()


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
            value = value or (0.0 if up else -0.0)
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
