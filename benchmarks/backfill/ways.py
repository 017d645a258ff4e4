"""The two ways to fill a side lake, each in a process of its own, and the comparison of what they
made."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.backfill.journals import TABLE
from benchmarks.snapshot.cpu import tree_cpu_s

SPARK: Final = {"master": "local[2]", "driver_memory": "2g"}
WAYS: Final = ("one_after_the_other", "parallel")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a way took: CPU-seconds of its process tree, seconds, journals' bytes that tasks
    decoded."""

    cpu_s: float
    wall_s: float
    bytes_parallel: int

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def fill(way: str, archive: Path, side: Path) -> Spent:
    """Replay the whole archive into a side lake."""
    from cdc_pipeline.config.pipeline_config import PipelineConfig
    from cdc_pipeline.operations.backfill.backfill import backfill
    from cdc_pipeline.run.capture.segments.division import Parallel

    started_s = time.monotonic()
    config = PipelineConfig.model_validate(
        {
            "name": "bench",
            "source": {"kind": "archive", "directory": archive},
            "tables": {"include": [TABLE]},
            "sink": {"lake_path": side.parent / "lake", "spark": SPARK},
        }
    )
    report = backfill(
        config, tables=[TABLE], into=side, parallel=Parallel() if way == "parallel" else None
    )
    told = report.parallel
    return Spent(
        tree_cpu_s(), time.monotonic() - started_s, 0 if told is None else told.bytes_parallel
    )


def same(folder: Path) -> tuple[int, int]:
    """Rows of the table, and how many of the two side lakes differ: every column but our own
    bookkeeping, `_cdc_seq` included."""
    from cdc_pipeline.config.pipeline_config import SparkConfig
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sink.spark.session import SparkProvider

    spark = SparkProvider(SparkConfig(**SPARK)).session()
    one, other = (
        spark.read.format("delta").load(str(LakePaths(folder / way, "bench").table(TABLE)))
        for way in WAYS
    )
    differing = one.exceptAll(other).count() + other.exceptAll(one).count()
    return int(one.count()), int(differing)
