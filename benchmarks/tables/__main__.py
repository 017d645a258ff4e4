"""Many tables on a live server: what a run costs by the tables that changed, and by all others.

    python -m benchmarks.tables [--json]          TABLES=1000 BATCHES=1000 by default

CPU-seconds are those of the run's process and its JVM; each run is a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import spent
from benchmarks.report import Figure, report
from benchmarks.tables import memory
from benchmarks.tables.server import served
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.orchestration.metadata import cursor_entry, cursor_event_metadata
from cdc_pipeline.run.publish import cursor_metadata


@dataclass(frozen=True)
class Run:
    """One run: CPU-seconds of its process and its JVM, and its report."""

    cpu_s: float
    report: dict[str, Any]


class Runs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs, self._home = folder / "jobs", folder / "home"
        for made in (self._jobs, self._home):
            made.mkdir()

    def configure(self, source: str, section: dict[str, Any], tables: list[str]) -> None:
        """Write a source's configuration, in JSON, which is YAML."""
        document = {
            "source": section,
            "tables": {"include": tables},
            "sink": {"lake_path": str(self.lake(source))},
        }
        (self._jobs / f"{source}.yaml").write_text(json.dumps(document))

    def lake(self, source: str) -> Path:
        return self.folder / f"lake-{source}"

    def run(self, source: str) -> Run:
        command = [sys.executable, "-m", "cdc_pipeline.cli", "--jobs", str(self._jobs), "run"]
        done = spent(
            [*command, source, "--json"], env={**os.environ, "DAGSTER_HOME": str(self._home)}
        )
        document = json.loads(done.output)
        return Run(done.cpu_s, document.get("report", document))


TABLES = int(os.environ.get("TABLES", "1000"))
BATCHES = int(os.environ.get("BATCHES", "1000"))
CHANGED = min(100, TABLES // 2)
FEW = 10
REPEATS = 5

IDLE_TIMES_MAX = 1.2
CHANGED_TABLE_MAX_S = 0.05
ALONE_TIMES_MAX = 1.1
CUT_BYTES_MAX = 150
EVENT_BYTES_MAX = 20_000
GROWTH_MAX_MIB = 32.0


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="cdc-bench-tables-") as folder,
        served(TABLES) as tables,
    ):
        runs = Runs(Path(folder))
        user, password = tables.server.create_replication_user()
        section = {
            "kind": "live",
            "host": tables.server.host,
            "port": tables.server.port,
            "user": user,
            "password": password,
        }
        sources = {
            "all": tables.names,
            "changed": tables.names[:CHANGED],
            "few": tables.names[-FEW:],
        }
        for source, names in sources.items():
            runs.configure(source, section, names)
        tables.create()
        first = {source: _told(source, runs.run(source)) for source in sources}
        for source in sources:
            _told(source, runs.run(source))
        idle = {source: _of(runs, source) for source in sources}
        changed: dict[str, list[Run]] = {source: [] for source in ("all", "changed")}
        for _ in range(REPEATS):
            tables.change(CHANGED)
            for source, found in changed.items():
                found.append(_told(source, runs.run(source)))
        paths = LakePaths(runs.lake("all"), "all")
        cut = last_cut(paths)
        assert cut is not None
        cut_bytes = paths.cut(cut.batch_number).stat().st_size
        event_bytes = _event_bytes(cut)
    each_s = {
        source: (median(run.cpu_s for run in found) - idle[source]) / CHANGED
        for source, found in changed.items()
    }
    figures = [
        Figure(f"first run of {TABLES} tables, created in the log", first["all"].cpu_s, "CPU-s"),
        Figure(f"idle run, {FEW} tables", idle["few"], "CPU-s"),
        Figure(f"idle run, {TABLES} tables", idle["all"], "CPU-s"),
        Figure("... beside it", idle["all"] / idle["few"], "times", at_most=IDLE_TIMES_MAX),
        Figure(
            f"{CHANGED} of {TABLES} tables changed: each",
            each_s["all"],
            "CPU-s",
            at_most=CHANGED_TABLE_MAX_S,
        ),
        Figure(
            "... JVMs started",
            float(sum(run.report["spark_started"] for run in changed["all"])),
            "",
            at_most=0.0,
        ),
        Figure(f"the same in a source of {CHANGED}: each", each_s["changed"], "CPU-s"),
        Figure(
            "... the first beside it",
            each_s["all"] / each_s["changed"],
            "times",
            at_most=ALONE_TIMES_MAX,
        ),
        Figure("a cut's file", cut_bytes / TABLES, "bytes a table", at_most=CUT_BYTES_MAX),
        Figure("the cursor's event", event_bytes, "bytes", at_most=EVENT_BYTES_MAX),
        Figure(
            f"memory after {BATCHES} batches, {memory.TABLES} tables, above that after "
            f"{memory.WARM_BATCHES}",
            memory.growth_mib(BATCHES),
            "MiB",
            at_most=GROWTH_MAX_MIB,
        ),
    ]
    return report("many tables", figures)


def _event_bytes(cut: Cut) -> int:
    """Return the bytes of the event of a cut's cursor in Dagster, as JSON."""
    given = cursor_metadata(cut.interval, cut)
    event = cursor_event_metadata(cut.cursor, cut=cut, given=given)
    event |= cursor_entry(cut.cursor, at_cut=cut)
    return sum(len(json.dumps([name, str(value.value)])) for name, value in event.items())


def _of(runs: Runs, source: str) -> float:
    found = [_told(source, runs.run(source)) for _ in range(REPEATS)]
    for run in found:
        if run.report["outcome"] != "nothing_new":
            raise SystemExit(f"the run applied something: {run.report['reason']}")
    return median(run.cpu_s for run in found)


def _told(source: str, run: Run) -> Run:
    keys = ("outcome", "spark_started")
    said = json.dumps({key: run.report.get(key) for key in keys})
    print(f"{source}: {run.cpu_s:.2f} CPU-s {said}", file=sys.stderr, flush=True)
    return run


if __name__ == "__main__":
    sys.exit(main())
