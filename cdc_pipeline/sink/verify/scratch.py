"""The scratch folder of one verification: source rows and keys as Parquet in the lake, where
executors can read them.

Rules:
- It lies at ``_cdc/<source>/verify/<id>/`` and is removed at the end; the next verification of the
  source removes what a killed one left (one at a time: `verify_lock`).
- Rows are shaped and masked here like those of a snapshot: what masks hide is never written (K14).
- Files have the layout of staged inserts (`sink/modes/expand.py`), so that the comparison reads
  what a batch reads.
- Memory is bounded: a file's rows are written group by group.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline.errors import LockError
from cdc_pipeline.lake.paths import LakePaths, remove_tree
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.staged_file import StagedFileWriter
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.modes.expand import StagedRows
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.registry import SINK_MODES


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
        scratch = Scratch(
            root / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}",
            paths.lake,
        )
        scratch.folder.mkdir(parents=True)
        yield scratch


@dataclass
class Scratch:
    folder: Path
    lake: Path
    _files: dict[str, list[Path]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _folders: int = 0

    def rows(self, name: str, target: RecordedTarget) -> ScratchRows:
        """Drops earlier files of this name."""
        self.drop(name)
        return ScratchRows(self, name, target)

    def files(self, name: str) -> list[Path]:
        return list(self._files.get(name, ()))

    def size_bytes(self, name: str) -> int:
        return self._sizes.get(name, 0)

    def count(self, name: str, size_bytes: int) -> None:
        self._sizes[name] = self._sizes.get(name, 0) + size_bytes

    def new_file(self, name: str) -> Path:
        """One more under a name."""
        files = self._files.setdefault(name, [])
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / storage_of(folder).unique(f"{len(files):06d}.parquet")
        files.append(path)
        return path

    def new_folder(self) -> Path:
        self._folders += 1
        return self.folder / f"found-{self._folders}"

    def drop(self, name: str) -> None:
        self._files.pop(name, None)
        self._sizes.pop(name, None)
        if (self.folder / name).is_dir():
            remove_tree(self.folder / name)

    def add_table(self, name: str, table: pa.Table) -> None:
        """A table of moderate size."""
        writer = StagedFileWriter(self.new_file(name), table.schema, key_columns=[])
        writer.write(table)
        writer.close(lake=self.lake)

    def add_touched(self, name: str, target: RecordedTarget, key: Sequence[str]) -> None:
        """Keep the keys (``k0 ...``) of every change that a recorded batch has staged; `key`
        names the columns that identify rows in the comparison.
        """
        positions = [
            [column.name for column in target.spec.columns].index(column) for column in key
        ]
        images = SINK_MODES[target.spec.mode].staged_images
        for staged in target.files:
            path = self.lake / staged.path
            with pq.ParquetFile(storage_of(path).arrow_source(path)) as file:
                there = set(file.schema_arrow.names)
                for image in images:
                    columns = [f"{image}{position}" for position in positions]
                    if not there.issuperset(columns):
                        continue
                    for group in range(file.num_row_groups):
                        keys: Any = file.read_row_group(group, columns=columns).select(columns)
                        self.add_table(
                            name, keys.rename_columns([f"k{at}" for at in range(len(key))])
                        )


class ScratchRows:
    def __init__(self, scratch: Scratch, name: str, target: RecordedTarget) -> None:
        self.rows = 0
        self._scratch = scratch
        self._name = name
        self._keys = Layout(target).keys
        self._writer: StagedFileWriter | None = None

    def write(self, staged: StagedRows) -> None:
        self.rows += staged.table.num_rows
        if self._writer is not None and self._writer.schema != staged.table.schema:
            self.close()
        if self._writer is None:
            path = self._scratch.new_file(self._name)
            self._writer = StagedFileWriter(path, staged.table.schema, key_columns=self._keys)
        self._writer.write(staged.table)

    def close(self) -> None:
        if self._writer is not None:
            self._scratch.count(self._name, self._writer.close(lake=self._scratch.lake).size_bytes)
            self._writer = None
