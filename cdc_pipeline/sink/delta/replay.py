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
- A checkpoint stays in Arrow: only the actions that a caller asks for become Python objects.

Source: Delta's protocol, "Action Reconciliation", "Checkpoints", "Sidecar Files".
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.errors import LakeStateError, SinkError
from cdc_pipeline.lake.storage.file_failures import kind_of
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.data_file import read_statistics
from cdc_pipeline.sink.delta.deletion_vectors import vector_path
from cdc_pipeline.sink.delta.log import (
    LOG_FOLDER,
    commit_file,
    damaged_log,
    json_lines,
    new_in_place_of,
    read_commit_lines,
    unreadable_log,
)
from cdc_pipeline.sink.delta.log_copy import log_on_disk

LISTED_FILES_MAX: Final = 1_000
_ROWS_AT_A_TIME: Final = 16_384

# 00000000000000000010.json; .checkpoint.parquet; .checkpoint.<part>.<parts>.parquet;
# .checkpoint.<uuid>.json|parquet
_LOG_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?:json|checkpoint\.(?:(?P<middle>[\w.-]+)\.)?(?:parquet|json))"
)
_PART: Final = re.compile(r"(\d{10})\.(\d{10})")
# Spark writes the count first; statistics of other writers are parsed as JSON.
_COUNT_FIRST: Final = r'^\s*\{\s*"numRecords"\s*:\s*(?P<rows>\d+)\s*[,}]'
_ELSEWHERE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_NAME_PARTS: Final = "\0"
_OF_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset")
_COUNTED: Final = pa.struct(
    {
        "size": pa.int64(),
        "stats": pa.string(),
        "deletionVector": pa.struct({"cardinality": pa.int64()}),
    }
)

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
_COLUMNS_OF_TABLE: Final = ("metaData", "protocol", "domainMetadata", "txn.appId", "txn.version")
_COLUMNS_OF_FILES: Final = (
    *(f"add.{name}" for name in _ADD_FIELDS),
    "add.stats_parsed.numRecords",
    "sidecar.path",
)
_LINE_OF_A_FILE: Final = ('{"add":', '{"remove":')
_END_OF_ACTION: Final = "}}"
# Some writers have a struct of NULLs where there is no action.
_REQUIRED: Final = {
    "add": "path",
    "metaData": "id",
    "protocol": "minReaderVersion",
    "domainMetadata": "domain",
    "txn": "appId",
    "sidecar": "path",
}


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

    def bounds(self, column: str) -> tuple[Any, Any]:
        """The lowest and the highest value, as far as statistics know them."""
        low, high = (self.statistics.get(of, {}).get(column) for of in ("minValues", "maxValues"))
        return low, high

    def is_below(self, column: str, value: int) -> bool:
        """Whether statistics prove that all rows have a lower one."""
        highest = self.bounds(column)[1]
        return isinstance(highest, int) and highest < value


@dataclass
class TableState:
    """Of its active files a checkpoint's are in Arrow, until `adds` is asked for."""

    version: int
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)  # by application id
    _added: dict[str, dict[str, Any]] = field(default_factory=dict)  # by `file_name`
    _checkpointed: list[tuple[pa.Array, pa.StructArray]] = field(default_factory=list)  # so, too

    @cached_property
    def adds(self) -> dict[str, dict[str, Any]]:
        adds: dict[str, dict[str, Any]] = {}
        for names, actions in self._checkpointed:
            adds.update(zip(names.to_pylist(), _plain(actions), strict=True))
        return adds | self._added

    @property
    def names(self) -> list[str]:
        checkpointed = (name for names, _ in self._checkpointed for name in names.to_pylist())
        return [*checkpointed, *self._added]

    @property
    def files(self) -> int:
        return sum(len(names) for names, _ in self._checkpointed) + len(self._added)

    @property
    def sizes(self) -> pa.ChunkedArray:
        return pa.chunked_array([_field(adds, "size") for adds in self._arrays()])

    @property
    def size_bytes(self) -> int:
        return int(pc.sum(self.sizes, min_count=0).as_py())

    @property
    def deleted_rows(self) -> int:
        return sum(pc.sum(_marked(adds), min_count=0).as_py() for adds in self._arrays())

    @property
    def rows(self) -> int | None:
        """Without deleted ones; None if a file has no statistics."""
        counts = [_row_counts(adds) for adds in self._arrays()]
        if any(of.null_count for of in counts):
            return None
        return int(sum(pc.sum(of, min_count=0).as_py() for of in counts)) - self.deleted_rows

    def _arrays(self) -> list[pa.StructArray]:
        added = pa.array(list(self._added.values()), _COUNTED)
        return [added, *(adds for _, adds in self._checkpointed)]

    def _apply(self, actions: Iterable[dict[str, Any]]) -> set[str]:
        """Removes come first, whatever their order. Returns the files that it names."""
        gone, adds = set(), {}
        for action in actions:
            if "remove" in action:
                gone.add(file_name(action["remove"]))
            elif "add" in action:
                adds[file_name(action["add"])] = action["add"]
            elif "metaData" in action:
                self.metadata = action["metaData"]
            elif "protocol" in action:
                self.protocol = action["protocol"]
            elif "txn" in action:
                self.transactions[action["txn"]["appId"]] = action["txn"]["version"]
            elif "domainMetadata" in action:
                domain = action["domainMetadata"]
                self.domains.pop(domain["domain"], None)
                if not domain.get("removed"):
                    self.domains[domain["domain"]] = domain
        for name in gone:
            self._added.pop(name, None)
        self._added |= adds
        return gone | adds.keys()

    def _leave_out(self, names: set[str]) -> None:
        gone = pa.array(list(names), pa.string())
        for at, (here, adds) in enumerate(self._checkpointed):
            kept = pc.invert(pc.is_in(here, value_set=gone))
            self._checkpointed[at] = here.filter(kept), adds.filter(kept)


