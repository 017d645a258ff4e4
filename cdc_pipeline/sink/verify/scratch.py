"""The scratch folder of one verification: rows and keys as Parquet in the lake, where executors can
read and write them.

Rules:
- It lies at ``_cdc/<source>/verify/<id>/`` and is removed at the end; the next verification of the
  source removes what a killed one left (one at a time: `verify_lock`). What only this process reads
  lies on its own disk, if the lake is in an object store.
- Rows are shaped and masked here like those of a snapshot: what masks hide is never written (K14).
- Rows of the source have the layout of staged inserts (`sink/modes/expand.py`), so that the
  comparison reads what a batch reads.
- Memory is bounded: rows that are too many to be held for a comparison, alone or with the others
  that are held, are written, group by group. Rows that belong together are divided by a hash
  (`Partitions`), and held part by part.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cdc_pipeline.errors import LockError
from cdc_pipeline.lake.paths import LakePaths, remove_tree
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.staged_file import CountingFile, RowGroupWriter
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.read.rows import SMALL_BYTES, SMALL_ROWS

# Of all rows that one verification holds: many source tables may share a target.
_HELD_BYTES_MAX: Final = 2 * SMALL_BYTES
_GROUP_BYTES: Final = 8 << 20
_GROUP_ROWS: Final = 128 << 10
_PARTITION_BYTES_MIN: Final = 256 << 10
_PARTITIONS_MAX: Final = 256


def _nobody() -> None:
    """When the lock is lost: a verification only reads the lake's tables."""


@contextmanager
def verify_lock(paths: LakePaths) -> Iterator[Scratch]:
    """With an empty scratch folder. Raises LockError: another is under way; RuntimeSetupError."""
    root = paths.state / "verify"
    with ExitStack() as stack:
        try:
            stack.enter_context(writer_lock(paths.state / "verify.lock", on_lost=_nobody))
        except LockError as error:
            error.what = "another verification of this source is under way"
            raise
        remove_tree(root)
        stack.callback(remove_tree, root)
        yield stack.enter_context(_new(root, paths.lake))


@contextmanager
def check_scratch(paths: LakePaths) -> Iterator[Scratch]:
    """For what is no verification, and needs no lock."""
    with _new(paths.state / "verify", paths.lake) as scratch:
        yield scratch


@contextmanager
def _new(root: Path, lake: Path) -> Iterator[Scratch]:
    name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
    scratch = Scratch(root / name, lake)
    try:
        yield scratch
    finally:
        scratch.close()


@dataclass
class Scratch:
    folder: Path
    lake: Path
    held_bytes: int = 0
    _numbers: Iterator[int] = field(default_factory=count)
    _own_disk: tempfile.TemporaryDirectory[str] | None = None

    def rows(self) -> StoredRows:
        return StoredRows(self, self.new_folder(), _GROUP_BYTES)

    def own_rows(self, *, group_bytes: int = _GROUP_BYTES) -> StoredRows:
        """That only this process reads."""
        folder = self.new_folder()
        if is_object(folder):
            if self._own_disk is None:
                self._own_disk = tempfile.TemporaryDirectory(prefix="cdc-verify-")
            folder = Path(self._own_disk.name) / folder.name
        return StoredRows(self, folder, group_bytes)

    def close(self) -> None:
        remove_tree(self.folder)
        if self._own_disk is not None:
            self._own_disk.cleanup()

    def clear(self) -> None:
        remove_tree(self.folder)
        self.held_bytes = 0

    def new_folder(self) -> Path:
        return self.folder / str(next(self._numbers))


class _RowsWriter(RowGroupWriter):
    """No record names these files: none is hashed, and nothing asks for statistics."""

    def __init__(self, path: Path, schema: pa.Schema, group_bytes: int) -> None:
        how = {"compression": "zstd", "compression_level": 1, "write_statistics": False}
        file = CountingFile(path)
        super().__init__(file, schema, group_bytes=group_bytes, group_rows=_GROUP_ROWS, **how)

    def close(self) -> None:
        self._flush()
        self._end()


