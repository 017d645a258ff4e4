"""Make files durable before a cut names them (K21: a power cut must not leave a cut without its
files).

Spark and Delta write files and never wait for the disk, but the cut is synced. Without this module
a power cut could keep the cut and lose the log files, data files or deletion vectors that it names.

Rules:
- `make_durable` waits for everything that commits added: data files, deletion vectors, files of the
  log, checkpoints, Hadoop's checksum files, and the folders on the way. The cost depends on the
  commits alone: no data folder is listed.
- A file that is missing or too short is a failure too: no later cut names it.
- In an object store a put is durable, and nothing is done.
- Commits that no cut names yet may be torn by a power cut: `power_cut` undoes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from cdc_pipeline.errors import CdcError, LakeStateError, MergeError
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of, sync
from cdc_pipeline.sink.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    commit_file,
    last_checkpoint,
    read_commit_lines,
)
from cdc_pipeline.sink.delta.replay import (
    file_name,
    files_of,
    is_elsewhere,
    log_files,
    read_actions,
)

_THREADS: Final = 16  # each waits for the disk, which syncs concurrent requests in one go


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits of a table in (`after`, `upto`] that are not yet known to be durable."""

    table: Path
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a commit added, with the least size that it must have."""

    path: Path
    bytes_min: int
    version: int


def make_durable(commits: Mapping[str, Commits], *, lake: Path) -> dict[str, CdcError]:
    """All that commits (by table name) added, and the lake's own name; what fails is returned."""
    if is_object(lake):
        return {}
    failures: dict[str, CdcError] = {}
    waiting: list[tuple[str, Future[None]]] = []
    folders: dict[Path, str] = {}
    with ThreadPoolExecutor(_THREADS, "fsync") as threads:
        for name, of in commits.items():
            try:
                files = new_files(of)
            except CdcError as error:
                failures[name] = error
                continue
            waiting += [(name, threads.submit(_sync_file, file)) for file in files]
            folders.update((folder, name) for folder in _folders(of, files, lake))
        _collect(waiting, failures)
        # A name is useless before the file that it names is durable.
        _collect(
            [(name, threads.submit(_sync_folder, folder)) for folder, name in folders.items()],
            failures,
        )
    return failures


def new_files(commits: Commits) -> list[NewFile]:
    """That are still in use after the last commit. Raises LakeStateError: the log is damaged."""
    table = commits.table
    files_left: list[NewFile] = []
    removed: set[str] = set()
    marked: set[str] = set()  # data files whose newest deletion vector is known
    for version in range(commits.upto, commits.after, -1):
        lines = read_commit_lines(table, version)
        if lines is None:
            break  # removed by the log's retention, with all before it: durable long ago
        files_left.append(NewFile(commit_file(table, version), 1, version))
        adds: dict[str, dict[str, Any]] = {}
        removes: set[str] = set()
        for action in read_actions(lines, commit_file(table, version)):
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                removes.add(action["remove"]["path"])
            elif "cdc" in action:
                files_left += _change_file(table, action["cdc"], version)
        for name, add in adds.items():
            if name not in removed and not is_elsewhere(name):
                files_left += _files_of_add(
                    table, add, version, is_new=name not in removes, is_newest=name not in marked
                )
                marked.add(name)
        removed |= removes - adds.keys() - marked
    files_left += _checkpoints(commits)
    return files_left


def _files_of_add(
    table: Path, add: Mapping[str, Any], version: int, *, is_new: bool, is_newest: bool
) -> Iterator[NewFile]:
    """The data file if the commit brought it; its deletion vector if no later one replaced it."""
    if is_new:
        yield NewFile(table / unquote(add["path"]), int(add["size"]), version)
    vector = add.get("deletionVector") or {}
    if is_newest and vector.get("storageType") == "u":
        _, file = files_of(table, file_name(dict(add)))
        # The bitmap follows four bytes of length; four bytes of checksum follow it.
        yield NewFile(
            file, int(vector.get("offset") or 0) + int(vector["sizeInBytes"]) + 8, version
        )


def _change_file(table: Path, change: Mapping[str, Any], version: int) -> Iterator[NewFile]:
    """Of the change feed: only its readers need it, and a vacuum removes it by age."""
    path = table / unquote(change["path"])
    if not is_elsewhere(change["path"]) and path.exists():
        yield NewFile(path, int(change["size"]), version)


def _checkpoints(commits: Commits) -> Iterator[NewFile]:
    log = commits.table / LOG_FOLDER
    if last_checkpoint(commits.table) <= commits.after:
        return
    yield NewFile(log / LAST_CHECKPOINT, 1, commits.upto)
    for version, files in log_files(log)[1].items():
        if version > commits.after:
            yield from (NewFile(file, 1, version) for file in files)
    sidecars = log / "_sidecars"
    for name in storage_of(sidecars).names(sidecars):
        if not name.startswith("."):
            yield NewFile(sidecars / name, 1, commits.upto)


def _folders(commits: Commits, files: Iterable[NewFile], lake: Path) -> set[Path]:
    """Up to the table; of a new table up to the lake's own name."""
    top = commits.table if commits.after >= 0 else lake.parent
    folders = {commits.table / LOG_FOLDER}
    for parent in {file.path.parent for file in files} | {commits.table}:
        folders.update(at for at in (parent, *parent.parents) if at.is_relative_to(top))
    return folders


def _sync_file(file: NewFile) -> None:
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes < file.bytes_min:
            raise LakeStateError(
                f"a file of a Delta table is truncated: {file.path}",
                expected=f"at least {file.bytes_min} bytes, as recorded in version {file.version}",
                got=f"{size_bytes} bytes",
            )
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # Hadoop refuses a file whose checksums are torn.
    with suppress(FileNotFoundError):
        sync(file.path.parent / f".{file.path.name}.crc")


def _sync_folder(folder: Path) -> None:
    # One above the lake that this account may not list: it existed before.
    with suppress(PermissionError):
        sync(folder, os.O_DIRECTORY)


def _collect(waiting: Iterable[tuple[str, Future[None]]], failures: dict[str, CdcError]) -> None:
    for name, future in waiting:
        error = future.exception()
        if error is None or name in failures:
            continue
        if not isinstance(error, CdcError | OSError):
            raise error
        failures[name] = MergeError(
            "a table's new files did not reach the disk",
            table=name,
            got=f"{error.what}: {error.got}" if isinstance(error, CdcError) else _words(error),
            next_step="check the lake's disk, then start the run again: it applies the batch to "
            "this table again",
        )


def _words(error: OSError) -> str:
    return (
        f"{type(error).__name__}: {error.strerror or error}: "
        f"{error.filename or 'a file of the table'}"
    )
