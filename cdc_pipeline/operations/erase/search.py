"""Prove by reading that the newest versions of a source's tables lack what was erased or masked,
name what may hold it otherwise, and remove that at once.

Rules:
- Every file of a newest version is read once, with the rows that deletion vectors mark, and each
  row is looked at. What cannot be read may hold what is sought.
- Other files of a table's folder, of older versions or of none, are not read but named: they may
  have other columns, types and masks. So are logs before the first version without it: bounds of a
  column are cut off, are of one column of a key alone, and stay in commits and checkpoints.
- What passes with a retention passes so long after it left the newest version, whenever it is read.
- Only such files are removed, under the locks of both writer and maintenance, and older cuts before
  them. Logs go with their retention alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.erasures import Held
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    VERSION_NAME,
)
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.delta.table_log import SOURCE_PROPERTY, TABLE_PROPERTY, read_table_log
from cdc_pipeline.sink.read.rows import open_rows

_STATE: Final = ("staging", "operations")
_DAY_US: Final = 86_400_000_000  # a full vacuum, which lists folders, needs such a retention


@dataclass
class Sought:
    """`what`: in words, of rows; `count`: how many of some rows, with its `columns`, hold it in
    either image; `names`: of tables that may hold it beside the targets; `advice`: what is done
    about them; `since_us`: when it left the newest versions; `versions`: of tables, the first
    without it.
    """

    what: str
    columns: Callable[[str], set[str]]
    count: Callable[[str, pa.Table], int]
    targets: Collection[str]
    names: Collection[str]
    advice: str
    since_us: int
    versions: dict[str, int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    files_read: int = 0


@dataclass
class Search:
    """`removable`: files that no newest version needs, and folders of partitions, deepest first.
    `counts`: rows of a version that was read, by table; no version is read twice.
    """

    paths: LakePaths
    sought: Sequence[Sought]
    retention_us: int
    removable: list[Path] = field(default_factory=list)
    removable_folders: list[Path] = field(default_factory=list)
    counts: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def run(self) -> Search:
        self.removable, self.removable_folders = [], []
        for one in self.sought:
            one.held, one.files_read = [], 0
        for name in sorted({name for one in self.sought for name in one.targets}):
            of_table = [one for one in self.sought if name in one.targets]
            try:
                self._table(name, of_table)
            except CdcError as error:
                why = f"it cannot be read: {error.what}"
                self._hold(of_table, "table", self.paths.table(name), why)
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                why = f"it cannot be read: {type(error).__name__}"
                self._hold(of_table, "table", self.paths.table(name), why)
        for one in self.sought:
            self._left_tables(one)
        for name in _STATE:
            folder = self.paths.state / name
            files = [one for one in storage_of(folder).files(folder) if one.parent != folder]
            if files := [one for one in files if not one.name.endswith(".lock")]:
                why = f"{len(files):,} files of work under way, or left by it"
                self._hold(self.sought, "state", folder, why)
        return self

    def _table(self, name: str, sought: Sequence[Sought]) -> None:
        folder = self.paths.table(name)
        state = readable_state(folder)
        active = {unquote(add["path"]) for add in state.adds.values()}
        self._others(folder, active, sought)
        versions = _log_versions(folder)
        for one in sought:
            first = one.versions.setdefault(name, state.version)
            if old := sum(version < first for version in versions):
                why = f"bounds of columns, in {old:,} older files of the log"
                self._hold([one], "log", folder / LOG_FOLDER, why, passes=True)
            one.files_read += len(active) if one.columns(name) else 0
        if (name, state.version) not in self.counts:
            self.counts[name, state.version] = [0] * len(sought)
            columns = set[str]().union(*(one.columns(name) for one in sought))
            opened = open_rows(folder, state, columns=columns).with_marked()
            for batch in opened.batches() if columns else ():
                rows = batch.combine_chunks()
                for at, one in enumerate(sought):
                    self.counts[name, state.version][at] += one.count(name, rows)
        for one, count in zip(sought, self.counts[name, state.version], strict=True):
            if count:
                self._hold([one], "table", folder, f"{count:,} {one.what} in the newest version")

    def _others(self, folder: Path, active: set[str], sought: Sequence[Sought]) -> None:
        """Parquet files that the newest version does not name. No vacuum takes hidden ones."""
        others: dict[bool, list[Path]] = {False: [], True: []}
        for file in storage_of(folder).files(folder):
            at = file.relative_to(folder).as_posix()
            is_data = ".parquet" in file.name and not file.name.endswith(".crc")
            if is_data and LOG_FOLDER not in file.parts and at not in active:
                others[file.name.startswith((".", "_"))].append(file)
        needed = {at for one in active for at in (folder / one).parents}
        left = [at for at in storage_of(folder).folders(folder) if "=" in at.name]
        if left := [at for at in left if at not in needed]:
            why = f"{len(left):,} folders of values that no newest version has, by their names"
            self._hold(sought, "files", folder, why)
            self.removable_folders += left
        for is_hidden, files in others.items():
            if files:
                why = f"{len(files):,} {'hidden' if is_hidden else 'older'} files that no newest "
                why += "version names"
                self._hold(sought, "files", folder, why, passes=not is_hidden)
                self.removable += files

    def _left_tables(self, sought: Sought) -> None:
        for name in set(sought.names) - set(sought.targets):
            with suppress(CdcError):
                log = read_table_log(self.paths.table(name))
                if log is not None and log.properties.get(SOURCE_PROPERTY) == self.paths.source:
                    why = f"{log.properties.get(TABLE_PROPERTY)} {sought.advice}"
                    self._hold([sought], "table", self.paths.table(name), why)

    def _hold(
        self, sought: Sequence[Sought], what: str, at: Path, why: str, *, passes: bool = False
    ) -> None:
        """`passes`: with the retention."""
        where = at.relative_to(self.paths.lake).as_posix()
        is_taken = passes and (what == "log" or self.retention_us >= _DAY_US)
        for one in sought:
            until_us = one.since_us + self.retention_us if is_taken else -1
            one.held.append(Held(what=what, where=where, why=why, until_us=until_us))

    def remove_now(self) -> None:
        """The caller holds both locks, and has removed older cuts."""
        for file in self.removable:
            for at in (file, file.with_name(f".{file.name}.crc")):
                storage_of(at).remove(at)
        for at in self.removable_folders:
            with suppress(OSError):  # another file is in it
                at.rmdir()


def _log_versions(folder: Path) -> list[int]:
    """Of the files of a table's log; -1 of what a writer left."""
    log, versions = folder / LOG_FOLDER, []
    for name in storage_of(log).names(log):
        match = VERSION_NAME.fullmatch(name)
        if match or (name.startswith(".") and LAST_CHECKPOINT not in name):
            versions.append(int(match[1]) if match else -1)
    return versions
