"""Read Delta tables from their logs without a JVM: versions, properties, transaction ids, commits
(K3); who owns a table (K16: one writer per target); what an interrupted CREATE leaves (K22).

Rules:
- deltalake is used for versions, metadata and transaction ids only: it cannot read rows under
  deletion vectors.
- Commits are read from the log's own JSON files: only they say which transaction ids a commit
  carries.
- A log in which nothing was ever committed is no table: it cannot have been read, and it holds no
  row.
- The holder of the source's lock removes what such a CREATE left before the table is created.
  Anything else in the folder may belong to a user: it stays, and the table is not created.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc_pipeline.errors import CdcError, LakeStateError, LakeUnreachableError
from cdc_pipeline.lake.paths import TEMPORARY_PREFIX
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.lake.storage.storage_settings import delta_options
from cdc_pipeline.lake.storage.store_answers import answer_of
from cdc_pipeline.sink.delta.log_copy import LOG_FOLDER as LOG_FOLDER
from cdc_pipeline.sink.delta.log_copy import log_on_disk
from cdc_pipeline.sink.delta.plain_table import MappedColumn, mapped_columns, rows_refusal
from cdc_pipeline.text.hide import hide
from cdc_pipeline.text.server_messages import said_by

if TYPE_CHECKING:
    from deltalake import DeltaTable


LAST_CHECKPOINT: Final = "_last_checkpoint"
SOURCE_PROPERTY: Final = "cdc.source"
TABLE_PROPERTY: Final = "cdc.table"
APP_ID_PROPERTY: Final = "cdc.app_id"

# Texts in the exceptions of `deltalake` that mean a failure of the store itself.
_OF_THE_STORE: Final = re.compile(
    r"Generic \w+ error|error sending request|timed? ?out|Forbidden|ermissionDenied"
)

_DDL_NAMES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}

# Operations that change how rows are stored and not which rows there are.
MAINTENANCE: Final = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END", "REORG"})
RESTORE: Final = "RESTORE"
PROPERTIES_OPERATION: Final = "SET TBLPROPERTIES"
FEATURE_OPERATION: Final = "DROP FEATURE"


@dataclass(frozen=True, slots=True)
class TableLog:
    """The latest state of one Delta table.

    Attributes:
        app_id: the pipeline's transaction application id, from the table's properties; "" in a
            table that the pipeline did not create.
        transaction_version: Delta's transaction id under `app_id`; -1 if none was committed.
        columns: column name -> Delta type as DDL text, "" for nested types.
        comments: of columns, "" for the table's own; without empty ones.
        needs_spark: why only Spark may change its rows (`plain_table`); "" if we may.
        mapped: by column name, if the table has column mapping.
        engine: by which a batch was just applied (`TableVersion`).
    """

    version: int
    app_id: str
    transaction_version: int
    columns: dict[str, str]
    properties: dict[str, str]
    comments: Mapping[str, str] = field(default_factory=dict)
    reader_features: tuple[str, ...] = ()
    needs_spark: str = ""
    mapped: Mapping[str, MappedColumn] = field(default_factory=dict)
    engine: str = ""

    def physical(self, column: str) -> str:
        """The name under which data files and statistics hold a column."""
        return self.mapped[column].name if column in self.mapped else column


@dataclass(frozen=True, slots=True)
class Commit:
    """`restored` is the version whose rows a RESTORE has put back."""

    version: int
    operation: str
    user_metadata: dict[str, Any]
    restored: int = -1


def read_table_log(
    path: Path, *, version: int | None = None, is_new: bool = True
) -> TableLog | None:
    """At `version` or now; None if there is no table, or only the beginning of one
    (`is_interrupted_create`). For `is_new` see `log_copy`. Raises LakeStateError: its log cannot be
    read; LakeUnreachableError: its object store does not answer.
    """
    with log_on_disk(path, version=version, is_new=is_new) as folder:
        return _read_table_log(path, folder, version=version)


def _read_table_log(path: Path, folder: Path, *, version: int | None) -> TableLog | None:
    if not (folder / LOG_FOLDER).is_dir():
        return None
    try:
        if not may_be_table(folder):
            return None
        table = open_delta(folder, version=version)
        properties = dict(table.metadata().configuration)
        app_id = properties.get(APP_ID_PROPERTY, "")
        transaction_version = table.transaction_version(app_id) if app_id else None
        return TableLog(
            version=table.version(),
            app_id=app_id,
            transaction_version=-1 if transaction_version is None else int(transaction_version),
            columns={
                column.name: _ddl_type(column.type.to_json()) for column in table.schema().fields
            },
            properties=properties,
            comments=_comments(table),
            reader_features=_reader_features(table),
            needs_spark=rows_refusal(table),
            mapped=mapped_columns(table),
        )
    except CdcError:
        raise
    except Exception as error:  # whatever the library says of a log concerns this table only
        if is_interrupted_create(path):
            return None
        raise unreadable_log(path, error) from None


def may_be_table(path: Path) -> bool:
    """Whether a folder that has a log has a commit in it.

    In an object store True: the library's own function lets no other thread run while it waits
    for the store, so that leases could not be renewed. Opening the table tells.
    """
    from deltalake import DeltaTable

    return is_object(path) or DeltaTable.is_deltatable(str(path))


def open_delta(path: Path, *, version: int | None = None) -> DeltaTable:
    """Raises what `deltalake` raises: see `unreadable_log`."""
    from deltalake import DeltaTable

    return DeltaTable(str(path), version=version, storage_options=_log_options(path))


def unreadable_log(path: Path, error: Exception) -> CdcError:
    got = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    if is_object(path) and _OF_THE_STORE.search(got):
        return LakeUnreachableError(
            f"the object store does not answer as expected: {path}",
            setting="sink.lake_path",
            got=answer_of(hide(str(error), path.storage.secrets)),
            next_step="check the network and sink.storage, then start the run again",
        )
    return LakeStateError(
        f"the log of the Delta table in {path} cannot be read",
        got=got,
        next_step=f"restore {path / LOG_FOLDER} from a backup of the lake, or move {path} away and "
        "take a new snapshot of the table",
    )


def _log_options(path: Path) -> dict[str, str] | None:
    return delta_options(path) if is_object(path) else None


def _comments(table: DeltaTable) -> dict[str, str]:
    fields = {field.name: (field.metadata or {}).get("comment") for field in table.schema().fields}
    texts = {**fields, "": table.metadata().description}
    return {name: text for name, text in texts.items() if text and isinstance(text, str)}


def _reader_features(table: DeltaTable) -> tuple[str, ...]:
    protocol = table.protocol()
    if protocol.min_reader_version == 2:
        return ("columnMapping",)
    return tuple(sorted(protocol.reader_features or ()))


def _ddl_type(text: str) -> str:
    json_type = json.loads(text)
    return _DDL_NAMES.get(json_type, json_type) if isinstance(json_type, str) else ""


def read_commit(path: Path, version: int) -> Commit | None:
    """None if the log's retention has removed it. Raises LakeStateError: the file is damaged."""
    lines = read_commit_lines(path, version)
    if lines is None:
        return None
    info: dict[str, Any] = {}
    try:
        for line in lines:
            if '"commitInfo"' in line:
                info = json.loads(line).get("commitInfo", info)
    except ValueError as error:
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


