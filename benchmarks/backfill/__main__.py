"""Eight archived journals into a side lake: with ``--parallel`` beside one after the other, in one
run.

    python -m benchmarks.backfill [--json]          CHANGES=1000000 by default

CPU-seconds of each way's process tree, JVM and Python workers with their start included; each way
in a process of its own. What both made is compared row by row.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.backfill.journals import TABLE, write_archive
from benchmarks.processes import told_by, tree_cpu_s
from benchmarks.report import Figure, report

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


CHANGES = int(os.environ.get("CHANGES", "1000000"))
CPU_TIMES_MAX = 1.5


def measured(way: str, archive: Path, side: Path) -> Spent:
    spent = Spent(**told_by("benchmarks.backfill", "way", way, archive, side))
    print(f"{way}: {spent.cpu_s:.1f} CPU-s, {spent.wall_s:.1f} s", file=sys.stderr, flush=True)
    return spent


def main() -> int:
    if sys.argv[1:2] == ["way"]:
        print(
            json.dumps(fill(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])).plain()), flush=True
        )
        return 0
    if sys.argv[1:2] == ["same"]:
        print(json.dumps(same(Path(sys.argv[2]))), flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="cdc-bench-backfill-") as name:
        folder = Path(name)
        small, archive = folder / "small", folder / "archive"
        write_archive(small, 1)
        measured("parallel", small, folder / "warm")  # kernels that are not compiled yet
        write_archive(archive, CHANGES)
        size_mib = sum(file.stat().st_size for file in archive.iterdir()) / (1 << 20)
        in_order, parallel = (measured(way, archive, folder / way) for way in WAYS)
        rows, differing = told_by("benchmarks.backfill", "same", name)
    if not rows or differing:
        raise SystemExit(f"the two ways differ in {differing:,} of {rows:,} rows")
    share = parallel.bytes_parallel / (1 << 20) / size_mib
    figures = [
        Figure(
            f"{CHANGES / 1e6:g} M changes in {size_mib:,.0f} MiB, one after the other",
            in_order.cpu_s,
            "CPU-s",
        ),
        Figure("... in parallel", parallel.cpu_s, "CPU-s"),
        Figure(
            "... beside one after the other",
            parallel.cpu_s / in_order.cpu_s,
            "times",
            at_most=CPU_TIMES_MAX,
        ),
        Figure("... of the journals, decoded by tasks", 100 * share, "percent", at_least=90),
        Figure("one after the other", in_order.wall_s, "s"),
        Figure("... in parallel", parallel.wall_s, "s"),
        Figure(f"rows that differ, of {rows:,}", differing, "rows", at_most=0),
    ]
    return report("replaying an archive", figures)


if __name__ == "__main__":
    sys.exit(main())
