"""One staged Parquet file: hashed while it is written, durable when closed (K2)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.errors import StagingError
from cdc_pipeline.lake.records import StagedFile
from cdc_pipeline.lake.storage.storage import disk_errors, storage_of
from cdc_pipeline.position.cursor import XaFile

_ROW_GROUP_BYTES: Final = 8 << 20
_ROW_GROUP_ROWS: Final = 128 << 10
_SAMPLE_ROWS: Final = 10_000
# distinct values among the sampled ones, below which a dictionary pays
_REPEATED_MAX: Final = 0.3


class StagedFileWriter:
    """An open staged file. `staged_bytes` counts what is written and what waits."""

    def __init__(self, path: Path, schema: pa.Schema, *, key_columns: list[str]) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0
        self._sink = _HashingFile(path)
        self._key_columns = key_columns

    @property
    def staged_bytes(self) -> int:
        return self._sink.size_bytes + self._waiting_bytes

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._waiting_rows += table.num_rows
        self.rows += table.num_rows
        if self._waiting_bytes >= _ROW_GROUP_BYTES or self._waiting_rows >= _ROW_GROUP_ROWS:
            self._flush()

    def close(self, *, lake: Path) -> StagedFile:
        self._flush()
        self._writer.close()
        self._sink.finish()
        return StagedFile(
            path=self.path.relative_to(lake).as_posix(),
            size_bytes=self._sink.size_bytes,
            rows=self.rows,
            sha256=self._sink.hexdigest(),
        )

    def discard(self) -> None:
        self._waiting.clear()
        self._writer.close()
        self._sink.finish()
        self.path.unlink()

    @cached_property
    def _writer(self) -> pq.ParquetWriter:
        """Made when the first rows wait: they say for which columns a dictionary pays."""
        # Only the key's statistics are used later: they limit the MERGE to files that can hold the
        # keys.
        return pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            self.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=repeating(self.schema, self._waiting),
            write_statistics=self._key_columns,
        )

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(
                pa.concat_tables(self._waiting), row_group_size=self._waiting_rows
            )
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0


def repeating(schema: pa.Schema, first: list[pa.Table]) -> list[str]:
    """The columns in whose first rows values repeat so often that a dictionary saves more than it
    costs."""
    if not first:
        return []
    sample = pa.concat_tables(first).slice(0, _SAMPLE_ROWS)
    return [
        name
        for name, column in zip(schema.names, sample.columns, strict=True)
        if pa.types.is_dictionary(column.type)
        or (
            not (pa.types.is_boolean(column.type) or pa.types.is_nested(column.type))
            and pc.count_distinct(column, mode="all").as_py() < _REPEATED_MAX * len(sample)
        )
    ]


class _CountedStream(ABC):
    """New binary file as an Arrow writer sees it; counts the bytes."""

    closed = False

    def __init__(self) -> None:
        self.size_bytes = 0

    @abstractmethod
    def _put(self, data: Any) -> None:
        """Write bytes."""

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._put(data)
        self.size_bytes += count
        return count

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:  # noqa: B027  (nothing to do)
        """Do nothing: the data is flushed when the file is finished."""

    def writable(self) -> bool:
        return True

    def close(self) -> None:  # noqa: B027  (nothing to do)
        """Do nothing when Arrow closes it: the file itself is closed when it is finished."""


class HashedStream(_CountedStream):
    """The same, with a hash of the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return super().write(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class CountingFile(_CountedStream):
    """New file as an Arrow writer sees it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._storage = storage_of(path)
        self._stream = self._storage.create(path)

    def _put(self, data: Any) -> None:
        with disk_errors(self._path):
            self._stream.write(data)

    def flush(self) -> None:
        with disk_errors(self._path):
            self._stream.flush()

    def finish(self) -> None:
        """Make the file whole and durable."""
        self._storage.finish(self._stream)


class _HashingFile(CountingFile, HashedStream):
    """New file that is hashed while it is written."""


def verify(
    file: StagedFile | XaFile,
    *,
    lake: Path,
    table: str,
    what: str = "a staged file of a recorded batch is",
    next_step: str = "start the run again: the batch is finished without this table, which then "
    "reads the log again",
) -> Path:
    """The path of a file, after checking its size and checksum. Raises StagingError: it is missing
    or differs.
    """
    path = lake / file.path
    try:
        size_bytes, digest = storage_of(path).digest(path)
    except OSError as error:
        size_bytes, digest = -1, f"{type(error).__name__}: {error.strerror}"
    if (size_bytes, digest) != (file.size_bytes, file.sha256):
        raise StagingError(
            f"{what} missing or damaged: {file.path}",
            table=table,
            expected=f"{file.size_bytes} bytes, sha256 {file.sha256}",
            got=f"{size_bytes} bytes, sha256 {digest}" if size_bytes >= 0 else digest,
            next_step=next_step,
        )
    return path
