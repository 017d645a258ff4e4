"""A whole capture without a JVM: batches are applied to tables whose logs are written in plain Python.

What a table holds is the set of changes that it was given (their `_seq`), as a MERGE's guard would keep them. It
stands in a file beside the log. Faults of one target are raised by name of the step, as whatever the step could raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SinkError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.lake.staged_file import verify
from cdc_pipeline.pipeline.capture.capture import capture
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink import delta_sink
from cdc_pipeline.sink.apply import merge
from cdc_pipeline.sink.delta.half_made import clear_half_made
from cdc_pipeline.sink.delta.log import (
    APP_ID_PROPERTY,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    TableLog,
    commit_note,
    read_table_log,
)
from cdc_pipeline.sink.delta.transactions import transaction_version
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.modes.rescue import with_rescued_column
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.kills import Killed, KilledAt

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ROWS = "changes.json"
STEPS = ("log", "create", "schema", "rows", "log_after", "register")

_LOG_TYPES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["timestampNtz"],
    "writerFeatures": ["timestampNtz"],
}


def _fault(step: str, error: Callable[[], Exception]) -> Callable[[str], None]:
    def check(at: str) -> None:
        if at == step:
            raise error()

    return check


@dataclass
class PlainShop:
    """A pipeline over the archive of a golden journal.

    Attributes:
        fault: called with the name of each step of the tables `failing`; raises what the step fails with.
        machine_fails: what a probe of the lake finds.
        registered: tables in the catalog.
    """

    config: PipelineConfig
    failing: set[str] = field(default_factory=set)
    fault: Callable[[str], None] | None = None
    machine_fails: bool = False
    registered: list[str] = field(default_factory=list)
    cursors: MemoryCursorStore = field(default_factory=MemoryCursorStore)

    @property
    def paths(self) -> LakePaths:
        return LakePaths(self.config.sink.lake_path, self.config.name)

    def run(self, transactions: int | None = None, **rest: Any) -> Any:
        bound = None if transactions is None else {"transactions": transactions}
        config = (
            self.config
            if bound is None
            else PipelineConfig.model_validate({**self.config.model_dump(), "bound": bound})
        )
        return capture(config, cursors=self.cursors, **rest)

    def stop_at(self, joint: str) -> None:
        """A run that a kill ends at a joint."""
        with pytest.raises(Killed):
            self.run(observer=KilledAt(joint))

    def fails_at(self, step: str, table: str, error: Callable[[], Exception]) -> None:
        """From now on, this step of this table raises."""
        self.failing, self.fault = {table}, _fault(step, error)

    def heal(self) -> None:
        """The fault is gone."""
        self.failing, self.fault = set(), None

    def reach(self, table: str, step: str) -> None:
        """A step of a table begins."""
        if self.fault is not None and table in self.failing:
            self.fault(step)

    def changes(self, table: str) -> list[str]:
        """The changes that a table was given."""
        return _changes_in(self.paths.table(table))

    def all_changes(self) -> dict[str, list[str]]:
        """Those of every table of the last cut, none of which stands still."""
        cut = self.last_cut()
        assert cut.cursor.suspended == {}
        return {name: self.changes(name) for name in cut.tables}

    def last_cut(self) -> Cut:
        file = max(self.paths.cuts.glob("*.json"))
        return Cut.model_validate_json(file.read_bytes())

    def suspended(self) -> dict[str, str]:
        assert self.cursors.cursor is not None
        return {name: held.error for name, held in self.cursors.cursor.suspended.items()}

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of Spark in every sink of this process."""
        monkeypatch.setattr(SparkProvider, "session", lambda _self: object())
        monkeypatch.setattr(delta_sink, "apply_target", self.apply)
        monkeypatch.setattr(delta_sink, "is_applied", self.is_applied)
        monkeypatch.setattr(delta_sink, "register", self.register)
        for name in ("check_answers", "probe_lake", "probe_delta"):
            monkeypatch.setattr(delta_sink, name, self.probe)

    # -- in the place of Spark ----------------------------------------------------------------------------------------

    def apply(
        self, _spark: object, record: BatchRecord, target: RecordedTarget, *, paths: LakePaths, **_rest: object
    ) -> TableLog:
        """As `merge.apply_target`."""
        path = paths.table(target.table)
        if target.content is not None:
            self.reach(target.table, "content")
            if read_table_log(path) is None:
                clear_half_made(path, table=target.table)
            side = paths.lake / target.content.path / ROWS
            path.mkdir(parents=True, exist_ok=True)
            (path / ROWS).write_text(side.read_text() if side.exists() else "[]")
            _commit(path, record, target, "WRITE", is_new=True, version=transaction_version(record.batch_number, 0))
            log = read_table_log(path)
            assert log is not None
            return log
        seen = {seq for file in target.files for seq in _seqs(verify(file, lake=paths.lake, table=target.table))}
        there = read_table_log(path)
        if target.create and there is None:
            self.reach(target.table, "create")
            clear_half_made(path, table=target.table)
            _commit(path, record, target, "CREATE TABLE", is_new=True)
        if target.schema_steps:
            self.reach(target.table, "schema")
            _commit(path, record, target, "CHANGE", is_new=True, version=transaction_version(record.batch_number, 1))
        if target.files:
            self.reach(target.table, "rows")
            (path / ROWS).write_text(json.dumps(sorted(seen.union(_changes_in(path)))))
            _commit(path, record, target, "MERGE", version=transaction_version(record.batch_number, 0))
        self.reach(target.table, "log_after")
        log = read_table_log(path)
        assert log is not None
        return log

    def is_applied(self, record: BatchRecord, target: RecordedTarget, *, paths: LakePaths) -> bool:
        """As `merge.is_applied`."""
        self.reach(target.table, "log")
        return merge.is_applied(record, target, paths=paths)

    def register(self, _session: object, _paths: LakePaths, _config: object, table: str) -> None:
        """As `catalog.register`."""
        self.reach(table, "register")
        self.registered.append(table)

    def probe(self, *_place: object) -> Any:
        """As `probe.probe_lake` and `probe.probe_delta`."""
        if self.machine_fails:
            raise SinkError("the lake cannot be written")


