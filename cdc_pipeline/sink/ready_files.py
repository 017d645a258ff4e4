"""Rows staged as the target's own data files: no Spark writes them, and none reads them before somebody asks (K12).

For rows of which an exact mirror has none, a staged file and a data file of the table differ in nothing but names of
columns. So the file that is staged is written as Delta would write it, and a commit takes it into the table.

Rules:
- Only inserts, whole, into an exact mirror whose columns come as they are staged: no computed columns, filters,
  partitions or clustering (`is_ready`). Where the table turns out to be another (`why_not_taken`: column mapping, or
  what its owner has switched on), Spark appends the same rows.
- The layout is Spark's: INT64 microseconds, decimals of up to 18 digits as integers, zstd. A column that a file does
  not have is NULL in Delta.
- Statistics say what Delta's own would: rows, nulls, lowest and highest value of the first 32 columns. Bounds are true
  for every row, and the row's own but for long texts (32 characters) and times (milliseconds): a highest value is
  rounded up. A column with NaN has none: Spark's order has it above all, Parquet's nowhere.
- A name holds a UUID. The file gets it in the table's folder (`Storage.share`) before the commit; a crash in between
  leaves a file that the rerun commits.

Source: Delta's protocol, "Per-file Statistics"; Parquet format, "Logical Types".
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.sink.delta_commit import TableCommit
from cdc_pipeline.sink.expand import INSERT, StagedRows
from cdc_pipeline.sink.manifest import ReadyFile, RecordedTarget
from cdc_pipeline.sink.merge_settings import MergeSettings
from cdc_pipeline.sink.mode_columns import CDC_COLUMNS, OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.sql import quoted
from cdc_pipeline.sink.staged_file import HashingFile
from cdc_pipeline.sink.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.sink.staging import TargetPlan

FILE_BYTES_MAX: Final = 512 << 20
_ROW_GROUP_BYTES: Final = 64 << 20
_ROW_GROUP_ROWS: Final = 1 << 20
# What a table may have switched on by its owner that files of ours would not keep up.
_WRITTEN_BY_DELTA: Final = re.compile(
    r"delta\.(columnMapping\.mode|enableRowTracking|enableChangeDataFeed|constraints\..*|enableIcebergCompat.*"
    r"|universalFormat.*)"
)
_INDEXED_COLUMNS: Final = 32  # delta.dataSkippingNumIndexedCols
_TEXT_CHARACTERS: Final = 32
_LAST_CHARACTER: Final = "\U0010ffff"


def is_ready(plan: TargetPlan, staged: StagedRows) -> bool:
    """Whether staged rows can be the target's own as they are."""
    shape = plan.shape
    is_plain = shape is None or not (shape.computed or shape.filter or shape.partition_by or shape.cluster_by)
    only_inserts = not (staged.rows_updated or staged.rows_deleted or staged.partial)
    return plan.mode == "mirror" and bool(plan.key) and plan.exact and is_plain and only_inserts


def ready_rows(staged: StagedRows, plan: TargetPlan) -> pa.Table:
    """Staged inserts under the target's own names."""
    table = staged.table
    columns = {
        column.name: table.column(f"c{at}") for at, column in enumerate(plan.columns) if f"c{at}" in table.column_names
    }
    assert pc.all(pc.equal(table.column("_op"), INSERT)).as_py() is not False
    operation = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int8), pa.array(["insert"]))
    columns |= {OP_COLUMN: operation, SEQ_COLUMN: table.column("_seq"), TS_COLUMN: table.column("_ts")}
    return pa.table(columns)


@dataclass
class ReadyParts:
    """The ready files of one target in a batch under way."""

    closed: list[ReadyFile] = field(default_factory=list)
    _full: list[_ReadyWriter] = field(default_factory=list)
    _writer: _ReadyWriter | None = None
    _rows: int = 0

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def staged_bytes(self) -> int:
        under_way = [*self._full, *([self._writer] if self._writer else [])]
        return sum(file.size_bytes for file in self.closed) + sum(writer.staged_bytes for writer in under_way)

    def write(self, rows: pa.Table, folder: Path) -> None:
        """Add rows of the target's layout; files lie in `folder`."""
        writer = self._writer
        if writer is not None and (writer.schema != rows.schema or writer.staged_bytes >= FILE_BYTES_MAX):
            self._full.append(writer)
            writer.end()
            writer = None
        if writer is None:
            writer = self._writer = _ReadyWriter(folder / f"part-{uuid.uuid4()}.zstd.parquet", rows.schema)
        writer.write(rows)
        self._rows += len(rows)

    def close(self, *, lake: Path) -> None:
        """Finish the files, durably; their paths are those relative to the lake."""
        if self._writer is not None:
            self._writer.end()
            self._full.append(self._writer)
        self.closed += [writer.file(lake=lake) for writer in self._full]
        self._writer, self._full = None, []


