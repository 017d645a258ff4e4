"""Count the rows of a Delta table from its log, without a JVM.

Rules:
- The rows of a version are those of its active files (`numRecords` of their statistics), less those
  that deletion vectors mark (`cardinality`). No data file is opened.
- The newest complete checkpoint at or below the version lists the files, and the commits after it
  change them. Checkpoints are found by listing the folder: `_last_checkpoint` may be stale, or of a
  later version than the requested one.
- A file is identified by its path together with its deletion vector (Delta's protocol, "Action
  Reconciliation"): a DELETE removes the file under its old name and adds it under a new one, in any
  order within one commit.
- Never an estimate: if a file has no statistics, or the log no longer reaches back, there is no
  count.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.log import (
    LOG_FOLDER,
    commit_file,
    damaged_log,
    json_lines,
    read_commit_lines,
)

if TYPE_CHECKING:
    import pyarrow as pa

# 00000000000000000010.json; .checkpoint.parquet; .checkpoint.<part>.<parts>.parquet;
# .checkpoint.<uuid>.json|parquet
_LOG_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?:json|checkpoint\.(?:(?P<middle>[\w.-]+)\.)?(?:parquet|json))"
)
_PART: Final = re.compile(r"(\d{10})\.(\d{10})")
# Spark writes the count first; statistics of other writers are parsed as JSON.
_COUNT_FIRST: Final = r'^\s*\{\s*"numRecords"\s*:\s*(?P<rows>\d+)\s*[,}]'
NAME_PARTS: Final = "\0"


def row_count(path: Path, *, version: int | None = None) -> int | None:
    """At `version`, by default now; None if there is no such version, if the log's retention has
    removed what is needed, or if a file has no statistics. Raises LakeStateError: a file of the
    log is damaged.
    """
    replayed = _replayed(path, version)
    if replayed is None:
        return None
    known, touched, checkpoint = replayed
    rows = 0
    for names, counts in _checkpointed(path / LOG_FOLDER, checkpoint):
        of_files = _sum_besides(names, counts, touched)
        if of_files is None:
            return None
        rows += of_files
    added = list(known.values())
    return None if None in added else rows + sum(count for count in added if count is not None)


def active_files(path: Path, *, version: int | None = None) -> set[tuple[str, ...]] | None:
    """The active files of a version, the latest by default: the path as the log has it, and
    storage type, path or text, and offset of the deletion vector, each "" if there is none. None
    if there is no such version, or the log's retention has removed what is needed. Raises
    LakeStateError: a file of the log is damaged.
    """
    replayed = _replayed(path, version)
    if replayed is None:
        return None
    known, touched, checkpoint = replayed
    active_names = set(known)
    for names, _ in _checkpointed(path / LOG_FOLDER, checkpoint):
        active_names.update(name for name in names.to_pylist() if name not in touched)
    return {tuple(name.split(NAME_PARTS)) for name in active_names}


def _replayed(
    path: Path, version: int | None
) -> tuple[dict[str, int | None], set[str], tuple[Path, ...]] | None:
    """What the commits after the newest checkpoint at or below `version` say: active files that
    they added, by name with their rows; all names that they mention; and the checkpoint's files.
    """
    newest, checkpoints = log_files(path / LOG_FOLDER)
    if version is None:
        version = newest
    if version < 0 or version > newest:
        return None
    start = max((number for number in checkpoints if number <= version), default=-1)
    # files by name that commits, or the checkpoint's own JSON, have added
    known: dict[str, int | None] = {}
    touched: set[str] = set()  # names that commits after the checkpoint mention
    for number in range(start + 1, version + 1):
        lines = read_commit_lines(path, number)
        if lines is None:
            return None
        _apply(read_actions(lines, commit_file(path, number)), known, touched)
    return known, touched, checkpoints.get(start, ())


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


def _apply(
    actions: Iterator[dict[str, Any]], known: dict[str, int | None], touched: set[str]
) -> None:
    """Drop what a commit removes from `known`, add what it adds, and put both into `touched`."""
    added: dict[str, int | None] = {}
    for action in actions:
        if "add" in action:
            added[file_name(action["add"])] = _rows(action["add"])
        elif "remove" in action:
            name = file_name(action["remove"])
            touched.add(name)
            known.pop(name, None)
    touched.update(added)
    known.update(added)


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
    in_file = _rows_of_statistics(add.get("stats"))
    if in_file is None:
        return None
    return in_file - int((add.get("deletionVector") or {}).get("cardinality") or 0)


def _rows_of_statistics(text: str | None) -> int | None:
    try:
        count = json.loads(text or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None


def _checkpointed(log: Path, files: tuple[Path, ...]) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Names and rows of the active files in a checkpoint, with those in its sidecars."""
    for file in files:
        sidecars: list[str] = []
        if file.suffix == ".json":
            yield _json_files(file, sidecars)
        else:
            yield _parquet_files(file, sidecars)
        for sidecar in sidecars:
            # The name alone, or a path or address that ends with it.
            yield _parquet_files(log / "_sidecars" / sidecar.rpartition("/")[2], [])


