"""Tables in memory whose commits are objects of the lake's bucket: what `tests.support.memory_sink`
does, for several processes and through a store that fails.

A commit is the object of its version below the table's log, put if absent, as a Delta table has it;
it holds all commits up to its own, so that a reader needs the newest alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.storage.storage import storage_of
from tests.support.memory_sink import Commit, MemoryLake, MemoryTable

LOG = "_delta_log"


class _Commits(list[Commit]):
    """The commits of a table; one more is an object more."""

    def __init__(self, folder: Path, commits: list[Commit]) -> None:
        super().__init__(commits)
        self._folder = folder

    def append(self, commit: Commit) -> None:
        path = self._folder / LOG / f"{len(self):020d}.pickle"
        if not storage_of(path).put_if_absent(path, pickle.dumps([*self, commit])):
            raise LakeStateError(
                "another writer has made this version of the table",
                got=str(path),
                next_step="start the run again: it continues from the lake's own state",
            )
        super().append(commit)


class _StoredTables(MutableMapping[Path, MemoryTable]):
    """Tables by folder, each read when it is first asked for."""

    def __init__(self) -> None:
        self._read: dict[Path, MemoryTable] = {}

    def __getitem__(self, folder: Path) -> MemoryTable:
        if folder not in self._read:
            names = storage_of(folder).names(folder / LOG)
            if not names:
                raise KeyError(folder)
            newest = (folder / LOG / max(names)).read_bytes()
            commits: list[Commit] = pickle.loads(newest)
            self._read[folder] = MemoryTable(commits[-1].app_id, _Commits(folder, commits))
        return self._read[folder]

    def __setitem__(self, folder: Path, table: MemoryTable) -> None:
        made: Any = _Commits(folder, table.commits)
        table.commits = made
        self._read[folder] = table

    def __delitem__(self, folder: Path) -> None:
        self._read.pop(folder, None)
        storage_of(folder).remove_tree(folder)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def bucket_lake() -> MemoryLake:
    """The tables of a lake in a bucket, as a new process finds them."""
    tables: Any = _StoredTables()
    return MemoryLake(tables=tables)
