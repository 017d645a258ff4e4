"""What an interrupted CREATE leaves in a table's folder (K22).

Rules:
- A log in which nothing was ever committed is no table: it cannot have been read, and it holds no
  row.
- The holder of the source's lock removes what such a CREATE left before the table is created.
  Anything else in the folder may belong to a user: it stays, and the table is not created.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import TEMPORARY_PREFIX
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of

LOG_FOLDER: Final = "_delta_log"

# Files on their way to another name (a leading dot), checksums, and folders that Delta makes before
# the first commit.
_NO_COMMIT: Final = re.compile(r"\..*|.*\.(crc|tmp)|_commits|_staged_commits|_sidecars")
_FIRST_COMMIT: Final = f"{0:020d}.json"


def is_half_made(path: Path) -> bool:
    """Whether a log has no commit. An empty first commit counts as none: a power cut leaves one
    if the file was never flushed to the disk.
    """
    log = path / LOG_FOLDER
    if not log.is_dir():
        return False
    others = [name for name in storage_of(log).names(log) if not _NO_COMMIT.fullmatch(name)]
    return all(name == _FIRST_COMMIT and not (log / name).stat().st_size for name in others)


def clear_half_made(path: Path, *, table: str, known: Collection[str] = ()) -> None:
    """Empty the folder of a new table, but for the names in `known`. Raises LakeStateError: it
    holds more than an interrupted CREATE.
    """
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
        return is_half_made(path)
    if name.startswith(TEMPORARY_PREFIX):
        return True
    at = path / name
    return not is_object(at) and at.is_dir() and not any(files for _, _, files in os.walk(at))
