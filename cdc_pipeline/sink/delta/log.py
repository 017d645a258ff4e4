"""Commits of a Delta table's log (K3), and what an interrupted CREATE leaves (K22).

Rules:
- A log in which nothing was ever committed is no table: it cannot have been read, and it holds no
  row.
- The holder of the source's lock removes what such a CREATE left before the table is created.
  Anything else in the folder may belong to a user: it stays, and the table is not created.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdc_pipeline.errors import LakeStateError, SinkError
from cdc_pipeline.lake.storage.file_failures import is_refused_by_machine
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import TEMPORARY_PREFIX, refused, storage_of
from cdc_pipeline.sink.delta.log_copy import LOG_FOLDER as LOG_FOLDER
from cdc_pipeline.text.server_messages import said_by

LAST_CHECKPOINT: Final = "_last_checkpoint"
COMMIT_NAME: Final = re.compile(r"(\d{20})\.json")
VERSION_NAME: Final = re.compile(r"\.?(\d{20})\..*")  # of any file of one version

# Operations that change how rows are stored and not which rows there are.
MAINTENANCE: Final = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END", "REORG"})
RESTORE: Final = "RESTORE"
PROPERTIES_OPERATION: Final = "SET TBLPROPERTIES"
FEATURE_OPERATION: Final = "DROP FEATURE"


@dataclass(frozen=True, slots=True)
class Commit:
    """`restored` is the version whose rows a RESTORE has put back."""

    version: int
    operation: str
    user_metadata: dict[str, Any]
    restored: int = -1

    def batch_of(self, app_id: str) -> int | None:
        """The batch by which a table's own pipeline made the commit."""
        number = self.user_metadata.get("cdc_batch")
        is_own = self.user_metadata == {"cdc_app_id": app_id, "cdc_batch": number}
        return number if is_own else None

    def is_maintenance(self, app_id: str) -> bool:
        """Whether it changed no row: Delta's own maintenance, or our change of settings."""
        if self.operation in (PROPERTIES_OPERATION, FEATURE_OPERATION):
            return self.user_metadata == {"cdc_app_id": app_id, "cdc_maintenance": True}
        return self.operation in MAINTENANCE


def read_commit(path: Path, version: int) -> Commit | None:
    """None if the log's retention has removed it. Raises LakeStateError: the file is damaged."""
    lines = read_commit_lines(path, version)
    if lines is None:
        return None
    info: dict[str, Any] = {}
    try:
        for line in lines:
            if '"commitInfo"' in line:
                info = json.loads(line).get("commitInfo") or info
    except (ValueError, AttributeError) as error:
        raise damaged_log(commit_file(path, version), error) from None
    try:
        metadata = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        metadata = {}
    operation = str(info.get("operation", ""))
    parameters = info.get("operationParameters")
    restored = str(parameters.get("version")) if isinstance(parameters, dict) else ""
    return Commit(
        version,
        operation,
        metadata if isinstance(metadata, dict) else {},
        int(restored) if operation == RESTORE and restored.isdecimal() else -1,
    )


def commits_after(path: Path, version: int, newest: int) -> Iterator[Commit]:
    """Without those that the log's retention has removed. Raises as `read_commit`."""
    for number in range(version + 1, newest + 1):
        if (commit := read_commit(path, number)) is not None:
            yield commit


def newest_change(path: Path, version: int) -> Commit | None:
    """More than maintenance; None if the log's retention has removed it. Raises LakeStateError."""
    while (commit := read_commit(path, version)) is not None and commit.operation in MAINTENANCE:
        version -= 1
    return commit


def commit_file(path: Path, version: int) -> Path:
    return path / LOG_FOLDER / f"{version:020d}.json"


def read_commit_lines(path: Path, version: int) -> list[str] | None:
    """None if the log's retention has removed it. Raises LakeStateError: it is no text."""
    file = commit_file(path, version)
    try:
        return json_lines(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise damaged_log(file, error) from None


def last_checkpoint(table: Path) -> int:
    """Of the newest, as the log's own note says; -1 if there is none, or it cannot be read."""
    try:
        return int(json.loads((table / LOG_FOLDER / LAST_CHECKPOINT).read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def json_lines(text: str) -> list[str]:
    """Names and values in them are unescaped: `splitlines` would also end at U+0085 and U+2028."""
    return [line for line in text.split("\n") if line]


def damaged_log(file: Path, error: Exception) -> SinkError:
    """LakeStateError; or what the machine refuses (too many open files), which is no damage."""
    if is_refused_by_machine(error):
        return refused(error, file)
    table = next(folder.parent for folder in file.parents if folder.name == LOG_FOLDER)
    return LakeStateError(
        f"a file of a Delta table's log cannot be read: {file}",
        got=said_by(error),
        next_step=f"restore this file from a backup of the lake, {new_in_place_of(table)}",
    )


def unreadable_log(path: Path, error: Exception) -> LakeStateError:
    return LakeStateError(
        f"the log of the Delta table in {path} cannot be read",
        got=said_by(error),
        next_step=f"restore {path / LOG_FOLDER} from a backup of the lake, {new_in_place_of(path)}",
    )


def new_in_place_of(path: Path) -> str:
    """The other way out of a log that cannot be read: a new snapshot reads it, too."""
    return f"or move {path} away and take a new snapshot of the table"


def commit_note(app_id: str, batch_number: int) -> str:
    return json.dumps({"cdc_app_id": app_id, "cdc_batch": batch_number})


def maintenance_note(app_id: str) -> str:
    """Of our commits that change a table's properties or features alone."""
    return json.dumps({"cdc_app_id": app_id, "cdc_maintenance": True})


# Files on their way to another name (a leading dot), checksums, and folders that Delta makes before
# the first commit.
_NO_COMMIT: Final = re.compile(r"\..*|.*\.(crc|tmp)|_commits|_staged_commits|_sidecars")
_FIRST_COMMIT: Final = f"{0:020d}.json"


def is_interrupted_create(path: Path) -> bool:
    """An empty first commit counts as none: a power cut leaves one that was never flushed."""
    log = path / LOG_FOLDER
    if not log.is_dir():
        return False
    others = [name for name in storage_of(log).names(log) if not _NO_COMMIT.fullmatch(name)]
    return all(name == _FIRST_COMMIT and not (log / name).stat().st_size for name in others)


def clear_interrupted_create(path: Path, *, table: str, known: Collection[str] = ()) -> None:
    """But for `known` names. Raises LakeStateError: it holds more than an interrupted CREATE."""
    left, others = [], []
    if path.exists() and not path.is_dir():
        others = [path.name]
    else:
        names = [name for name in storage_of(path).names(path) if name not in known]
        left = [name for name in names if _is_left(path, name)]
        others = sorted(set(names) - set(left))
    if others:
        raise LakeStateError(
            f"the folder of a new table is not empty, but holds no Delta table: {path}",
            table=table,
            got=", ".join(others[:5]),
            next_step="move its contents away, or choose another sink.lake_path",
        )
    for name in left:
        if name.startswith(TEMPORARY_PREFIX):
            storage_of(path).remove(path / name)
        else:
            storage_of(path).remove_tree(path / name)


def _is_left(path: Path, name: str) -> bool:
    if name == LOG_FOLDER:
        return is_interrupted_create(path)
    if name.startswith(TEMPORARY_PREFIX):
        return True
    at = path / name
    return not is_object(at) and at.is_dir() and not any(files for _, _, files in os.walk(at))