class _ReadyWriter:
    """One file under way."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self._path = path
        self._rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._with_nan: set[str] = set()
        self._floats = [column.name for column in schema if pa.types.is_floating(column.type)]
        self._sink = HashingFile(path)
        self._sha256 = ""
        self._written: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            schema,
            compression="zstd",
            compression_level=1,
            store_decimal_as_integer=True,
            store_schema=False,
            metadata_collector=self._written,
        )

    @property
    def staged_bytes(self) -> int:
        return self._sink.size_bytes + self._waiting_bytes

    def write(self, rows: pa.Table) -> None:
        for name in self._floats:
            if pc.any(pc.is_nan(rows.column(name))).as_py():
                self._with_nan.add(name)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._waiting_rows += len(rows)
        self._rows += len(rows)
        if self._waiting_bytes >= _ROW_GROUP_BYTES or self._waiting_rows >= _ROW_GROUP_ROWS:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._writer.close()
        self._sha256 = self._sink.finish()

    def file(self, *, lake: Path) -> ReadyFile:
        return ReadyFile(
            path=self._path.relative_to(lake).as_posix(),
            size_bytes=self._sink.size_bytes,
            rows=self._rows,
            sha256=self._sha256,
            statistics=statistics_of(self._written[0], self.schema, without_bounds=self._with_nan),
        )

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._waiting_rows)
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0


# -- into the table ---------------------------------------------------------------------------------------------------


def why_not_taken(metadata: Mapping[str, Any]) -> str:
    """Why a table cannot have files as they were staged; "" where it can.

    Args:
        metadata: as its log has it.
    """
    said = metadata.get("configuration", {})
    odd = [name for name, value in said.items() if value not in ("false", "none") and _WRITTEN_BY_DELTA.fullmatch(name)]
    if odd:
        return f"Delta's own writer keeps up {', '.join(sorted(odd))}"
    if metadata.get("partitionColumns"):
        return "the table has partitions"
    if "delta.generationExpression" in metadata["schemaString"] or "delta.identity." in metadata["schemaString"]:
        return "the table has columns that Delta computes"
    return ""


def take_ready(
    session: SparkSession,
    path: Path,
    target: RecordedTarget,
    files: list[Path],
    *,
    settings: MergeSettings,
    app_id: str,
    version: int,
) -> None:
    """Commit the ready files of a target under the transaction id `version`; `files` are where they were staged."""
    settings.small_batch()
    commit = TableCommit(session, path)
    if commit.transaction_version(app_id) >= version:
        return
    metadata = commit.metadata
    assert metadata is not None
    if why_not_taken(metadata):
        settings.large_batch(sum(file.size_bytes for file in target.ready_files))
        columns = [*target.columns, *CDC_COLUMNS]
        schema = ", ".join(f"{quoted(column.name)} {column.delta_type}" for column in columns)
        commit.append(session.read.schema(schema).parquet(*[str(file) for file in files]))
        settings.small_batch()
    else:
        storage = storage_of(path)
        for file in files:
            storage.share(file, path / file.name)
        storage.make_durable(path)
        commit.adopt(
            [
                {"path": at.name, "partitionValues": {}, "size": file.size_bytes, "stats": file.statistics}
                for at, file in zip(files, target.ready_files, strict=True)
            ]
        )
    commit.commit(app_id=app_id, version=version)


# -- statistics -------------------------------------------------------------------------------------------------------


def statistics_of(written: pq.FileMetaData, schema: pa.Schema, *, without_bounds: set[str]) -> str:
    """Delta's statistics of a file, JSON, from its footer.

    Args:
        schema: of the rows that it holds.
        without_bounds: columns whose bounds in the footer do not hold for every value.
    """
    lows: dict[str, str] = {}
    highs: dict[str, str] = {}
    nulls: dict[str, str] = {}
    leaf = 0
    for column in list(schema)[:_INDEXED_COLUMNS]:
        leaves = _leaves(column.type)
        if not pa.types.is_nested(column.type):
            found = [written.row_group(group).column(leaf).statistics for group in range(written.num_row_groups)]
            if all(group is not None and group.has_null_count for group in found):
                nulls[column.name] = str(sum(group.null_count for group in found))
                bounds = _bounds(found, column.type) if column.name not in without_bounds else None
                if bounds is not None:
                    lows[column.name], highs[column.name] = bounds
        leaf += leaves
    parts = {"minValues": _object(lows), "maxValues": _object(highs), "nullCount": _object(nulls)}
    return _object({"numRecords": str(written.num_rows), **parts, "tightBounds": "true"})


def _bounds(groups: list[Any], kind: pa.DataType) -> tuple[str, str] | None:
    """Lowest and highest value as JSON; None where there is none, or where they are not known."""
    held = [group for group in groups if group.num_values]
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not held or not all(group.has_min_max for group in held):
        return None
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return None
    low, high = _text(min(group.min for group in held), is_high=False), _text(max(group.max for group in held), True)
    return None if low is None or high is None else (low, high)


def _text(value: object, is_high: bool) -> str | None:
    """A bound as Delta's log has it."""
    if isinstance(value, str):
        return json.dumps(_shortened(value, is_high), ensure_ascii=False)
    if isinstance(value, datetime):
        return _moment(value, is_high)
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return repr(value) if abs(value) != float("inf") else None
    return str(value) if isinstance(value, int) else None


def _shortened(text: str, is_high: bool) -> str:
    if len(text) <= _TEXT_CHARACTERS:
        return text
    if not is_high:
        return text[:_TEXT_CHARACTERS]
    end = _TEXT_CHARACTERS
    while end < len(text) and text[end] == _LAST_CHARACTER:  # nothing is above it
        end += 1
    return text if end == len(text) else text[:end] + _LAST_CHARACTER


def _moment(value: datetime, is_high: bool) -> str | None:
    over_us = value.microsecond % 1000
    if over_us and is_high:
        try:
            value += timedelta(microseconds=1000 - over_us)
        except OverflowError:  # the last moment that there is
            return None
    zone = "" if value.tzinfo is None else "Z"
    return f'"{value.replace(tzinfo=None).isoformat(timespec="milliseconds")}{zone}"'


def _leaves(kind: pa.DataType) -> int:
    """Columns of a Parquet file that a column takes."""
    if pa.types.is_dictionary(kind) or not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members.items()) + "}"
