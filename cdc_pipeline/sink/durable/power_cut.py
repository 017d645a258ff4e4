"""Undo what a power cut may have torn before anything is built on it (K21).

Between a commit to a Delta table and the cut that names it the disk holds some of the commit's
files and not others: an empty log file, a data file whose blocks were never written. A log that
looks whole proves nothing about the files.

Rules:
- ``_cdc/<source>/boot`` identifies the boot of the machine in which the commits that no cut names
  were made. If that is the current boot, everything that was written can be read. Otherwise, and
  after a failed sync (`distrust`), `undo_unsynced` checks every table after the version of the last
  cut.
- Commits of the batch to finish are undone: the batch is applied again from its staged files, which
  are durable. So are those of the batches at which a suspended table failed: catching up repeats
  them. Other commits (maintenance) are undone if they cannot be read or if their files are missing
  or truncated. All later commits are undone too. Commits of other programs are left to
  `table_checks.check_target`.
- Undoing a commit removes its file in the log. It needs the version before: if one of that
  version's files is gone, a vacuum has run since, which syncs first (`maintenance`), and the
  commits stay.
- This runs only under the source's lock, and never during a maintenance, which may build on what is
  undone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import LakePaths, remove_tree
from cdc_pipeline.lake.records import BatchRecord, Cut
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.processes import boot_id
from cdc_pipeline.sink.delta.log import (
    COMMIT_NAME,
    LAST_CHECKPOINT,
    LOG_FOLDER,
    MAINTENANCE,
    VERSION_NAME,
    Commit,
    commit_file,
    last_checkpoint,
    read_commit,
    read_commit_lines,
)
from cdc_pipeline.sink.delta.replay import files_of, log_files, read_actions, table_state
from cdc_pipeline.sink.durable.durability import Commits, NewFile, new_files

_WRITTEN: Final = re.compile(r"\.?(part-\d{5}-.*\.parquet|deletion_vector_.*\.bin)(\.crc)?")
_PARQUET: Final = b"PAR1"


def is_trusted(paths: LakePaths) -> bool:
    """Whether the machine has not restarted since commits that no cut names. On a disk."""
    try:
        return _mark(paths).read_text(encoding="utf-8") == (boot_id() or None)
    except (FileNotFoundError, ValueError):
        return False


def distrust(paths: LakePaths) -> None:
    """The next holder of the lock undoes what no cut names: the disk has not stored all of it."""
    storage_of(_mark(paths)).remove(_mark(paths))


def undo_unsynced(paths: LakePaths) -> dict[str, int]:
    """Undo the commits that no cut names and that a power cut may have torn; return the version
    that each table was set back to, -1 for one that is gone. Only for the holder of the source's
    lock. Raises LockError: a maintenance works on the tables.
    """
    if is_object(paths.lake):
        return {}
    storage = storage_of(paths.state)
    # Names that the last process gave before it was killed, and could not sync.
    for folder in (
        paths.batches,
        paths.cuts,
        paths.state,
        paths.state.parent,
        paths.lake,
        paths.lake.parent,
    ):
        if os.access(folder, os.R_OK):  # what this account may not list existed before
            storage.make_durable(folder)
    if is_trusted(paths):
        return {}
    try:
        cut, pending = state.last_cut(paths), state.pending_record(paths)
    except LakeStateError:
        return {}  # the next step reads them again, and reports it
    torn_versions = dict(_torn(paths, cut, pending))
    if torn_versions:
        with writer_lock(paths.state / "maintenance.lock"):
            for name, version in torn_versions.items():
                set_back(paths.table(name), version)
    _set_back_cursors(paths.cursors)
    if boot_id():
        storage.replace(_mark(paths), boot_id().encode())
    return torn_versions


def _mark(paths: LakePaths) -> Path:
    return paths.state / "boot"


def _torn(
    paths: LakePaths, cut: Cut | None, pending: BatchRecord | None
) -> Iterator[tuple[str, int]]:
    states = cut.cursor.targets if cut is not None else {}
    versions = (
        {name: table.table_version for name, table in cut.tables.items()} if cut is not None else {}
    )
    targets = {target.table: target for target in pending.targets} if pending is not None else {}
    for name in sorted({*versions, *targets}):
        table, target = paths.table(name), targets.get(name)
        if name not in versions and (
            target is None or not (target.create or target.content is not None)
        ):
            continue
        unsure: set[tuple[str, int]] = set()  # application id and batch
        if pending is not None and target is not None:
            unsure.add((target.app_id, pending.batch_number))
        suspension = states[name].suspended if name in versions else None
        if cut is not None and suspension is not None:
            unsure |= {
                (states[name].app_id, number)
                for number in range(suspension.batch_number, cut.batch_number + 1)
            }
        with suppress(LakeStateError):  # the table is checked when it is used
            first = _first_torn(table, versions.get(name, -1), unsure)
            if first is None and name not in versions and _is_left_over(table):
                first = 0
            if first is not None and (first == 0 or _is_whole(table, first - 1)):
                yield name, first - 1


def _set_back_cursors(table: Path) -> None:
    """Back to the last whole commit: a lost cursor is restored from the cut."""
    log = table / LOG_FOLDER
    versions = [
        int(match[1]) for match in map(COMMIT_NAME.fullmatch, storage_of(log).names(log)) if match
    ]
    if versions:
        with suppress(LakeStateError):  # reported when it is read
            first = _first_torn(table, min(versions) - 1, (), is_ours=True)
            if first is not None:
                set_back(
                    table,
                    first - 1 if first > min(versions) and _is_whole(table, first - 1) else -1,
                )


def _first_torn(
    table: Path, named: int, unsure: Collection[tuple[str, int]], *, is_ours: bool = False
) -> int | None:
    """`unsure`: application ids and batches not to be relied on; `is_ours`: all commits are."""
    version = named
    while commit_file(table, version + 1).exists():
        try:
            commit = _readable(table, version + 1)
        except LakeStateError:
            return version + 1
        if any(commit.batch_of(app_id) == number for app_id, number in unsure):
            return version + 1
        if (
            not is_ours
            and commit.operation not in MAINTENANCE
            and "cdc_app_id" not in commit.user_metadata
        ):
            return None  # not the pipeline's
        version += 1
    if log_files(table / LOG_FOLDER)[0] > version:
        return version + 1  # a commit is gone, but later ones exist
    if version > named:
        _drop_torn_checkpoint(table, named)
    new = new_files(Commits(table, named, version))
    return min((file.version for file in new if not _is_there(file)), default=None)


def _readable(table: Path, version: int) -> Commit:
    file = commit_file(table, version)
    commit = read_commit(table, version)
    actions = list(read_actions(read_commit_lines(table, version) or [], file))
    if commit is None or not actions:
        raise LakeStateError(f"a file of a Delta table's log is truncated: {file}")
    return commit


def _is_there(file: NewFile) -> bool:
    try:
        return file.path.stat().st_size >= file.bytes_min
    except OSError:
        return False


def _is_left_over(table: Path) -> bool:
    """Whether a folder holds files of a table whose log is gone, and nothing else."""
    files = [file for file in table.rglob("*") if not file.is_dir()] if table.is_dir() else []
    return (
        not (table / LOG_FOLDER).exists()
        and bool(files)
        and all(_WRITTEN.fullmatch(file.name) for file in files)
    )


def _is_whole(table: Path, version: int) -> bool:
    """Whether a version's log reaches back, and its files exist."""
    state = table_state(table, version)
    return state is not None and all(
        file.exists() for name in state.names for file in files_of(table, name)
    )


