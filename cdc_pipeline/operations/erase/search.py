"""Prove by reading that the newest versions of a source's tables lack erased rows, name what may
hold them otherwise, and remove that at once.

Rules:
- Every file of a newest version is read, with the rows that deletion vectors mark, and the key of
  each row is compared. What cannot be read may hold the rows.
- Other files of a table's folder, of older versions or of none, are not read but named: they may
  have other columns, types and masks. So are logs before the version without the rows: bounds of a
  column are cut off, are of one column of a key alone, and stay in commits and checkpoints.
- Only such files are removed, under the locks of both writer and maintenance, and older cuts before
  them. Logs go with their retention alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.erasures import Erasure, Held
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.operations.erase.keys import KeyPlace
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
class Search:
    """What was found; `removable`: files that no newest version needs. `versions`: of tables, the
    first without the rows.
    """

    paths: LakePaths
    erasure: Erasure
    places: Sequence[KeyPlace]
    retention_us: int
    versions: dict[str, int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    removable: list[Path] = field(default_factory=list)
    files_read: int = 0

    def run(self) -> Search:
        for name in sorted({place.target.name for place in self.places}):
            try:
                self._table(name)
            except CdcError as error:
                self._hold("table", self.paths.table(name), f"it cannot be read: {error.what}")
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                why = f"it cannot be read: {type(error).__name__}"
                self._hold("table", self.paths.table(name), why)
        self._left_tables()
        for name in _STATE:
            folder = self.paths.state / name
            files = [one for one in storage_of(folder).files(folder) if one.parent != folder]
            if files := [one for one in files if not one.name.endswith(".lock")]:
                why = f"{len(files):,} files of work under way, or left by it"
                self._hold("state", folder, why)
        return self

    def _table(self, name: str) -> None:
        folder = self.paths.table(name)
        state = readable_state(folder)
        active = {unquote(add["path"]) for add in state.adds.values()}
        self._others(folder, active)
        old = list(_old_log_files(folder, self.versions.setdefault(name, state.version)))
        if old:
            why = f"bounds of columns, in {len(old):,} older files of the log"
            self._hold("log", folder / LOG_FOLDER, why, passes=True)
        self.files_read += len(active)
        rows = sum(self._rows(folder, state, one) for one in self.places if one.target.name == name)
        if rows:
            self._hold("table", folder, f"{rows:,} erased rows in the newest version")

    def _rows(self, folder: Path, state: TableState, place: KeyPlace) -> int:
        """How many rows of the newest version have an erased key, in either image."""
        is_changes = MODES[place.spec.mode].rows_are_changes
        columns = {*place.columns, SEQ_COLUMN}
        columns |= {place.shard[0]} if place.shard is not None else set()
        columns |= {BEFORE_COLUMN} if is_changes else set()
        return sum(
            int(self._has(rows.combine_chunks(), place, is_changes=is_changes).sum())
            for rows in open_rows(folder, state, columns=columns).with_marked().batches()
        )

    def _has(self, rows: pa.Table, place: KeyPlace, *, is_changes: bool) -> NDArray[np.bool_]:
        has = self._match([rows.column(name) for name in place.columns])
        if is_changes:
            before = rows.column(BEFORE_COLUMN)
            has |= self._match([pc.struct_field(before, [name]) for name in place.columns])
        bound = pa.scalar(Decimal(place.bound), SEQ_TYPE)
        has &= np.array(pc.fill_null(pc.less(rows.column(SEQ_COLUMN), bound), True))
        if place.shard is not None:
            column, value = place.shard
            has &= np.array(pc.fill_null(pc.equal(rows.column(column), value), False))
        return has

    def _match(self, key: Sequence[pa.ChunkedArray]) -> NDArray[np.bool_]:
        arrays = [pa.concat_arrays(one.chunks) if one.num_chunks else one for one in key]
        if not len(key[0]):
            return np.zeros(0, np.bool_)
        found: NDArray[np.bool_] = np.array(self.erasure.has(arrays))
        return found

    def _others(self, folder: Path, active: set[str]) -> None:
        """Parquet files that the newest version does not name. No vacuum takes hidden ones."""
        others: dict[bool, list[Path]] = {False: [], True: []}
        for file in storage_of(folder).files(folder):
            at = file.relative_to(folder).as_posix()
            is_data = ".parquet" in file.name and not file.name.endswith(".crc")
            if is_data and LOG_FOLDER not in file.parts and at not in active:
                others[file.name.startswith((".", "_"))].append(file)
        for is_hidden, files in others.items():
            if files:
                why = f"{len(files):,} {'hidden' if is_hidden else 'older'} files that no newest "
                why += "version names"
                self._hold("files", folder, why, passes=not is_hidden)
                self.removable += files

    def _left_tables(self) -> None:
        """Tables of this source that no cut names, by one of the names."""
        known = {place.target.name for place in self.places}
        for name in self.erasure.names.keys() - known:
            with suppress(CdcError):
                log = read_table_log(self.paths.table(name))
                if log is not None and log.properties.get(SOURCE_PROPERTY) == self.paths.source:
                    why = f"{log.properties.get(TABLE_PROPERTY)} has left the pipeline: remove it"
                    self._hold("table", self.paths.table(name), why)

    def _hold(self, what: str, at: Path, why: str, *, passes: bool = False) -> None:
        """`passes`: with the retention."""
        where = at.relative_to(self.paths.lake).as_posix()
        is_taken = passes and (what == "log" or self.retention_us >= _DAY_US)
        until_us = now_us() + self.retention_us if is_taken else -1
        self.held.append(Held(what=what, where=where, why=why, until_us=until_us))


def remove_now(search: Search) -> None:
    """Files that no newest version needs; the caller holds both locks, and has removed older cuts.
    Logs are left to their retention.
    """
    for file in search.removable:
        for at in (file, file.with_name(f".{file.name}.crc")):
            storage_of(at).remove(at)


def _old_log_files(folder: Path, version: int) -> Iterator[Path]:
    log = folder / LOG_FOLDER
    for name in storage_of(log).names(log):
        match = VERSION_NAME.fullmatch(name)
        is_left = name.startswith(".") and LAST_CHECKPOINT not in name
        if int(match[1]) < version if match else is_left:
            yield log / name
