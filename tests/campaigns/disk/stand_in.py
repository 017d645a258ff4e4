"""Delta's part of a batch in plain Python, for what concerns files and not rows: no JVM, and no
wait for the disk.

It makes mirrors with a key, of whole images, in the formats that Delta writes: a log of JSON files,
Parquet files, now and then a checkpoint with `_last_checkpoint`, and beside each a checksum file as
Hadoop's. A commit rewrites the table. Tables in memory (`tests/support/memory_sink.py`) cannot take
its place: what these tests break is the files.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_pipeline.binlog.seq_columns import SEQ_TYPE
from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import MergeError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, RecordedTarget
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.sink import delta_sink
from cdc_pipeline.sink.delta.commit import MERGE_STEP, transaction_version
from cdc_pipeline.sink.delta.log import LAST_CHECKPOINT, LOG_FOLDER, commit_file, commit_note
from cdc_pipeline.sink.delta.table_log import (
    APP_ID_PROPERTY,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    TableLog,
    read_table_log,
)
from cdc_pipeline.sink.durable.retention import new_properties
from cdc_pipeline.sink.modes.expand import DELETE, LEAVE, TS_TYPE
from cdc_pipeline.sink.modes.mode_columns import OP_COLUMN, SEQ_COLUMN, TS_COLUMN, own_columns
from tests.support.delta_reader import newest_rows, newest_version

CHECKPOINT_EVERY = 3
_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
_DELTA = {"int": "integer", "bigint": "long"}


class NoSpark:
    started = False

    def session(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    def stop(self) -> None:
        pass


def install(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(delta_sink, "apply_target", apply_target)


def apply_target(
    spark: Any, record: BatchRecord, target: RecordedTarget, *, paths: LakePaths, **rest: Any
) -> TableLog:
    """As `merge.apply_target`: a mirror by key. Raises MergeError where the disk refuses a file."""
    try:
        return _applied(spark, record, target, paths=paths, **rest)
    except OSError as error:
        raise MergeError(
            "a batch cannot be applied", got=str(error), next_step="start the run again"
        ) from error


def _applied(
    _spark: Any,
    record: BatchRecord,
    target: RecordedTarget,
    *,
    paths: LakePaths,
    config: SinkConfig,
    check_lock: Callable[[], None],
    run: None = None,
    cut: None = None,
) -> TableLog:
    table = paths.table(target.table)
    note = commit_note(target.app_id, record.batch_number)
    if read_table_log(table) is None:
        configuration = {
            **new_properties(config),
            SOURCE_PROPERTY: record.source,
            TABLE_PROPERTY: target.table,
            APP_ID_PROPERTY: target.app_id,
        }
        commit(table, [*_created(target, configuration)], operation="CREATE TABLE", note=note)
    rows = {tuple(row[name] for name in target.spec.key): row for row in newest_rows(table)}
    for staged in target.files:
        for row in pq.read_table(verify(staged, lake=paths.lake, table=target.table)).to_pylist():
            values = {column.name: row[f"c{at}"] for at, column in enumerate(target.spec.columns)}
            key = tuple(values[name] for name in target.spec.key)
            rows.pop(key, None)
            if row["_op"] not in (DELETE, LEAVE):
                rows[key] = {
                    **values,
                    OP_COLUMN: "upsert",
                    SEQ_COLUMN: row["_seq"],
                    TS_COLUMN: row["_ts"],
                }
    version = transaction_version(record.batch_number, MERGE_STEP)
    actions: list[dict[str, Any]] = [
        {"txn": {"appId": target.app_id, "version": version, "lastUpdated": _now_ms()}}
    ]
    actions += [
        {"remove": {"path": path, "deletionTimestamp": _now_ms(), "dataChange": True}}
        for path in live(table)
    ]
    actions.append({"add": write_rows(table, list(rows.values()), _schema(target))})
    commit(table, actions, operation="MERGE", note=note)
    log = read_table_log(table)
    assert log is not None
    return log


def commit(table: Path, actions: list[dict[str, Any]], *, operation: str, note: str = "") -> int:
    """One more commit, with a checkpoint if it is its turn; its version. Nothing of it is waited
    for."""
    log = table / LOG_FOLDER
    log.mkdir(parents=True, exist_ok=True)
    version = newest_version(table) + 1 if any(log.glob("*.json")) else 0
    info: dict[str, Any] = {"timestamp": _now_ms(), "operation": operation}
    if note:
        info["userMetadata"] = note
    lines = [
        json.dumps(action, separators=(",", ":")) + "\n"
        for action in ({"commitInfo": info}, *actions)
    ]
    _put(commit_file(table, version), "".join(lines).encode())
    if version and version % CHECKPOINT_EVERY == 0:
        checkpoint(table)
    return version


def checkpoint(table: Path) -> None:
    """A checkpoint of the newest version, made by delta-rs elsewhere: it asks the kernel past the C
    library."""
    from deltalake import DeltaTable

    log = table / LOG_FOLDER
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(log, Path(folder, "t", LOG_FOLDER)))
        DeltaTable(str(copy.parent)).create_checkpoint()
        new = [
            file
            for file in copy.iterdir()
            if ".checkpoint." in file.name and not (log / file.name).exists()
        ]
        with suppress(OSError):  # Delta goes on without one, too
            for file in (*new, copy / LAST_CHECKPOINT):
                _put(log / file.name, file.read_bytes())


def live(table: Path) -> list[str]:
    found: dict[str, None] = {}
    for version in range(newest_version(table) + 1):
        for line in commit_file(table, version).read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                found[action["add"]["path"]] = None
            elif "remove" in action:
                found.pop(action["remove"]["path"], None)
    return list(found)


def write_rows(table: Path, rows: list[dict[str, Any]], schema: pa.Schema | None) -> dict[str, Any]:
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    content = sink.getvalue().to_pybytes()
    _put(table / name, content)
    statistics = json.dumps({"numRecords": len(rows)})
    return {
        "path": name,
        "partitionValues": {},
        "size": len(content),
        "modificationTime": _now_ms(),
        "dataChange": True,
        "stats": statistics,
    }


def _put(path: Path, content: bytes) -> None:
    """A file that appears under its name when it is whole, and its checksum file."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.rename(path)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + len(content).to_bytes(8, "big"))


def _schema(target: RecordedTarget) -> pa.Schema:
    own = {OP_COLUMN: pa.string(), SEQ_COLUMN: SEQ_TYPE, TS_COLUMN: TS_TYPE}
    return pa.schema([*((c.name, _ARROW[c.delta_type]) for c in target.spec.columns), *own.items()])


def _created(target: RecordedTarget, configuration: Mapping[str, str]) -> list[dict[str, Any]]:
    columns = [
        *target.spec.columns,
        *own_columns(target.spec.mode, target.spec.columns, target.spec.key),
    ]
    fields = [
        {
            "name": c.name,
            "type": _DELTA.get(c.delta_type, c.delta_type),
            "nullable": True,
            "metadata": {},
        }
        for c in columns
    ]
    described = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {
            name: text
            for name, text in configuration.items()
            if not name.startswith("delta.enableD")
        },
        "createdTime": _now_ms(),
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": described}]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