def table_state(
    path: Path,
    version: int | None = None,
    *,
    names: Collection[str] | None = None,
    files_max: int | None = None,
    is_new: bool = True,
) -> TableState | None:
    """With the active files of these `names` only, if given (without their folders, as the disk has
    them); for () what the log has of files is not read. None if it cannot be determined (there is
    no such version, or the log's retention has removed what is needed), or if there are more than
    `files_max` files. Raises LakeStateError: a file of the log is damaged, or says of no table what
    it is; OSError: the disk fails (`file_failures.files_failing` tells it).
    """
    with log_on_disk(path, version=version, is_new=is_new) as folder:
        try:
            return _replay(folder, version, names=names, files_max=files_max)
        except LakeStateError as error:
            error.what = error.what.replace(str(folder), str(path))  # of a copy
            error.next_step = str(error.next_step).replace(str(folder), str(path))
            raise
        except OSError as error:
            if kind_of(error) is not SinkError:
                raise  # it may be temporary: no table leaves for it
            raise unreadable_log(path, error) from None
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise unreadable_log(path, error) from None


def readable_state(path: Path, version: int | None = None) -> TableState:
    """As `table_state`. Raises LakeStateError, too, if its log does not reach back."""
    state = table_state(path, version)
    if state is None:
        raise log_gap(path, version)
    return state


def log_gap(path: Path, version: int | None) -> LakeStateError:
    missing = _missing_commit(path, version)
    return LakeStateError(
        f"the log of the Delta table in {path} does not reach back to a checkpoint",
        expected="" if missing is None else f"the commit {missing}",
        next_step=f"restore {missing or 'its log'} from a backup of the lake, "
        + new_in_place_of(path),
    )


def _missing_commit(path: Path, version: int | None) -> Path | None:
    log = path / LOG_FOLDER
    newest, checkpoints = log_files(log)
    version = newest if version is None else version
    names = set(storage_of(log).names(log))
    start = max((number for number in checkpoints if number <= version), default=-1)
    files = (commit_file(path, number) for number in range(start + 1, min(version, newest) + 1))
    return next((file for file in files if file.name not in names), None)


def row_count(path: Path, *, version: int | None = None) -> int | None:
    """As `table_state`; None, too, if a file has no statistics."""
    state = table_state(path, version)
    return None if state is None else state.rows


def data_files(
    path: Path,
    version: int,
    *,
    names: Collection[str] | None = None,
    files_max: int | None = None,
    is_new: bool = True,
) -> list[DataFile] | None:
    """Of `table_state`, named as in it, but decoded; None, too, if one has no statistics."""
    state = table_state(path, version, names=names, files_max=files_max, is_new=is_new)
    if state is None or any("stats" not in add for add in state.adds.values()):
        return None
    return [
        DataFile(unquote(add["path"]), add, read_statistics(add["stats"]))
        for add in state.adds.values()
    ]


def _replay(
    path: Path, version: int | None, *, names: Collection[str] | None, files_max: int | None
) -> TableState | None:
    newest, checkpoints = log_files(path / LOG_FOLDER)
    version = newest if version is None else version
    if not 0 <= version <= newest:
        return None
    start = max((number for number in checkpoints if number <= version), default=-1)
    state = TableState(version)
    pending, gone = list(checkpoints.get(start, ())), set[str]()
    while pending:
        for adds, others in _checkpointed(pending.pop(), has_files=names != ()):
            # The name of a sidecar alone, or a path or address that ends with it.
            pending += [
                path / LOG_FOLDER / "_sidecars" / action["sidecar"]["path"].rpartition("/")[2]
                for action in others
                if "sidecar" in action
            ]
            state._apply(action for action in others if _is_wanted(action.get("add"), names))
            wanted = adds if adds is None or names is None else _named(adds, names)
            if wanted:
                state._checkpointed.append((_file_names(wanted), wanted))
            if files_max is not None and state.files > files_max:
                return None
    for number in range(start + 1, version + 1):
        lines = read_commit_lines(path, number)
        if lines is None:
            return None
        if not lines:
            raise damaged_log(commit_file(path, number), ValueError("it is empty"))
        if names == ():
            # a torn line is parsed, and so noticed
            lines = [
                line
                for line in lines
                if not (line.startswith(_LINE_OF_A_FILE) and line.endswith(_END_OF_ACTION))
            ]
        actions = read_actions(lines, commit_file(path, number))
        gone |= state._apply(a for a in actions if _is_wanted(a.get("add"), names))
        if files_max is not None and len(state._added) > files_max:
            return None
    state._leave_out(gone)
    return None if files_max is not None and state.files > files_max else state


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


