"""The rows of one version of a table, part by part: read here, or by Spark where only Spark can."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.errors import SparkNeededError
from cdc_pipeline.sink.delta.failures import reading_failed
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.read.read import old_frame
from cdc_pipeline.sink.read.rows import SMALL_BYTES, open_rows, read_errors, values_within
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import quoted
from cdc_pipeline.sink.verify.scratch import Scratch, StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartSpark: TypeAlias = "Callable[[], SparkSession] | None"
Values: TypeAlias = tuple[str, pa.Array]

_BATCH_ROWS: Final = 64, 65_536
_BATCH_BYTES: Final = 8 << 20
_SMALL_BATCH_ROWS: Final = 2048  # a dictionary's few bytes can stand for many


@dataclass(frozen=True)
class VersionRows:
    """`rows`, if known, and `size_bytes` of its files: also of rows that are not read."""

    schema: pa.Schema
    rows: int | None
    size_bytes: int
    _read: Callable[[Collection[str]], Iterator[pa.Table]]

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
        """Of all columns, or these. Raises LakeStateError: a file is gone or damaged."""
        return self._read(self.schema.names if columns is None else columns)


def version_rows(
    start: StartSpark,
    scratch: Scratch,
    path: Path,
    version: int,
    *,
    table: str,
    columns: Collection[str],
    values: Values | None = None,
) -> VersionRows:
    """The columns of these names that there are; `values`: only the rows that have one of them in
    this column. Raises LakeStateError: files are gone or damaged; SparkNeededError: only Spark
    reads the table, and may not start; MergeError: Spark failed.
    """
    state = readable_state(path, version)
    try:
        opened = open_rows(path, state, columns=columns, filters=values_within(values))
    except SparkNeededError:
        if start is None:
            raise
        return _read_by_spark(start, scratch, path, version, table, columns, values)
    rows, size_bytes = opened.known_size()
    batch_rows = _SMALL_BATCH_ROWS
    if size_bytes > SMALL_BYTES:
        few = _BATCH_BYTES * (rows or 0) // size_bytes
        batch_rows = min(max(few, _BATCH_ROWS[0]), _BATCH_ROWS[1])

    def read(of: Collection[str]) -> Iterator[pa.Table]:
        with read_errors(table):
            for part in opened.only(of).batches(batch_rows):
                yield _chosen(part, values)

    return VersionRows(opened.schema, rows, size_bytes, read)


def _read_by_spark(
    start: Callable[[], SparkSession],
    scratch: Scratch,
    path: Path,
    version: int,
    table: str,
    columns: Collection[str],
    values: Values | None,
) -> VersionRows:
    try:
        session = new_session(start())
        frame: Any = old_frame(session, path, version)
        names = [name for name in frame.columns if name in columns]
        listed = [quoted(name) for name in names]
        frame = frame.select(*listed).toDF(*(f"n{at}" for at in range(len(names))))
        stored, schema = written_by_spark(session, frame, scratch)
    except Exception as error:
        what = "Spark could not read the table for a comparison"
        raise reading_failed(error, table=table, what=what) from None

    def read(of: Collection[str]) -> Iterator[pa.Table]:
        with read_errors(table):
            for part in stored.batches():
                rows = part.rename_columns(names)
                yield _chosen(rows, values).select([name for name in names if name in of])

    return VersionRows(_renamed(schema, names), stored.rows, stored.size_bytes, read)


def written_by_spark(
    session: SparkSession, frame: Any, scratch: Scratch
) -> tuple[StoredRows, pa.Schema]:
    """What Spark has read, in files that are read here."""
    # Spark's own form of a timestamp holds no year before 1678.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    stored, folder = scratch.rows(), scratch.new_folder()
    frame.write.parquet(str(folder))
    return stored, stored.take_files(folder)


def _renamed(schema: pa.Schema, names: list[str]) -> pa.Schema:
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def _chosen(rows: pa.Table, values: Values | None) -> pa.Table:
    if values is None:
        return rows
    return rows.filter(pc.is_in(rows.column(values[0]), value_set=values[1]))
