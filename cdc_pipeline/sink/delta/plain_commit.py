"""Build one Delta commit without a JVM: rows marked as deleted and rows added, under one
transaction id.

For tables whose commits need nothing more (`TableLog.needs_spark`): a small change then costs
milliseconds, and a run of small changes starts no Spark. MERGE would read the target three times
(which files, which rows to write, which rows to mark) and join it each time.

Rules:
- A commit is based on exactly one version: it is put as the next one, whole and only if no other
  commit is there (on a disk a link of a synced file, in an object store a conditional put). So
  whatever was read of that version still holds when
  the commit counts, and no rule about which commits conflict is needed: if another writer was
  first, the work is repeated from the version that it made (`failures`).
- The transaction id is one of the commit's actions: a repeated batch finds it.
- A file's statistics stay true: bounds become wide when rows are marked (`tightBounds`).
- A checkpoint is due when as many commits as the table's interval have no checkpoint, whoever made
  them (two in an object store, if the log is small): one that a kill or an error prevented is
  written after the next commit. If that fails for three intervals, `can_commit` refuses, and Spark
  takes over.
- `create_plain` says what Delta's own CREATE TABLE says: protocol, columns and properties are the
  same, field by field. Only columns of plain types, of which Delta accepts every name; no layout,
  no defaults of the session. Everything else is created by Spark (`can_create`).
- Files are written before the commit that names them. A kill in between leaves files that a vacuum
  removes.

Source: Delta's protocol: "Delta Log Entries", "Add File and Remove File", "Deletion Vectors",
"Transaction Identifiers", "Commit Provenance Information", "Checkpoints", "Change Metadata",
"Protocol Evolution", "Table Features", "Schema Serialization Format".
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.errors import CdcError, LockError
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.lake.storage.storage_settings import delta_options
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.data_file import json_text, plain_type
from cdc_pipeline.sink.delta.deletion_vectors import (
    bitmap_bytes,
    is_readable,
    rows_of_vector,
    write_vectors,
)
from cdc_pipeline.sink.delta.failures import VersionTakenError
from cdc_pipeline.sink.delta.log import LAST_CHECKPOINT, LOG_FOLDER, commit_file, last_checkpoint
from cdc_pipeline.sink.delta.log_copy import log_on_disk, log_tail, note_commit
from cdc_pipeline.sink.delta.replay import DataFile
from cdc_pipeline.sink.delta.table_log import TableLog

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger(__name__)

# Delta's name for a commit that no command of its own made.
_OPERATION: Final = "Manual Update"
_CHECKPOINT_EVERY: Final = 10  # commits, by Delta's default
_INTERVALS_MAX: Final = 3
# A commit that no checkpoint covers is a request of each later run, a small checkpoint is one too.
_SMALL_LOG_BYTES: Final = 1 << 20
_SMALL_LOG_INTERVAL: Final = 2
# The fields of an ``add`` action that its ``remove`` repeats.
_REMOVED_FIELDS: Final = ("partitionValues", "size", "tags", "deletionVector", "stats")


def checkpoint_interval(there: TableLog) -> int:
    return max(1, int(there.properties.get("delta.checkpointInterval", _CHECKPOINT_EVERY)))


def can_commit(path: Path, there: TableLog) -> bool:
    behind = there.version - _newest_checkpoint(path)
    return not there.needs_spark and behind <= _INTERVALS_MAX * checkpoint_interval(there)


def _newest_checkpoint(path: Path) -> int:
    tail = log_tail(path, is_new=False)
    return last_checkpoint(path) if tail is None else tail.checkpoint


def can_mark(files: Sequence[DataFile]) -> bool:
    return all(
        file.rows is not None and is_readable(file.action.get("deletionVector")) for file in files
    )


class PlainCommit:
    """On a table that `can_commit` accepts, as `there` describes it; `note`: its user metadata."""

    def __init__(self, path: Path, there: TableLog, *, note: str) -> None:
        self.path = path
        self.there = there
        self._note = note
        self._actions: list[dict[str, Any]] = []
        self._has_read = False

    def mark_deleted(self, marked: list[tuple[DataFile, NDArray[np.int64]]]) -> None:
        """By their numbers in files that `can_mark` accepts; it depends on rows then."""
        self._has_read, grown = True, []
        for file, rows in marked:
            vector = file.action.get("deletionVector")
            before = np.zeros(0, np.int64) if vector is None else rows_of_vector(self.path, vector)
            after = np.union1d(before, rows)
            if len(after) == len(before):
                continue
            self._actions.append(removed(file.action))
            if len(after) < (file.rows or 0):
                grown.append((file, after))
        if grown:
            vectors = write_vectors(self.path, [bitmap_bytes(rows) for _, rows in grown])
            for (file, rows), vector in zip(grown, vectors, strict=True):
                wide = {
                    **file.action,
                    "stats": json_text({**file.statistics, "tightBounds": False}),
                    "dataChange": True,
                    "deletionVector": {**vector, "cardinality": len(rows)},
                }
                self._actions.append({"add": wide})

    def add_files(self, adds: Sequence[dict[str, Any]]) -> None:
        self._actions += ({"add": add} for add in adds)

    def commit(self, *, app_id: str, version: int) -> TableLog:
        """VersionTakenError: another commit came first; SinkError: the disk refuses the file."""
        now_ms = int(time.time() * 1000)
        new_version = self.there.version + 1
        mark = {"appId": app_id, "version": version, "lastUpdated": now_ms}
        put_commit(
            self.path,
            new_version,
            [{"txn": mark}, *self._actions],
            _OPERATION,
            {},
            note=self._note,
            is_blind=not self._has_read,
        )
        there = replace(self.there, version=new_version, transaction_version=version)
        write_due_checkpoint(self.path, there)
        return there


def put_commit(
    path: Path,
    version: int,
    actions: Sequence[dict[str, Any]],
    operation: str,
    parameters: Mapping[str, Any],
    *,
    note: str,
    is_blind: bool = False,
) -> None:
    """`is_blind`: it depends on no row of the table. Raises VersionTakenError, SinkError."""
    info = {
        "timestamp": int(time.time() * 1000),
        "operation": operation,
        "operationParameters": parameters,
        **({"readVersion": version - 1} if version else {}),
        "isolationLevel": "Serializable",
        "isBlindAppend": is_blind,
        "operationMetrics": {},
        "userMetadata": note,
        "engineInfo": "cdc-pipeline",
        "txnId": str(uuid.uuid4()),
    }
    lines = [{"commitInfo": info}, *actions]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    file = commit_file(path, version)
    if not storage_of(file).put_if_absent(file, text.encode()):
        note_commit(file, version, b"")
        raise VersionTakenError(
            "another writer's commit came first",
            expected=f"version {version - 1} as the newest one",
            got=f"version {version} of another writer",
            next_step="start the run again: it finishes this batch",
        )
    note_commit(file, version, text.encode())


def removed(add: dict[str, Any]) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": add["path"],
        "deletionTimestamp": int(time.time() * 1000),
        "dataChange": True,
        "extendedFileMetadata": True,
        **{name: add[name] for name in _REMOVED_FIELDS if name in add},
    }
    return {"remove": action}


def write_due_checkpoint(path: Path, there: TableLog) -> None:
    """If that fails the commit counts all the same: see the rules."""
    from deltalake.exceptions import DeltaError

    try:
        with suppress(DeltaError, OSError):
            _write_due_checkpoint(path, there)
    except LockError:
        raise
    except CdcError as error:  # of an object store
        _log.warning("a checkpoint of %s is not written: %s", path, error)


def _write_due_checkpoint(path: Path, there: TableLog) -> None:
    tail, interval = log_tail(path, is_new=False), checkpoint_interval(there)
    is_small = tail is not None and tail.size_bytes <= _SMALL_LOG_BYTES
    before = max(_newest_checkpoint(path), 0)
    if there.version - before < (_SMALL_LOG_INTERVAL if is_small else interval):
        return
    if not is_object(path):
        # What Hadoop has kept as checksum of the note would not fit the new note.
        (path / LOG_FOLDER / f".{LAST_CHECKPOINT}.crc").unlink(missing_ok=True)
    with log_on_disk(path, version=there.version, is_new=False) as folder:
        _open_delta(folder, version=there.version).create_checkpoint()
        if folder != path:
            names = [f"{there.version:020d}.checkpoint.parquet"]
            if there.version // interval > before // interval:
                names.append(LAST_CHECKPOINT)  # readers find newer ones by listing
            for name in names:
                content = (folder / LOG_FOLDER / name).read_bytes()
                (path / LOG_FOLDER / name).write_bytes(content)


def _open_delta(path: Path, *, version: int) -> DeltaTable:
    from deltalake import DeltaTable

    options = delta_options(path) if is_object(path) else None
    return DeltaTable(str(path), version=version, storage_options=options)


_JSON_NAMES: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
# Delta refuses some other characters in names, or needs column mapping for them.
_NAME: Final = re.compile(r"\w+")
_DEFAULTS: Final = "spark.databricks.delta.properties.defaults."
_NTZ: Final = "timestamp_ntz"


def can_create(
    columns: Sequence[TargetColumn], properties: Mapping[str, str], *, fixed: Mapping[str, str]
) -> bool:
    """Whether `create_plain` may; `fixed` are the configuration's own settings of the session."""
    return (
        properties.get("delta.enableDeletionVectors") == "true"
        and not any(name.startswith(_DEFAULTS) for name in fixed)
        and len({column.name.lower() for column in columns}) == len(columns)
        and all(
            _NAME.fullmatch(column.name) and plain_type(column.delta_type) is not None
            for column in columns
        )
    )