def newest_change(path: Path, version: int) -> Commit | None:
    """The newest commit up to a version that is more than maintenance; None if the log's
    retention has removed it. Raises LakeStateError: a commit's file is damaged.
    """
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


def damaged_log(file: Path, error: Exception) -> LakeStateError:
    return LakeStateError(
        f"a file of a Delta table's log cannot be read: {file}",
        got=said_by(error),
        next_step="restore this file from a backup of the lake",
    )


def commit_note(app_id: str, batch_number: int) -> str:
    return json.dumps({"cdc_app_id": app_id, "cdc_batch": batch_number})


def maintenance_note(app_id: str) -> str:
    """Of our commits that change a table's properties or features alone."""
    return json.dumps({"cdc_app_id": app_id, "cdc_maintenance": True})


def is_maintenance(commit: Commit, *, app_id: str) -> bool:
    """Whether a commit changed no row: Delta's own maintenance, or our change of settings."""
    if commit.operation in (PROPERTIES_OPERATION, FEATURE_OPERATION):
        return commit.user_metadata == {"cdc_app_id": app_id, "cdc_maintenance": True}
    return commit.operation in MAINTENANCE


def is_of_batch(commit: Commit, *, app_id: str, batch_number: int) -> bool:
    return commit.user_metadata == {"cdc_app_id": app_id, "cdc_batch": batch_number}


def check_owner(there: TableLog, table: str, app_id: str, *, path: Path) -> None:
    """Raises LakeStateError: another source's, created again, or not made by the pipeline."""
    if there.app_id == app_id and there.properties.get(TABLE_PROPERTY) == table:
        return
    owner = there.properties.get(SOURCE_PROPERTY)
    of = (
        f"source {owner}, table {there.properties.get(TABLE_PROPERTY)}, {there.app_id}"
        if owner
        else "another program"
    )
    raise LakeStateError(
        f"the Delta table in {path} is not the one that was created for this target",
        table=table,
        expected=f"application id {app_id}",
        got=f"a table of {of}",
        next_step="move that table away and restore the target from a backup, or use a separate "
        "lake for this source",
    )


# Files on their way to another name (a leading dot), checksums, and folders that Delta makes before
# the first commit.
_NO_COMMIT: Final = re.compile(r"\..*|.*\.(crc|tmp)|_commits|_staged_commits|_sidecars")
_FIRST_COMMIT: Final = f"{0:020d}.json"


def is_interrupted_create(path: Path) -> bool:
    """Whether a log has no commit. An empty first commit counts as none: a power cut leaves one
    if the file was never flushed to the disk.
    """
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
