"""The active data files of a table as the log's own actions, without a JVM, for commits that repeat
them.

Rules:
- The same replay as `row_count`'s: the newest checkpoint at or below the version, and the commits
  after it.
- Only for tables of few files: if there are many, or if the checkpoint is not one plain Parquet
  file with statistics as text, the answer is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.log import LOG_FOLDER, commit_file, damaged_log, read_commit_lines
from cdc_pipeline.sink.delta.row_count import file_name, log_files, read_actions

_FILES_MAX: Final = 1_000

_FIELDS: Final = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """`action` is the file's in the log, its statistics as text."""

    name: str
    action: dict[str, Any]
    statistics: dict[str, Any]

    @property
    def rows(self) -> int | None:
        row_count = self.statistics.get("numRecords")
        return None if row_count is None else int(row_count)


def active_adds(path: Path, version: int) -> list[dict[str, Any]] | None:
    """The ``add`` actions of a version's active files; None if they are too many or cannot be
    determined. Raises LakeStateError: a file of the log is damaged.
    """
    _, checkpoints = log_files(path / LOG_FOLDER)
    start = max((number for number in checkpoints if number <= version), default=-1)
    known: dict[str, dict[str, Any]] = {}
    for file in checkpoints.get(start, ()):
        adds = _checkpointed(file)
        if adds is None:
            return None
        known.update(adds)
    for number in range(start + 1, version + 1):
        lines = read_commit_lines(path, number)
        if lines is None or len(lines) > 2 * _FILES_MAX:
            return None
        added = {}
        for action in read_actions(lines, commit_file(path, number)):
            if "add" in action:
                added[file_name(action["add"])] = action["add"]
            elif "remove" in action:
                known.pop(file_name(action["remove"]), None)
        known.update(added)
    return list(known.values()) if len(known) <= _FILES_MAX else None


def _checkpointed(file: Path) -> dict[str, dict[str, Any]] | None:
    if file.suffix != ".parquet":
        return None
    try:
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            names = {field.name for field in opened.schema_arrow}
            if opened.metadata.num_rows > 10 * _FILES_MAX or "add" not in names:
                return None
            found_columns = opened.read(columns=["add", "sidecar.path"])
            if "sidecar" in names and any(
                row and row["path"] for row in found_columns.column("sidecar").to_pylist()
            ):
                return None
            rows = found_columns.column("add").to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise damaged_log(file, error) from None
    adds = {}
    for row in rows:
        if row is None or row["path"] is None:
            continue
        action = {name: row[name] for name in _FIELDS if row.get(name) is not None}
        for name in ("partitionValues", "tags"):
            if name in action:
                action[name] = dict(action[name])
        if "stats" not in action:
            return None
        if "deletionVector" in action:
            action["deletionVector"] = {
                k: v for k, v in action["deletionVector"].items() if v is not None
            }
        adds[file_name(action)] = action
    return adds
