"""What a lake in a bucket costs: requests of runs, counted at a proxy before a real S3 server.

    python -m benchmarks.bucket [--json]          COMMITS=500 TABLES=20 by default

The source is an archive; its cursor is a table of the bucket too. An idle run is counted after ten
commits of every table and after `COMMITS` of them; a changed table is what an update of each costs
more than an idle run, by the table, over the last ten runs: every second writes checkpoints, and
one removes old files of logs. No run starts Spark.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.report import Figure, report
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.storage.object_storage import storage_for
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.wiring import build_lake_cursors
from cdc_pipeline.sink.delta import log_copy
from tests.campaigns.objects.faulty_store import FaultyStore, Request
from tests.cluster.gateway import running_gateway
from tests.support.event_builder import gtid_body, query_body
from tests.support.journal_builder import JournalBuilder

TABLES: Final = int(os.environ.get("TABLES", "20"))
COMMITS: Final = int(os.environ.get("COMMITS", "500"))
_WRITE, _UPDATE = 30, 31


class _Source:
    """An archive of one journal that grows: each transaction changes a row of every table."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file, self._log = folder / "binlog.000001", JournalBuilder()
        self._transactions = self.changes = 0
        self._log.format_description()
        self._log.event(35, bytes(8))
        for table in range(TABLES):
            self._gtid()
            self._log.event(2, query_body(f"CREATE TABLE t{table:03d} (id INT PRIMARY KEY, v INT)"))
        self.change(_WRITE)

    def change(self, kind: int = _UPDATE) -> None:
        self.changes += 1
        self._gtid()
        self._log.event(2, query_body("BEGIN"))
        rows = [struct.pack("<Bii", 0, 1, self._transactions + at) for at in (0, 1)]
        for table in range(TABLES):
            head = (70 + table).to_bytes(6, "little") + struct.pack("<H", 1)
            name = b"\x04shop\0\x04" + f"t{table:03d}".encode() + b"\0\x02\x03\x03\0\x02"
            self._log.event(19, head + name)
            images = rows if kind == _UPDATE else rows[1:]
            used = b"\3" * len(images)
            body = head + struct.pack("<H", 2) + b"\2" + used + b"".join(images)
            self._log.event(kind, body, flags=0)
        self._log.event(16, struct.pack("<Q", self._transactions))
        self._file.write_bytes(self._log.data)

    def _gtid(self) -> None:
        self._transactions += 1
        at_us = 1_700_000_000_000_000 + self._transactions * 1_000_000
        self._log.event(33, gtid_body(self._transactions, at_us))


def _run(config: PipelineConfig, store: FaultyStore, outcome: str) -> list[Request]:
    # Each run is a process of its own: it knows nothing of the one before.
    storage_for.cache_clear()
    log_copy._tails.clear()
    before = len(store.requests)
    done = capture(config, cursors=build_lake_cursors(config))
    if done.outcome != outcome or "pyspark" in sys.modules:
        raise SystemExit(f"a run without Spark was to end as {outcome}: {done}")
    return store.requests[before:]


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="cdc-bench-bucket-") as folder,
        running_gateway(Path(folder)) as gateway,
        FaultyStore(gateway.store.endpoint) as store,
    ):
        source = _Source(Path(folder) / "journals")
        config = PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": Path(folder) / "journals"},
                "tables": {"include": ["shop.*"]},
                "sink": {
                    "lake_path": gateway.store.lake(),
                    "storage": gateway.store.settings().model_copy(
                        update={"endpoint": store.endpoint}
                    ),
                },
            }
        )
        figures, counts = [], [len(_run(config, store, "applied"))]
        for commits in (10, COMMITS):
            while source.changes < commits:
                source.change()
                counts.append(len(_run(config, store, "applied")))
            idle = len(_run(config, store, "nothing_new"))
            updates = counts[1:][-10:]
            changed = (sum(updates) / len(updates) - idle) / TABLES
            figures += [
                Figure(f"idle run after {commits} commits", idle, "requests", 20 + TABLES),
                Figure("... a changed table", changed, "requests", 8),
            ]
    return report(f"{TABLES} tables in a bucket", figures)


if __name__ == "__main__":
    sys.exit(main())
