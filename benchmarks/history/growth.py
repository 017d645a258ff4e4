"""A lake that grows by batches of one transaction, in one process and without a JVM.

Every batch is a capture of the product's own over the archive; only the Delta commit is written by
hand: what Delta logs of a commit that adds no file, and a checkpoint after every hundredth.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.history.tables import History, counted_sink
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta.log import commit_file, commit_note
from tests.support.memory_sink import At

_CHECKPOINT_EVERY = 100


class GrowingLake:
    """A lake with at least one cut, and the runs that make it grow. `config`: of the pipeline; each
    run is bounded to one transaction.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self.config = config.model_copy(
            update={"bound": PipelineConfig.model_validate(_bounded(config)).bound}
        )
        self.paths = LakePaths(config.sink.lake_path, config.name)
        cut = last_cut(self.paths)
        assert cut is not None
        self._app_ids = {name: state.app_id for name, state in cut.cursor.targets.items()}
        self._cursors = MemoryCursorStore(cut.cursor)
        self._history = History(
            self._commit,
            {
                name: At(table.table_version, table.transaction_version)
                for name, table in cut.tables.items()
            },
        )

    def grow(self, runs: int) -> float:
        """Make so many runs of one batch each; return the CPU-seconds of one."""
        begun_s = time.process_time()
        for _ in range(runs):
            sink = counted_sink(self._history, source=self.config.name, config=self.config.sink)
            capture(self.config, cursors=self._cursors, sink=sink)
        return (time.process_time() - begun_s) / runs

    def _commit(self, record: BatchRecord, table: str, made: At) -> None:
        path, app_id = self.paths.table(table), self._app_ids[table]
        now_ms = time.time_ns() // 1_000_000
        actions = (
            {
                "commitInfo": {
                    "timestamp": now_ms,
                    "operation": "WRITE",
                    "operationParameters": {"mode": "Append"},
                    "userMetadata": commit_note(app_id, record.batch_number),
                }
            },
            {
                "txn": {
                    "appId": app_id,
                    "version": made.transaction_version,
                    "lastUpdated": now_ms,
                }
            },
        )
        file = commit_file(path, made.version)
        with file.open("x", encoding="utf-8") as stream:
            stream.writelines(json.dumps(action) + "\n" for action in actions)
        if made.version % _CHECKPOINT_EVERY == 0:
            DeltaTable(str(path)).create_checkpoint()


def _bounded(config: PipelineConfig) -> dict[str, object]:
    return {**config.model_dump(), "bound": {"transactions": 1}}


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
