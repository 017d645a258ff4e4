"""What a version of a table is, as the log's own actions, without a JVM, for commits that repeat
them.

Rules:
- The same replay as `row_count`'s: the newest checkpoint at or below the version, and the commits
  after it.
- Nothing is guessed: if the log does not reach back, the answer is None.

Source: Delta's protocol, "Action Reconciliation", "Checkpoints", "Sidecar Files".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.data_file import read_statistics
from cdc_pipeline.sink.delta.log import (
    LOG_FOLDER,
    commit_file,
    damaged_log,
    json_lines,
    read_commit_lines,
)
from cdc_pipeline.sink.delta.log_copy import log_on_disk
from cdc_pipeline.sink.delta.row_count import file_name, log_files, read_actions

LISTED_FILES_MAX: Final = 1_000
_ROWS_AT_A_TIME: Final = 1_024

_ADD_FIELDS: Final = (
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
_CHECKPOINT_COLUMNS: Final = (
    *(f"add.{name}" for name in _ADD_FIELDS),
    "metaData",
    "protocol",
    "domainMetadata",
    "sidecar.path",
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

    def is_outside(self, column: str, *, low: int, high: int) -> bool:
        """Whether statistics prove that no row has a value of `low` to `high`."""
        least, most = (self.statistics.get(of, {}).get(column) for of in ("minValues", "maxValues"))
        return (isinstance(least, int) and least > high) or (isinstance(most, int) and most < low)


@dataclass(slots=True)
class TableState:
    """A version of a table: its actions by kind, and its ``add`` actions by `file_name`."""

    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    adds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def _apply(self, actions: list[dict[str, Any]]) -> None:
        """One commit's: removes come first, whatever their order."""
        for action in actions:
            if "remove" in action:
                self.adds.pop(file_name(action["remove"]), None)
        for action in actions:
            if "add" in action:
                self.adds[file_name(action["add"])] = action["add"]
            elif "metaData" in action:
                self.metadata = action["metaData"]
            elif "protocol" in action:
                self.protocol = action["protocol"]
            elif "domainMetadata" in action:
                domain = action["domainMetadata"]
                self.domains.pop(domain["domain"], None)
                if not domain.get("removed"):
                    self.domains[domain["domain"]] = domain


def table_state(
    path: Path,
    version: int,
    *,
    names: Collection[str] | None = None,
    files_max: int | None = None,
    is_new: bool = True,
) -> TableState | None:
    """A version's state, with the active files of these `names` only, if given (without their
    folders, as the disk has them). None if it cannot be determined, or if there are more than
    `files_max` files. For `is_new` see `log_copy`. Raises LakeStateError: a file of the log is
    damaged.
    """
    with log_on_disk(path, version=version, is_new=is_new) as folder:
        return _table_state(folder, version, names=names, files_max=files_max)


def _table_state(
    path: Path, version: int, *, names: Collection[str] | None, files_max: int | None
) -> TableState | None:
    _, checkpoints = log_files(path / LOG_FOLDER)
    start = max((number for number in checkpoints if number <= version), default=-1)
    state = TableState()
    pending = list(checkpoints.get(start, ()))
    while pending:
        for action in _checkpointed(pending.pop(), names):
            if "sidecar" in action:
                name = action["sidecar"]["path"].rpartition("/")[2]
                pending.append(path / LOG_FOLDER / "_sidecars" / name)
            else:
                state._apply([action])
            if files_max is not None and len(state.adds) > files_max:
                return None
    for number in range(start + 1, version + 1):
        lines = read_commit_lines(path, number)
        if lines is None:
            return None
        actions = list(read_actions(lines, commit_file(path, number)))
        state._apply([action for action in actions if _is_wanted(action.get("add"), names)])
        if files_max is not None and len(state.adds) > files_max:
            return None
    return state


def data_files(
    path: Path,
    version: int,
    *,
    names: Collection[str] | None = None,
    files_max: int | None = None,
    is_new: bool = True,
) -> list[DataFile] | None:
    """The active files of `table_state`, named as in it, but decoded; None, too, if one has no
    statistics.
    """
    state = table_state(path, version, names=names, files_max=files_max, is_new=is_new)
    if state is None or any("stats" not in add for add in state.adds.values()):
        return None
    return [
        DataFile(unquote(add["path"]), add, read_statistics(add["stats"]))
        for add in state.adds.values()
    ]


def _is_wanted(add: dict[str, Any] | None, names: Collection[str] | None) -> bool:
    return add is None or names is None or _base_name(add["path"]) in names


def _named(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Without the ``add`` actions of other files."""
    if "add" not in batch.schema.names:
        return batch
    paths = pc.struct_field(batch.column("add"), "path").to_pylist()
    kept = (path is None or _base_name(path) in names for path in paths)
    return batch.filter(pa.array(np.fromiter(kept, np.bool_, len(paths))))


def _base_name(path: str) -> str:
    return unquote(path).rpartition("/")[2]


def _checkpointed(file: Path, names: Collection[str] | None) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix == ".json":
            lines = json_lines(file.read_text(encoding="utf-8"))
            actions = list(read_actions(lines, file))
            yield from (action for action in actions if _is_wanted(action.get("add"), names))
            return
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            # In small batches: a caller that wants few files stops early, and the rest never
            # become Python objects.
            for batch in opened.iter_batches(_ROWS_AT_A_TIME, columns=list(_CHECKPOINT_COLUMNS)):
                rows = batch if names is None else _named(batch, names)
                for row in rows.to_pylist():
                    for kind, value in row.items():
                        action = _plain(value, rows.schema.field(kind).type)
                        if action:
                            yield {kind: action}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise damaged_log(file, error) from None


def _plain(value: Any, kind: pa.DataType) -> Any:
    """As JSON of the log has it: maps as objects, no field that is NULL."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        fields = {part.name: _plain(value[part.name], part.type) for part in kind}
        return {name: part for name, part in fields.items() if part is not None}
    return value
