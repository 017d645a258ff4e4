"""Rows that may be more than memory holds: then they lie on disk.

Rules:
- Nothing stays of a process that is killed: the files have no names (K14).
- Memory is bounded: rows that are too many to be held, alone or with the others of a `Spill`, are
  written, group by group. Rows that belong together are divided by a number (`Partitions`), and
  held part by part.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cdc_pipeline.errors import SinkError
from cdc_pipeline.lake.storage.file_failures import kind_of
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.sink.read.rows import SMALL_BYTES, SMALL_ROWS

_GROUP_BYTES: Final = 8 << 20
_GROUP_ROWS: Final = 128 << 10
_PARTITION_BYTES_MIN: Final = 256 << 10
_PARTITIONS_MAX: Final = 256


@dataclass
class Spill:
    """What some rows hold together, and where the rest lies: None: in the temporary folder."""

    folder: Path | None = None
    held_bytes_max: int = 2 * SMALL_BYTES
    held_bytes: int = 0

    @classmethod
    def beside(cls, state: Path) -> Spill:
        """On the disk of a lake, or in the temporary folder if it is in a bucket."""
        return cls(None if is_object(state) else state)

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            folder = self.folder or tempfile.tempdir or "the temporary folder"
            kind = kind_of(error) if isinstance(error, OSError) else SinkError
            raise kind(
                f"rows cannot be sorted on disk, in {folder}",
                got=f"{type(error).__name__}: {error}",
                next_step="free disk space there"
                + (", or export TMPDIR=... and start again" if self.folder is None else ""),
            ) from error


class _Stream:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self.file, self.schema = file, schema
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_stream(file, schema, options=options)

    def write(self, rows: pa.Table) -> None:
        self.file.seek(0, os.SEEK_END)  # it may have been read
        self._writer.write_table(rows.combine_chunks(), _GROUP_ROWS)


class StoredRows:
    """In memory (`tables`) while they are few, else in files. Each reads them to their end."""

    def __init__(self, spill: Spill, *, group_bytes: int = _GROUP_BYTES) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._spill = spill
        self._group_bytes = group_bytes
        self._tables: list[pa.Table] = []
        self._held_bytes = 0
        self._streams: list[_Stream] = []  # one for each schema of the rows

    def __del__(self) -> None:
        self._let_go()

    @property
    def tables(self) -> list[pa.Table] | None:
        return None if self._streams else self._tables

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        self.size_bytes += table.nbytes
        self._tables.append(table)
        self._hold(table.nbytes)
        if self._streams:
            is_full = self._held_bytes > self._group_bytes
        else:
            is_full = (
                self.rows > SMALL_ROWS
                or self.size_bytes > SMALL_BYTES
                or self._spill.held_bytes > self._spill.held_bytes_max
            )
        if is_full:
            self._write()

    def batches(self) -> Iterator[pa.Table]:
        """All rows, some at a time. Raises SinkError: the disk fails."""
        if self._streams:
            self._write()
        yield from self._tables
        for stream in self._streams:
            with self._spill.errors():
                stream.file.seek(0)
                for batch in pa.ipc.open_stream(stream.file):
                    yield pa.Table.from_batches([batch])

    def discard(self) -> None:
        self._let_go()
        for stream in self._streams:
            stream.file.close()
        self._streams = []

    def _write(self) -> None:
        with self._spill.errors():
            for schema, tables in groupby(self._tables, lambda table: table.schema):
                if not self._streams or self._streams[-1].schema != schema:
                    file = TemporaryFile(dir=self._spill.folder)  # noqa: SIM115
                    self._streams.append(_Stream(file, schema))
                self._streams[-1].write(pa.concat_tables(tables))
        self._let_go()

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._spill.held_bytes += size_bytes

    def _let_go(self) -> None:
        self._hold(-self._held_bytes)
        self._tables = []


class Partitions:
    """Rows in parts by a number of theirs, each of which is held in its turn."""

    def __init__(self, spill: Spill, count: int, *, group_bytes: int | None = None) -> None:
        if group_bytes is None:
            group_bytes = max(_PARTITION_BYTES_MIN, _GROUP_BYTES * 8 // count)
        self.parts = [StoredRows(spill, group_bytes=group_bytes) for _ in range(count)]

    def add(self, rows: pa.Table, numbers: NDArray[Any]) -> None:
        if len(self.parts) == 1:
            self.parts[0].add(rows)
            return
        places = (numbers.astype(np.uint64) % np.uint64(len(self.parts))).astype(np.int64)
        order = np.argsort(places, kind="stable")
        sorted_rows = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(places, minlength=len(self.parts))).tolist()
        for part, begin, end in zip(self.parts, [0, *ends], ends, strict=False):
            if end > begin:
                part.add(sorted_rows.slice(begin, end - begin))

    def tables(self) -> Iterator[list[pa.Table]]:
        """Of each part, which is removed after it."""
        for part in self.parts:
            yield list(part.batches())
            part.discard()


def partition_count(rows: int, size_bytes: int) -> int:
    """So many that each can be held."""
    count = 1 + max(rows // SMALL_ROWS, size_bytes // SMALL_BYTES)
    return min(count, _PARTITIONS_MAX)
