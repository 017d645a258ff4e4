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

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.erasures import Erasure, Held
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.erase.keys import KeyPlace
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    VERSION_NAME,
)
from cdc_pipeline.sink.delta.replay import TableState, readable_state
from cdc_pipeline.sink.delta.table_log import SOURCE_PROPERTY, TABLE_PROPERTY, read_table_log
from cdc_pipeline.sink.modes.mode_columns import BEFORE_COLUMN, SEQ_COLUMN
from cdc_pipeline.sink.read.rows import open_rows

_STATE: Final = ("staging", "verify", "operations")
_DAY_US: Final = 86_400_000_000  # a full vacuum, which lists folders, needs such a retention


@dataclass
class Sought(ABC):
    """What some targets' tables must not hold, and what was found of it.

    Attributes:
        what: in words, of rows.
        names: of tables that may hold it beside the targets; `advice`: what is done about them.
        since_us: when it left the newest versions.
        versions: of tables, the first without it.
    """

    what: str
    targets: Collection[str]
    names: Collection[str]
    advice: str
    since_us: int
    versions: dict[str, int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    files_read: int = 0

    @abstractmethod
    def columns(self, target: str) -> set[str]:
        """That `count` looks at."""

    @abstractmethod
    def count(self, target: str, rows: pa.Table) -> int:
        """How many rows hold it, in either image."""


@dataclass(kw_only=True)
class SoughtKeys(Sought):
    """Rows of erased keys."""

    erasure: Erasure
    places: Sequence[KeyPlace]

    def columns(self, target: str) -> set[str]:
        columns = {SEQ_COLUMN}
        for place in self._of(target):
            columns |= {*place.columns, *images_of(place.spec)[1:]}
            columns |= {place.shard[0]} if place.shard is not None else set()
        return columns

    def count(self, target: str, rows: pa.Table) -> int:
        return sum(int(self._has(rows, place).sum()) for place in self._of(target))

    def _of(self, target: str) -> list[KeyPlace]:
        return [place for place in self.places if place.target.name == target]

    def _has(self, rows: pa.Table, place: KeyPlace) -> NDArray[np.bool_]:
        has = np.zeros(len(rows), np.bool_)
        for image in images_of(place.spec):
            has |= self._match([column_of(rows, name, image) for name in place.columns])
        bound = pa.scalar(Decimal(place.bound), SEQ_TYPE)
        has &= np.array(pc.fill_null(pc.less(rows.column(SEQ_COLUMN), bound), True))
        if place.shard is not None:
            column, value = place.shard
            has &= np.array(pc.fill_null(pc.equal(rows.column(column), value), False))
        return has

    def _match(self, key: Sequence[pa.Array]) -> NDArray[np.bool_]:
        if not len(key[0]):
            return np.zeros(0, np.bool_)
        found: NDArray[np.bool_] = np.array(self.erasure.has(key))
        return found


def images_of(spec: TargetSpec) -> list[str]:
    """The rows of a target's table: "", and the struct of the row before a change."""
    return ["", BEFORE_COLUMN] if MODES[spec.mode].rows_are_changes else [""]


def column_of(rows: pa.Table, name: str, image: str) -> pa.Array:
    """Of one of `images_of`."""
    column = pc.struct_field(rows.column(image), [name]) if image else rows.column(name)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


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
            self.counts[name, state.version] = _counts(folder, state, name, sought)
        for one, rows in zip(sought, self.counts[name, state.version], strict=True):
            if rows:
                self._hold([one], "table", folder, f"{rows:,} {one.what} in the newest version")

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
        """Tables of this source by one of the names."""
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
        """Files that no newest version needs; the caller holds both locks, and has removed older
        cuts. Logs are left to their retention.
        """
        for file in self.removable:
            for at in (file, file.with_name(f".{file.name}.crc")):
                storage_of(at).remove(at)
        for at in self.removable_folders:
            with suppress(OSError):  # another file is in it
                at.rmdir()


def _counts(folder: Path, state: TableState, name: str, sought: Sequence[Sought]) -> list[int]:
    """Rows of the newest version that hold each."""
    counts = [0] * len(sought)
    columns = set[str]().union(*(one.columns(name) for one in sought))
    if columns:
        for batch in open_rows(folder, state, columns=columns).with_marked().batches():
            rows = batch.combine_chunks()
            counts = [of + one.count(name, rows) for of, one in zip(counts, sought, strict=True)]
    return counts


def _log_versions(folder: Path) -> list[int]:
    """Of the files of a table's log; -1 of what a writer left."""
    log, versions = folder / LOG_FOLDER, []
    for name in storage_of(log).names(log):
        match = VERSION_NAME.fullmatch(name)
        if match or (name.startswith(".") and LAST_CHECKPOINT not in name):
            versions.append(int(match[1]) if match else -1)
    return versions
