"""One capture of an archive on a cluster, with rows decoded in the driver or on executors, and the
comparison of what both made."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.sink.cpu import cpu_s, jvm_pid

WAYS: Final = ("driver", "executors")
NAME: Final = "bench"
SETTINGS: Final = {"spark.executor.memory": "1g"}


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU-seconds of a capture: of the driver's own process, and of its JVM, each from its start
    on; and the changes that it applied."""

    process_s: float
    jvm_s: float
    changes: int
    wall_s: float

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def config_of(way: str, archive: Path, lake: Path, master: str, *, stop: int | None = None) -> Any:
    """Return the configuration of a capture, up to an offset of the journal if one is given."""
    from cdc_pipeline.config.pipeline_config import PipelineConfig

    journal = next(iter(sorted(archive.iterdir()))).name
    bound = {} if stop is None else {"bound": {"journal": journal, "offset": stop}}
    return PipelineConfig.model_validate(
        {
            "name": NAME,
            "source": {"kind": "archive", "directory": archive},
            "batch": {"decode": way},
            "sink": {
                "lake_path": lake,
                "spark": {"master": master, "driver_memory": "1g", "settings": SETTINGS},
            },
            **bound,
        }
    )


def run(way: str, archive: Path, lake: Path, master: str, *, stop: int | None = None) -> Spent:
    """Capture into an empty lake in this process, which does nothing else."""
    from cdc_pipeline.position.cursor import MemoryCursorStore
    from cdc_pipeline.run.capture.capture import capture

    began_s = time.monotonic()
    config = config_of(way, archive, lake, master, stop=stop)
    report = capture(config, cursors=MemoryCursorStore())
    from pyspark.sql import SparkSession

    jvm_s = cpu_s(jvm_pid(SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()))
    changes = sum(
        table.rows_inserted + table.rows_updated + table.rows_deleted
        for table in report.tables.values()
    )
    return Spent(cpu_s(os.getpid()), jvm_s, changes, time.monotonic() - began_s)


def first_end(archive: Path, size_bytes: int) -> int:
    """Return where the first transaction ends behind so many bytes of the only journal."""
    import numpy as np

    from cdc_pipeline.binlog.transactions.grouping import TransactionPass
    from cdc_pipeline.source.archive.files import read_journal

    (journal,) = archive.iterdir()
    transactions = TransactionPass()
    for chunk in read_journal(journal, chunk_bytes=max(size_bytes, 1 << 20)):
        transactions.apply(chunk)
        events = chunk.events
        begins = (events["tx_ordinal"] == 0) & (events["tx_offset"] >= 0)
        ends = np.flatnonzero(begins & (events["offset"] > size_bytes))
        if len(ends):
            return int(events["offset"][ends[0]])
    raise SystemExit("the journal has no transaction that ends there")


def contents(folder: Path) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Return of each way's lake, by table: rows, and two sums over hashes of whole rows,
    `_cdc_seq` included."""
    from cdc_pipeline.config.pipeline_config import SparkConfig
    from cdc_pipeline.sink.spark.session import SparkProvider

    spark: Any = SparkProvider(SparkConfig(master="local[2]", driver_memory="2g")).session()
    found: dict[str, dict[str, tuple[int, int, int]]] = {}
    for way in WAYS:
        lake = folder / way
        for log in sorted(lake.glob("*/*/_delta_log")):
            frame = spark.read.format("delta").load(str(log.parent))
            hashes = frame.selectExpr("xxhash64(*) AS one", "hash(*) AS other")
            count, one, other = hashes.selectExpr(
                "count(*)", "bit_xor(one)", "sum(CAST(other AS BIGINT))"
            ).collect()[0]
            table = f"{log.parent.parent.name}.{log.parent.name}"
            found.setdefault(table, {})[way] = (int(count), int(one), int(other))
    return found
