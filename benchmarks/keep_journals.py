"""What keeping journals costs: CPU-seconds of runs of a real server's log into an empty lake, JVM
included, and of reading the same log alone; with and without `source.keep_journals`, in turns.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.decode.workloads import Workload, journals
from benchmarks.report import Figure, report
from benchmarks.sync.__main__ import JOURNAL, serving
from benchmarks.sync.ours import capture
from cdc_pipeline.config.pipeline_config import LiveSourceConfig
from cdc_pipeline.source.live.live import LiveSource

SHARE_PERCENT_MAX: Final = 5.0
_WAYS: Final[dict[str, dict[str, bool] | None]] = {
    "without": None,
    "kept": {},
    "zstd": {"compress": True},
}


def read_cpu_s(job: dict[str, Any]) -> float:
    with closing(LiveSource(LiveSourceConfig(**job), pipeline_name="shop")) as source:
        begin, end = source.earliest_position(), source.end_position()
        source.keep_journals()
        began_s = time.process_time()
        for _ in source.chunks(replace(begin, gtid_set=""), replace(end, gtid_set="")):
            pass
        return time.process_time() - began_s


def main() -> int:
    rounds, only = int(os.environ.get("ROUNDS", "3")), os.environ.get("ONLY", "")
    figures = []
    for workload, journal in journals():
        if only in workload.name:
            figures += _figures(workload, journal, rounds)
    return report("keeping journals", figures)


def _figures(workload: Workload, journal: Path, rounds: int) -> list[Figure]:
    """What keeping adds is the difference of readings: two whole runs differ by more than it."""
    spent = defaultdict[str, list[float]](list)
    with serving(workload, journal) as (server, account):
        for _ in range(rounds):
            for name, keep in _WAYS.items():
                with tempfile.TemporaryDirectory() as folder:
                    job = {"kind": "live", "host": server.host, "port": server.port, **account}
                    if keep is not None:
                        job["keep_journals"] = {"path": f"{folder}/run", **keep}
                    spent[f"run {name}"].append(capture(job).cpu_s)
                    if keep == {}:
                        _check(Path(folder), journal)
                    if keep is not None:
                        job["keep_journals"] = {"path": f"{folder}/read", **keep}
                    spent[f"read {name}"].append(read_cpu_s(job))
    print(workload.name, dict(spent), file=sys.stderr)
    median_s = {name: statistics.median(costs) for name, costs in spent.items()}
    figures = [Figure(f"{workload.name}: {name}", cost, "CPU-s") for name, cost in median_s.items()]
    for name in list(_WAYS)[1:]:
        added_s = median_s[f"read {name}"] - median_s["read without"]
        share = 100 * added_s / median_s["run without"]
        at_most = SHARE_PERCENT_MAX if name == "kept" else None
        figures.append(Figure(f"... {name}: more, of the run", share, "percent", at_most))
    return figures


def _check(folder: Path, journal: Path) -> None:
    (kept,) = folder.rglob(JOURNAL)
    if kept.stat().st_size != journal.stat().st_size:
        raise SystemExit(f"{kept} is not the server's journal")


if __name__ == "__main__":
    sys.exit(main())
