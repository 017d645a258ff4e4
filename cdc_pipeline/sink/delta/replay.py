"""What a version of a Delta table is, from its log, without a JVM.

Rules:
- The newest complete checkpoint at or below the version lists the files, and the commits after it
  change them. Checkpoints are found by listing the folder: `_last_checkpoint` may be stale, or of a
  later version than the requested one.
- A file is identified by its path together with its deletion vector: a DELETE removes the file
  under its old name and adds it under a new one, in any order within one commit.
- The rows of a version are those of its active files (`numRecords` of their statistics), less those
  that deletion vectors mark (`cardinality`). No data file is opened.
- Nothing is guessed: if a file has no statistics, or the log does not reach back, there is no
  answer.

Source: Delta's protocol, "Action Reconciliation", "Checkpoints", "Sidecar Files".
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.lake.storage.object_path import is_object
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

LISTED_FILES_MAX: Final = 1_000
_ROWS_AT_A_TIME: Final = 1_024

# 00000000000000000010.json; .checkpoint.parquet; .checkpoint.<part>.<parts>.parquet;
# .checkpoint.<uuid>.json|parquet
_LOG_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?:json|checkpoint\.(?:(?P<middle>[\w.-]+)\.)?(?:parquet|json))"
)
_PART: Final = re.compile(r"(\d{10})\.(\d{10})")
# Spark writes the count first; statistics of other writers are parsed as JSON.
_COUNT_FIRST: Final = re.compile(r'\s*\{\s*"numRecords"\s*:\s*(?P<rows>\d+)\s*[,}]')
NAME_PARTS: Final = "\0"

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
_NAME_COLUMNS: Final = ("add.path", "add.deletionVector", "sidecar.path")
_COUNT_COLUMNS: Final = (*_NAME_COLUMNS, "add.stats", "add.stats_parsed.numRecords")


_OfFile = Callable[[dict[str, Any]], Any]


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
    """A version of a table: its actions by kind, and its ``add`` actions, or what is kept of each,
    by `file_name`.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    adds: dict[str, Any] = field(default_factory=dict)

    def _apply(self, actions: Sequence[dict[str, Any]], of_file: _OfFile) -> None:
        """One commit's: removes come first, whatever their order."""
        for action in actions:
            if "remove" in action:
                self.adds.pop(file_name(action["remove"]), None)
        for action in actions:
            if "add" in action:
                self.adds[file_name(action["add"])] = of_file(action["add"])
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
        return _replay(folder, version, names=names, files_max=files_max)


def row_count(path: Path, *, version: int | None = None) -> int | None:
    """At `version`, by default now; None if there is no such version, if the log's retention has
    removed what is needed, or if a file has no statistics. Raises LakeStateError: a file of the
    log is damaged.
    """
    state = _replay(path, version, columns=_COUNT_COLUMNS, of_file=_rows)
    return None if state is None or None in state.adds.values() else sum(state.adds.values())


def active_files(path: Path, *, version: int | None = None) -> set[tuple[str, ...]] | None:
    """The active files of a version, the latest by default: the path as the log has it, and
    storage type, path or text, and offset of the deletion vector, each "" if there is none. None
    if there is no such version, or the log's retention has removed what is needed. Raises
    LakeStateError: a file of the log is damaged.
    """
    state = _replay(path, version, columns=_NAME_COLUMNS, of_file=lambda _: None)
    return None if state is None else {tuple(name.split(NAME_PARTS)) for name in state.adds}


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