def is_elsewhere(path: str) -> bool:
    """Whether a file, by its path in the log, is outside of its table's folder."""
    return _ELSEWHERE.match(path) is not None


def file_name(action: dict[str, Any]) -> str:
    """A file and its deletion vector: the path as the log has it, and of the vector storage type,
    path or text, and offset, each "" if there is none.
    """
    vector = action.get("deletionVector") or {}
    parts = (action["path"], *map(vector.get, _OF_VECTOR))
    return _NAME_PARTS.join("" if part is None else str(part) for part in parts)


def files_of(path: Path, name: str) -> Iterator[Path]:
    data, storage, vector, _ = name.split(_NAME_PARTS)
    yield path / unquote(data)
    if storage == "u":
        yield vector_path(path, vector)


# -- a checkpoint's files, in Arrow ---------------------------------------------------------------


def _field(values: pa.StructArray, name: str) -> Any:
    return pc.struct_field(values, [name]) if values.type.get_field_index(name) >= 0 else None


def _file_names(adds: pa.StructArray) -> pa.Array:
    vector = _field(adds, "deletionVector")
    parts = [None if vector is None else _field(vector, part) for part in _OF_VECTOR]
    texts = ["" if part is None else part.cast(pa.string()).fill_null("") for part in parts]
    return pc.binary_join_element_wise(_field(adds, "path"), *texts, _NAME_PARTS)


def _row_counts(adds: pa.StructArray) -> pa.Array:
    """With deleted ones; NULL where there are no statistics."""
    counts = pa.nulls(len(adds), pa.int64())
    texts, parsed = _field(adds, "stats"), _field(adds, "stats_parsed")
    if texts is not None:
        counts = _field(pc.extract_regex(texts, _COUNT_FIRST), "rows").cast(pa.int64())
        others = pc.and_(counts.is_null(), texts.is_valid())
        rest = [_rows_of_statistics(text) for text in texts.filter(others).to_pylist()]
        counts = pc.replace_with_mask(counts, others, pa.array(rest, pa.int64()))
    if parsed is not None:
        counts = pc.coalesce(counts, _field(parsed, "numRecords"))
    return counts


def _marked(adds: pa.StructArray) -> pa.Array:
    vector = _field(adds, "deletionVector")
    return pa.nulls(0, pa.int64()) if vector is None else _field(vector, "cardinality")


def _rows_of_statistics(text: str) -> int | None:
    try:
        count = json.loads(text).get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None


def _is_wanted(add: dict[str, Any] | None, names: Collection[str] | None) -> bool:
    return add is None or names is None or unquote(add["path"]).rpartition("/")[2] in names


def _named(adds: pa.StructArray, names: Collection[str]) -> pa.StructArray:
    paths = _field(adds, "path").to_pylist()
    kept = (unquote(path).rpartition("/")[2] in names for path in paths)
    return adds.filter(pa.array(np.fromiter(kept, np.bool_, len(paths))))


def _checkpointed(
    file: Path, *, has_files: bool
) -> Iterator[tuple[pa.StructArray | None, list[dict[str, Any]]]]:
    """Its ``add`` actions, if they are in Arrow, and all others."""
    try:
        if file.suffix == ".json":
            lines = json_lines(file.read_text(encoding="utf-8"))
            yield None, list(read_actions(lines, file))
            return
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            names = [*_COLUMNS_OF_TABLE, *(_COLUMNS_OF_FILES if has_files else ())]
            for batch in opened.iter_batches(_ROWS_AT_A_TIME, columns=names):
                columns = {
                    kind: values.filter(_field(values, _REQUIRED[kind]).is_valid())
                    for kind, values in zip(batch.schema.names, batch.columns, strict=True)
                }
                adds = columns.pop("add", None)
                others = [
                    {kind: action} for kind, values in columns.items() for action in _plain(values)
                ]
                yield adds, others
    except (OSError, ValueError, pa.ArrowException) as error:
        raise damaged_log(file, error) from None


def _plain(values: pa.Array) -> list[Any]:
    """As JSON of the log has them: maps as objects, no field that is NULL."""
    if pa.types.is_map(values.type):
        return [None if value is None else dict(value) for value in values.to_pylist()]
    if not pa.types.is_struct(values.type):
        return list(values.to_pylist())
    fields = {f.name: _field(values, f.name) for f in values.type if f.name != "stats_parsed"}
    present = {name: of for name, of in fields.items() if of.null_count < len(of)}
    rows = zip(*map(_plain, present.values()), strict=True)
    actions = [
        {name: part for name, part in zip(present, row, strict=True) if part is not None}
        for row in rows
    ]
    is_valid = values.is_valid().to_pylist()
    return [action if valid else None for action, valid in zip(actions, is_valid, strict=True)]
