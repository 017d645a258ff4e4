"""Remember which tables were compared with a cut, so that an untouched table costs one stat (K3).

A table's log changes only by a name that comes, goes or is replaced in its folder: a commit
(RESTORE is one), a checkpoint, a cleanup, a table that is dropped, created again, moved, or put
back from a backup. Each of these changes the folder's time of change, which no program can set, or
puts another folder (device, inode) in its place. So if the folder is still what it was before the
last comparison, that comparison's answer holds: the newest version, its owner and its transaction
id are the same.

Rules:
- Only the answer "as the cut says" is remembered, with what the cut said. Another cut, another
  answer and a suspended table are compared in full.
- What was seen before the comparison is remembered, so that a change during it shows.
- A clock has ticks: a second change within one tick of the first leaves no trace. A folder that has
  changed within the last seconds is not remembered.
- A file that is overwritten in place is not noticed: Delta's protocol forbids it, and the table's
  next commit reads the log in full.
- After a restart of the machine every table is compared in full: a power cut may have taken back
  what the folder said.
- Only on a local disk, and only the holder of the source's lock writes or uses the file. It may be
  removed at any time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import CutTable
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.half_made import LOG_FOLDER

_SETTLED_NS: Final = 2_000_000_000


class ComparedTables:
    """The tables of one source that are as a cut says, since the boot of the machine."""

    def __init__(self, paths: LakePaths, *, boot: str) -> None:
        self._paths = paths
        self._boot = boot
        self._known = _read(_file(paths))
        self._now: dict[str, str] = {}

    def is_known(self, name: str, table: CutTable, app_id: str) -> bool:
        """Whether nothing has happened to a table since it was compared with the cut; if not,
        note what its folder looks like before it is.
        """
        seen = _seen(self._paths.table(name))
        if not seen:
            return False
        said = f"{table.table_version} {table.transaction_version} {app_id}"
        entry = f"{self._boot} {seen} {said}"
        self._now[name] = entry
        return self._known.get(name) == entry

    def remember(self, failures: Mapping[str, object]) -> None:
        """Remember the tables that `is_known` was asked for, but for `failures`."""
        found = {name: entry for name, entry in self._now.items() if name not in failures}
        if found != self._known:
            file = _file(self._paths)
            storage_of(file).replace(file, json.dumps(found, separators=(",", ":")).encode())


def _file(paths: LakePaths) -> Path:
    return paths.state / "compared_tables.json"


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(storage_of(file).read(file))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _seen(table: Path) -> str:
    """What identifies the state of a table's log folder; "" if it is gone or has just changed."""
    try:
        found = os.stat(table / LOG_FOLDER)
    except OSError:
        return ""
    if time.time_ns() - found.st_ctime_ns < _SETTLED_NS:
        return ""
    return f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"