def _drop_torn_checkpoint(table: Path, named: int) -> None:
    """If one after a version is torn: the commits that they cover still exist."""
    newer = {
        version: files
        for version, files in log_files(table / LOG_FOLDER)[1].items()
        if version > named
    }
    note = table / LOG_FOLDER / LAST_CHECKPOINT
    is_torn = note.exists() and last_checkpoint(table) < 0
    if is_torn or any(
        not _is_parquet(file)
        for files in newer.values()
        for file in files
        if file.suffix == ".parquet"
    ):
        note.unlink(missing_ok=True)
        _remove_log(table, named, only_checkpoints=True)


def _is_parquet(path: Path) -> bool:
    if path.stat().st_size < 3 * len(_PARQUET):
        return False
    with path.open("rb") as stream:
        first = stream.read(len(_PARQUET))
        stream.seek(-len(_PARQUET), os.SEEK_END)
        return first == stream.read() == _PARQUET


def set_back(table: Path, version: int) -> None:
    """The newest commit goes first: the log is valid at each moment. -1 removes the table:
    everything in its folder is of batches that no cut names.
    """
    if version < 0:
        if (table / LOG_FOLDER).exists():
            _remove_log(table, version)
        remove_tree(table)
        storage_of(table).make_durable(table.parent)
        return
    (table / LOG_FOLDER / LAST_CHECKPOINT).unlink(missing_ok=True)
    _remove_log(table, version)


def _remove_log(table: Path, version: int, *, only_checkpoints: bool = False) -> None:
    log = table / LOG_FOLDER
    later_files = [
        (match[1], match[0])
        for match in map(VERSION_NAME.fullmatch, storage_of(log).names(log))
        if match
    ]
    for at, name in sorted(later_files, reverse=True):
        if int(at) > version and (".checkpoint." in name or not only_checkpoints):
            (log / name).unlink()
    storage_of(log).make_durable(log)