def _changes_in(path: Path) -> list[str]:
    file = path / ROWS
    return json.loads(file.read_text()) if file.exists() else []


def _seqs(file: Path) -> list[str]:
    return [str(seq) for seq in pq.read_table(file, columns=["_seq"]).column(0).to_pylist()]


def _commit(
    path: Path, record: BatchRecord, target: RecordedTarget, operation: str, *, is_new: bool = False, version: int = -1
) -> None:
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    number = len(list(log.glob("*.json")))
    note = commit_note(target.app_id, record.batch_number)
    actions: list[dict[str, object]] = [{"commitInfo": {"operation": operation, "userMetadata": note}}]
    if not number:
        actions.append({"protocol": _PROTOCOL})
    if is_new:
        actions.append({"metaData": _metadata(record, target)})
    if version >= 0:
        actions.append({"txn": {"appId": target.app_id, "version": version}})
    (log / f"{number:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def _metadata(record: BatchRecord, target: RecordedTarget) -> dict[str, object]:
    columns: list[TargetColumn] = [*with_rescued_column(target).columns]
    columns += SINK_MODES[target.mode].own_columns(target.columns, target.key)
    fields = [
        {
            "name": column.name,
            "type": "string" if "<" in column.delta_type else _LOG_TYPES.get(column.delta_type, column.delta_type),
            "nullable": True,
            "metadata": {},
        }
        for column in columns
    ]
    return {
        "id": "6f1c0b9e-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {
            SOURCE_PROPERTY: record.source,
            TABLE_PROPERTY: target.table,
            APP_ID_PROPERTY: target.app_id,
        },
        "createdTime": 0,
    }


def archive_at(directory: Path) -> Path:
    """An archive of the golden journal of MySQL."""
    directory.mkdir(parents=True)
    (directory / "binlog.000001").write_bytes((GOLDEN / "mysql-common.000001").read_bytes())
    return directory


def plain_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, include: list[str], **sections: Any) -> PlainShop:
    """A pipeline over the golden journal of MySQL, with a lake of its own and nothing applied."""
    journals = archive_at(tmp_path / "journals")
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": journals},
            "tables": {"include": include},
            "start": "earliest",
            "sink": {"lake_path": tmp_path / "lake", **sections.pop("sink", {})},
            **sections,
        }
    )
    shop = PlainShop(config)
    shop.stand_in(monkeypatch)
    return shop
