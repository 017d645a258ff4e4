"""One staged Parquet file: hashed while it is written, durable when closed (K2)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from contextlib import suppress
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


class RowGroupWriter:
    """A Parquet file under way, whose rows wait until a row group is full. `staged_bytes` counts
    what is written and what waits; the first rows say for which columns a dictionary pays.
    """

    def __init__(
        self,
        file: CountingFile,
        schema: pa.Schema,
        *,
        group_bytes: int,
        group_rows: int,
        **how: Any,
    ) -> None:
        """`how`: of `pq.ParquetWriter`."""
        self.path = file.path
        self.schema = schema
        self.rows = 0
        self._file = file
        self._group_bytes = group_bytes
        self._group_rows = group_rows
        self._how = how
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    @property
    def staged_bytes(self) -> int:
        return self.size_bytes + self._waiting_bytes

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._waiting_rows += table.num_rows
        self.rows += table.num_rows
        if self._waiting_bytes >= self._group_bytes or self._waiting_rows >= self._group_rows:
            self._flush()

    def discard(self) -> None:
        self._waiting.clear()
        with suppress(Exception):  # the first error is reported, not its consequences here
            self._writer.close()
            self._file.finish()
        self.path.unlink(missing_ok=True)

    @cached_property
    def _writer(self) -> pq.ParquetWriter:
        """Made when the first rows wait."""
        repeated = repeating(self.schema, self._waiting)
        file = pa.PythonFile(self._file, mode="w")
        return pq.ParquetWriter(file, self.schema, use_dictionary=repeated, **self._how)

    def _flush(self) -> None:
        if self._waiting:
            self._put(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0

    def _put(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=len(group))

    def _end(self) -> None:
        self._writer.close()
        self._file.finish()


class StagedFileWriter(RowGroupWriter):
    """An open staged file."""

    def __init__(self, path: Path, schema: pa.Schema, *, key_columns: list[str]) -> None:
        self._hashed = HashingFile(path)
        # Only the key's statistics are used later: they limit the MERGE to files that can hold the
        # keys.
        how = {"compression": "zstd", "compression_level": 1, "write_statistics": key_columns}
        super().__init__(
            self._hashed, schema, group_bytes=_ROW_GROUP_BYTES, group_rows=_ROW_GROUP_ROWS, **how
        )

    def close(self, *, lake: Path) -> StagedFile:
        self._flush()
        self._end()
        return recorded_file(self._hashed, rows=self.rows, lake=lake)


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
        self.path = path
        self._storage = storage_of(path)
        self._stream = self._storage.create(path)

    def _put(self, data: Any) -> None:
        with disk_errors(self.path):
            self._stream.write(data)

    def flush(self) -> None:
        with disk_errors(self.path):
            self._stream.flush()

    def finish(self) -> None:
        """Make the file whole and durable."""
        self._storage.finish(self._stream)


class HashingFile(CountingFile, HashedStream):
    """New file that is hashed while it is written."""


def recorded_file(file: HashingFile, *, rows: int, lake: Path) -> StagedFile:
    """As a batch's record names a file that is finished."""
    return StagedFile(
        path=file.path.relative_to(lake).as_posix(),
        size_bytes=file.size_bytes,
        rows=rows,
        sha256=file.hexdigest(),
    )


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