def _replay(
    path: Path,
    version: int | None,
    *,
    columns: Sequence[str] = _CHECKPOINT_COLUMNS,
    of_file: _OfFile = lambda add: add,
    names: Collection[str] | None = None,
    files_max: int | None = None,
) -> TableState | None:
    """By default now. What `of_file` returns of each ``add`` action is kept of it; it needs these
    `columns` of a checkpoint.
    """
    newest, checkpoints = log_files(path / LOG_FOLDER)
    version = newest if version is None else version
    if not 0 <= version <= newest:
        return None
    start = max((number for number in checkpoints if number <= version), default=-1)
    state = TableState()
    pending = list(checkpoints.get(start, ()))
    while pending:
        for action in _checkpointed(pending.pop(), columns, names):
            if "sidecar" in action:
                # The name alone, or a path or address that ends with it.
                name = action["sidecar"]["path"].rpartition("/")[2]
                pending.append(path / LOG_FOLDER / "_sidecars" / name)
            else:
                state._apply([action], of_file)
            if files_max is not None and len(state.adds) > files_max:
                return None
    for number in range(start + 1, version + 1):
        lines = read_commit_lines(path, number)
        if lines is None:
            return None
        actions = read_actions(lines, commit_file(path, number))
        wanted = [action for action in actions if _is_wanted(action.get("add"), names)]
        state._apply(wanted, of_file)
        if files_max is not None and len(state.adds) > files_max:
            return None
    return state


def log_files(log: Path, *, start: int = 0) -> tuple[int, dict[int, tuple[Path, ...]]]:
    """The newest version, -1 if there is none, and the files of each complete checkpoint. `start`:
    the lowest version that matters, which exists.
    """
    if start and is_object(log):
        names = list(log.store.listed_after(log.key, f"{start - 1:020d}.json"))
    else:
        names = storage_of(log).names(log)
    found = (match and int(match["version"]) for match in map(_LOG_NAME.fullmatch, names))
    newest = max((version for version in found if version is not None), default=-1)
    return newest, complete_checkpoints(log, names)


def complete_checkpoints(log: Path, names: Iterable[str]) -> dict[int, tuple[Path, ...]]:
    """The files of each among the `names` in a log."""
    whole: dict[int, tuple[Path, ...]] = {}
    parts: dict[tuple[int, int], list[Path]] = defaultdict(list)
    for name in names:
        name_match, file = _LOG_NAME.fullmatch(name), log / name
        if name_match is None:
            continue
        version = int(name_match["version"])
        part = _PART.fullmatch(name_match["middle"] or "")
        if part is not None:
            parts[version, int(part[2])].append(file)
        elif ".checkpoint." in file.name:
            whole[version] = (file,)
    for (version, number_of_parts), files in parts.items():
        if len(files) == number_of_parts:
            whole[version] = tuple(files)
    return whole


def read_actions(lines: list[str], file: Path) -> Iterator[dict[str, Any]]:
    """Raise LakeStateError if the file is damaged."""
    try:
        for line in lines:
            if line.strip():
                yield json.loads(line)
    except ValueError as error:
        raise damaged_log(file, error) from None


def file_name(action: dict[str, Any]) -> str:
    vector = action.get("deletionVector") or {}
    parts = (
        action["path"],
        vector.get("storageType"),
        vector.get("pathOrInlineDv"),
        vector.get("offset"),
    )
    return NAME_PARTS.join("" if part is None else str(part) for part in parts)


def _rows(add: dict[str, Any]) -> int | None:
    statistics = add.get("stats") or ""
    found = _COUNT_FIRST.match(statistics)
    count = int(found["rows"]) if found else _rows_of_statistics(statistics)
    if count is None:
        count = add.get("stats_parsed", {}).get("numRecords")
    if count is None:
        return None
    return count - int((add.get("deletionVector") or {}).get("cardinality") or 0)


def _rows_of_statistics(text: str | None) -> int | None:
    try:
        count = json.loads(text or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None


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


def _checkpointed(
    file: Path, columns: Sequence[str], names: Collection[str] | None
) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix == ".json":
            lines = json_lines(file.read_text(encoding="utf-8"))
            actions = list(read_actions(lines, file))
            yield from (action for action in actions if _is_wanted(action.get("add"), names))
            return
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            # In small batches: a caller that wants few files stops early, and the rest never
            # become Python objects.
            for batch in opened.iter_batches(_ROWS_AT_A_TIME, columns=list(columns)):
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