def _json_files(file: Path, sidecars: list[str]) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa

    rows_by_name: dict[str, int | None] = {}
    try:
        lines = json_lines(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged_log(file, error) from None
    for action in read_actions(lines, file):
        if "add" in action:
            rows_by_name[file_name(action["add"])] = _rows(action["add"])
        elif "sidecar" in action:
            sidecars.append(action["sidecar"]["path"])
    return pa.array(list(rows_by_name), pa.string()), pa.array(
        list(rows_by_name.values()), pa.int64()
    )


def _parquet_files(file: Path, sidecars: list[str]) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [
        "add.path",
        "add.stats",
        "add.stats_parsed.numRecords",
        "add.deletionVector",
        "sidecar.path",
    ]
    try:
        with pq.ParquetFile(storage_of(file).arrow_source(file)) as opened:
            table = opened.read(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise damaged_log(file, error) from None
    if "sidecar" in table.column_names:
        sidecars += [
            path for path in _field(table["sidecar"].combine_chunks(), "path").to_pylist() if path
        ]
    return (
        _names_and_rows(table["add"].combine_chunks())
        if "add" in table.column_names
        else _no_files()
    )


def _no_files() -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa

    return pa.array([], pa.string()), pa.array([], pa.int64())


def _names_and_rows(add: pa.Array) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa
    import pyarrow.compute as pc

    add = add.filter(pc.is_valid(_field(add, "path")))
    vector = _field(add, "deletionVector", pa.null())
    parts = [
        _field(add, "path"),
        *(_field(vector, name) for name in ("storageType", "pathOrInlineDv", "offset")),
    ]
    texts = [pc.fill_null(pc.cast(part, pa.string()), "") for part in parts]
    counts = pc.coalesce(
        _counts_of_texts(_field(add, "stats")),
        _field(_field(add, "stats_parsed", pa.null()), "numRecords", pa.int64()),
    )
    deleted = pc.fill_null(_field(vector, "cardinality", pa.int64()), 0)
    return pc.binary_join_element_wise(*texts, NAME_PARTS), pc.subtract(counts, deleted)


def _counts_of_texts(statistics: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = pc.cast(
        pc.struct_field(pc.extract_regex(statistics, _COUNT_FIRST), "rows"), pa.int64()
    )
    if counts.null_count == statistics.null_count:
        return counts
    return pa.array([_rows_of_statistics(text) for text in statistics.to_pylist()], pa.int64())


def _field(parent: pa.Array, name: str, kind: pa.DataType | None = None) -> pa.Array:
    """Null if the struct is; nulls of `kind` if it has no such field."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(parent.type) and parent.type.get_field_index(name) >= 0:
        return pc.struct_field(parent, name)
    return pa.nulls(len(parent), kind or pa.string())


def _sum_besides(names: pa.Array, counts: pa.Array, left_out: set[str]) -> int | None:
    """None if a count that is not left out is not known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if left_out:
        counts = counts.filter(
            pc.invert(pc.is_in(names, value_set=pa.array(sorted(left_out), pa.string())))
        )
    if counts.null_count:
        return None
    return int(pc.sum(counts, min_count=0).as_py())