class StoredRows:
    """Rows, in memory (`tables`) while they are few, else in files."""

    def __init__(self, scratch: Scratch, folder: Path, group_bytes: int) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._scratch = scratch
        self._group_bytes = group_bytes
        self._folder = folder
        self._lake = scratch.lake
        self._tables: list[pa.Table] = []
        self._files: list[Path] = []
        self._writer: _RowsWriter | None = None

    @property
    def tables(self) -> list[pa.Table] | None:
        return None if self._files else self._tables

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        self.size_bytes += table.nbytes
        self._tables.append(table)
        self._scratch.held_bytes += table.nbytes
        if (
            self._files
            or self.rows > SMALL_ROWS
            or self.size_bytes > SMALL_BYTES
            or self._scratch.held_bytes > _HELD_BYTES_MAX
        ):
            self._write()

    def batches(self) -> Iterator[pa.Table]:
        """All rows, some at a time."""
        if not self._files:
            yield from self._tables
            return
        for path in self.files():
            with pq.ParquetFile(storage_of(path).arrow_source(path)) as file:
                for batch in file.iter_batches(_GROUP_ROWS):
                    yield pa.Table.from_batches([batch])

    def files(self) -> list[Path]:
        """All rows are in files from then on."""
        self._write()
        self._close()
        return self._files

    def take_files(self, folder: Path) -> pa.Schema:
        """Those that Spark has written; return their schema."""
        self._folder, schema = folder, pa.schema([])
        files = storage_of(folder).files(folder)
        self._files = [path for path in files if path.suffix == ".parquet" and path.name[0] != "."]
        for path in self._files:
            with pq.ParquetFile(storage_of(path).arrow_source(path)) as file:
                self.rows += file.metadata.num_rows
                self.size_bytes += path.stat().st_size
                schema = file.schema_arrow
        return schema

    def discard(self) -> None:
        self._let_go()
        if self._files:
            self._close()
            remove_tree(self._folder)

    def add_touched(self, target: RecordedTarget, key: Sequence[str]) -> None:
        """The keys (``k0 ...``) of every change that a recorded batch has staged; `key` names the
        columns that identify rows in the comparison.
        """
        names = [column.name for column in target.spec.columns]
        for staged in target.files:
            path = self._lake / staged.path
            with pq.ParquetFile(storage_of(path).arrow_source(path)) as file:
                there = set(file.schema_arrow.names)
                for image in SINK_MODES[target.spec.mode].staged_images:
                    columns = [f"{image}{names.index(name)}" for name in key]
                    if not there.issuperset(columns):
                        continue
                    for group in range(file.num_row_groups):
                        keys: Any = file.read_row_group(group, columns=columns).select(columns)
                        self.add(keys.rename_columns([f"k{at}" for at in range(len(key))]))

    def _write(self) -> None:
        for table in self._tables:
            if self._writer is not None and self._writer.schema != table.schema:
                self._close()
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                name = storage_of(self._folder).unique(f"{len(self._files):06d}.parquet")
                self._files.append(self._folder / name)
                self._writer = _RowsWriter(self._files[-1], table.schema, self._group_bytes)
            self._writer.write(table)
        self._let_go()

    def _let_go(self) -> None:
        self._scratch.held_bytes -= sum(table.nbytes for table in self._tables)
        self._tables = []

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Partitions:
    """Rows in `count` parts by a hash of theirs, each of which is held in its turn."""

    def __init__(self, scratch: Scratch, count: int) -> None:
        group_bytes = max(_PARTITION_BYTES_MIN, _GROUP_BYTES * 8 // count)
        self._parts = [scratch.own_rows(group_bytes=group_bytes) for _ in range(count)]

    def add(self, rows: pa.Table, hashes: NDArray[np.uint64]) -> None:
        if len(self._parts) == 1:
            self._parts[0].add(rows)
            return
        places = (hashes % np.uint64(len(self._parts))).astype(np.int64)
        order = np.argsort(places, kind="stable")
        sorted_rows = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(places, minlength=len(self._parts))).tolist()
        for part, begin, end in zip(self._parts, [0, *ends], ends, strict=False):
            if end > begin:
                part.add(sorted_rows.slice(begin, end - begin))

    def tables(self) -> Iterator[list[pa.Table]]:
        """Of each part, which is removed after it."""
        for part in self._parts:
            yield list(part.batches())
            part.discard()


def partition_count(rows: int, size_bytes: int) -> int:
    """So many that each can be held."""
    count = 1 + max(rows // SMALL_ROWS, size_bytes // SMALL_BYTES)
    return min(count, _PARTITIONS_MAX)
