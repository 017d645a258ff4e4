"""Our side: `cdc-pipeline run` of a journal from an empty lake, in a process of its own.

    python -m benchmarks.sync.ours MEASURES ARGUMENT...

runs the command line with these arguments and writes into the file MEASURES what only the process
itself can measure.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import spent

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class Measures:
    """What the process measures of itself: CPU-seconds of the cyclic collector, seconds of the
    waits before a cut (K21), and seconds in total."""

    collector_cpu_s: float = 0.0
    durable_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: row changes that it applied, CPU-seconds with the JVM and without, and its
    own measures."""

    changes: int
    cpu_s: float
    own_cpu_s: float
    measures: Measures


def sync(journal: Path) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "binlog.000001").symlink_to(journal)
        return capture({"kind": "archive", "directory": folder})


def capture(source: dict[str, Any]) -> Run:
    """All of a source's log into an empty lake."""
    with _home() as root:
        job = {
            "source": source,
            "sink": {
                "lake_path": str(root / "lake"),
                "spark": {"master": "local[2]", "driver_memory": "2g"},
            },
        }
        # JSON is YAML
        (root / "jobs" / "bench.yaml").write_text(json.dumps(job), encoding="utf-8")
        return _run(root, "bench")


def demo() -> Run:
    with _home() as root:
        text = (ROOT / "jobs" / "shop.yaml").read_text(encoding="utf-8")
        journals = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
        (root / "jobs" / "shop.yaml").write_text(
            text.replace("../cdc_pipeline/demo/shop/journals", str(journals)), encoding="utf-8"
        )
        return _run(root, "shop")


@contextmanager
def _home() -> Iterator[Path]:
    """A folder with jobs and Dagster's home; the lake will be in it too."""
    with tempfile.TemporaryDirectory(prefix="cdc-bench-sync-") as folder:
        root = Path(folder)
        (root / "jobs").mkdir()
        (root / "home").mkdir()
        shutil.copyfile(ROOT / "dagster_home" / "dagster.yaml", root / "home" / "dagster.yaml")
        yield root


def _run(root: Path, source: str) -> Run:
    measures = root / "measures.json"
    arguments = ["--jobs", str(root / "jobs"), "run", source, "--json"]
    command = [sys.executable, "-m", "benchmarks.sync.ours", str(measures), *arguments]
    found = spent(command, env={**os.environ, "DAGSTER_HOME": str(root / "home")}, cwd=ROOT)
    tables = json.loads(found.output)["tables"].values()
    changes = sum(
        table[count]
        for table in tables
        for count in ("rows_inserted", "rows_updated", "rows_deleted")
    )
    own = Measures(**json.loads(measures.read_text(encoding="utf-8")))
    return Run(changes, found.cpu_s, found.own_cpu_s, own)


def main() -> None:
    begin_s = time.monotonic()
    file = Path(sys.argv.pop(1))
    measures = Measures()
    _time_collections(measures)
    _time_durable(measures)
    from cdc_pipeline.cli import main as command_line

    try:
        command_line()
    finally:
        measures.wall_s = time.monotonic() - begin_s
        file.write_text(json.dumps(asdict(measures)), encoding="utf-8")


def _time_collections(measures: Measures) -> None:
    started = threading.local()

    def observe(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            started.at_s = time.thread_time()
        else:
            measures.collector_cpu_s += time.thread_time() - started.at_s

    gc.callbacks.append(observe)


def _time_durable(measures: Measures) -> None:
    from cdc_pipeline.sink.durable import durability

    make_durable: Callable[..., Any] = durability.make_durable

    def timed(*arguments: Any, **named: Any) -> Any:
        begin_s = time.monotonic()
        try:
            return make_durable(*arguments, **named)
        finally:
            measures.durable_s += time.monotonic() - begin_s

    durability.make_durable = timed  # before anything else imports it


if __name__ == "__main__":
    main()