def create_plain(
    path: Path,
    columns: Sequence[TargetColumn],
    properties: Mapping[str, str],
    *,
    comments: Mapping[str, str],
    note: str,
) -> None:
    """The folder is empty or absent. VersionTakenError: another has created it; SinkError."""
    fields = [
        {
            "name": column.name,
            "type": _JSON_NAMES.get(column.delta_type, column.delta_type),
            "nullable": True,
            "metadata": {"comment": comments[column.name]} if column.name in comments else {},
        }
        for column in columns
    ]
    features = ["deletionVectors"]
    if any(column.delta_type == _NTZ for column in columns):
        features.append("timestampNtz")
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "invariants", "appendOnly"],
    }
    metadata = new_metadata(fields, properties)
    if "" in comments:
        metadata["description"] = comments[""]
    parameters = {
        "partitionBy": "[]",
        "clusterBy": "[]",
        "description": comments.get(""),
        "isManaged": "false",
        "properties": json.dumps(dict(properties), ensure_ascii=False, separators=(",", ":")),
    }
    actions = [{"metaData": metadata}, {"protocol": protocol}]
    put_commit(path, 0, actions, "CREATE TABLE", parameters, note=note, is_blind=True)


def new_metadata(
    fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str]
) -> dict[str, Any]:
    schema = {"type": "struct", "fields": fields}
    return {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, ensure_ascii=False, separators=(",", ":")),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": int(time.time() * 1000),
    }
