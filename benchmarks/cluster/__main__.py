"""W1 and W2 from an archive on a standalone cluster of a master and two workers, rows decoded in
the driver beside rows decoded on executors, in one run.

    python -m benchmarks.cluster [--fit] [--json]

CPU-seconds of the driver's process and of its JVM, each told apart, per million changes: what a
capture of the whole journal spends more than one of its first transactions, whose cost is that of
starting. Both lakes are compared table by table. ``--fit`` measures instead, by elapsed time, how
decoding and staging on executors divide among cores.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.backlog.catch_up import link_journals
from benchmarks.decode.workloads import W1, W2, Workload, journals
from benchmarks.processes import cpu_s, jvm_pid, told_by
from benchmarks.report import Figure, report
from cdc_pipeline.sink.spark.java import find_java_home

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

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def config_of(way: str, archive: Path, lake: Path, master: str, *, stop: int | None = None) -> Any:
    """Return the configuration of a capture, up to an offset of the journal if one is given. A
    cluster's address may end in `#` and how many of its cores are wanted."""
    from cdc_pipeline.config.pipeline_config import PipelineConfig

    journal = next(iter(sorted(archive.iterdir()))).name
    bound = {} if stop is None else {"bound": {"journal": journal, "offset": stop}}
    address, _, cores = master.partition("#")
    settings = SETTINGS | ({"spark.cores.max": cores} if cores else {})
    return PipelineConfig.model_validate(
        {
            "name": NAME,
            "source": {"kind": "archive", "directory": archive},
            "batch": {"decode": way},
            "sink": {
                "lake_path": lake,
                "spark": {"master": address, "driver_memory": "1g", "settings": settings},
            },
            **bound,
        }
    )


def run(way: str, archive: Path, lake: Path, master: str, *, stop: int | None = None) -> Spent:
    from cdc_pipeline.position.cursor import MemoryCursorStore
    from cdc_pipeline.run.capture.capture import capture

    config = config_of(way, archive, lake, master, stop=stop)
    report = capture(config, cursors=MemoryCursorStore())
    from pyspark.sql import SparkSession

    jvm_s = cpu_s(jvm_pid(SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()))
    changes = sum(
        table.rows_inserted + table.rows_updated + table.rows_deleted
        for table in report.tables.values()
    )
    return Spent(cpu_s(os.getpid()), jvm_s, changes)


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


_HOST = "127.0.0.1"
_START_TIMEOUT_S = 120


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    import pyspark

    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    java_home = find_java_home()
    java = str(java_home / "bin" / "java")
    # Executors run this package under this interpreter.
    code = os.pathsep.join(path for path in sys.path if path)
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONPATH": code,
    }
    port = _free_port()
    address = f"spark://{_HOST}:{port}"

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (folder / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen(
                [java, "-cp", str(home / "jars" / "*"), "-Xmx512m", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )

    deploy = "org.apache.spark.deploy"
    master = ("--host", _HOST, "--port", str(port), "--webui-port", "0")
    worker = ("--host", _HOST, "--cores", "1", "--memory", "2g", "--webui-port", "0")
    running = [start("master", f"{deploy}.master.Master", *master)]
    try:
        _wait_for(port)
        for number in range(workers):
            place = ("--work-dir", str(folder / f"work-{number}"))
            running.append(
                start(f"worker-{number}", f"{deploy}.worker.Worker", *worker, *place, address)
            )
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise SystemExit("the Spark master does not start")


SHARE_MAX = 0.3
_START_BYTES = 256 << 10


def _spent(way: str, archive: Path, lake: Path, master: str, stop: int | None = None) -> Spent:
    spent = Spent(**told_by("benchmarks.cluster", "way", way, archive, lake, master, stop or ""))
    print(f"{lake}: {spent}", file=sys.stderr, flush=True)
    return spent


def measured(workload: Workload, journal: Path, folder: Path, master: str) -> list[Figure]:
    archive = folder / "archive"
    archive.mkdir(parents=True)
    (archive / "binlog.000001").symlink_to(journal)
    stop = first_end(archive, _START_BYTES)
    name, millions = workload.name[:2].upper(), workload.changes / 1e6
    whole: dict[str, Spent] = {}
    beyond: dict[str, Spent] = {}
    for way in WAYS:
        _spent(way, archive, folder / "warm" / way, master, stop)  # kernels not compiled yet
        start = _spent(way, archive, folder / "start" / way, master, stop)
        spent = whole[way] = _spent(way, archive, folder / way, master)
        if spent.changes != workload.changes:
            raise SystemExit(f"{name}, {way}: {spent.changes:,} changes of {workload.changes:,}")
        beyond[way] = Spent(
            spent.process_s - start.process_s, spent.jvm_s - start.jvm_s, spent.changes
        )
    tables = told_by("benchmarks.cluster", "contents", folder)
    differing = sum(len({tuple(found) for found in of.values()}) > 1 or len(of) < len(WAYS)
                    for of in tables.values())  # fmt: skip
    figures = []
    for part in ("process_s", "jvm_s"):
        of = "driver's process" if part == "process_s" else "driver's JVM"
        in_driver, elsewhere = (getattr(beyond[way], part) for way in WAYS)
        figures += [
            Figure(f"{name}, {of}, whole run: decode in the driver",
                   getattr(whole["driver"], part), "CPU-s"),
            Figure("... decode on executors", getattr(whole["executors"], part), "CPU-s"),
            Figure("... per million changes: in the driver", in_driver / millions, "CPU-s"),
            Figure("... on executors", elsewhere / millions, "CPU-s"),
        ]  # fmt: skip
        if part == "process_s":
            of_all = whole["executors"].process_s / whole["driver"].process_s
            figures += [
                Figure("... share of it", elsewhere / in_driver, "times", at_most=SHARE_MAX),
                Figure("... share of the whole run, its start included", of_all, "times"),
            ]
    figures.append(Figure(f"{name}, tables that differ, of {len(tables)}", differing, "", 0))
    return figures


FIT_GB: Final = (1.0, 5.0)


def staged(archive: Path, lake: Path, master: str) -> float:
    """Decode and stage an archive on executors, into tables that only count; return seconds."""
    from benchmarks.history.tables import CountedTables, History, counted_sink
    from cdc_pipeline.position.cursor import MemoryCursorStore
    from cdc_pipeline.run.capture.capture import capture
    from cdc_pipeline.sink.apply.executors import run_tasks
    from cdc_pipeline.sink.spark.session import SparkProvider

    class OnExecutors(CountedTables):
        def run_tasks(self, tasks: Sequence[str], work: Callable[[str], str]) -> list[str]:
            return run_tasks(SparkProvider(config.sink.spark).session(), tasks, work)

    began_s = time.monotonic()
    config = config_of("executors", archive, lake, master)
    history = History(lambda _record, _table, _version: None, {})
    sink = counted_sink(history, source=config.name, config=config.sink, kind=OnExecutors)
    report = capture(config, cursors=MemoryCursorStore(), sink=sink)
    if report.parallel is None or not report.parallel.tasks:
        raise SystemExit(f"read by {report.parallel}")
    return time.monotonic() - began_s


def fitted(folder: Path, master: str) -> list[Figure]:
    """Amdahl's law: the share that divides among cores, from `local[1]` and `local[2]`, and how
    well it tells what the second worker of a cluster brings. Seconds of five gigabytes beyond
    those of one, so that the start of workers counts for nothing; on a quiet machine."""
    sizes = [link_journals(folder / f"archive-{gb:g}", gb) for gb in FIT_GB]
    beyond_gb = (sizes[1] - sizes[0]) / 1e9
    masters = ("local[1]", "local[2]", f"{master}#1", f"{master}#2")
    s_per_gb = []
    for number, of in enumerate(masters):
        few_s, many_s = (
            _staged_apart(folder / f"archive-{gb:g}", folder / f"lake-{number}", of)
            for gb in FIT_GB
        )
        print(f"{of}: {few_s:.1f} s, {many_s:.1f} s", file=sys.stderr, flush=True)
        s_per_gb.append((many_s - few_s) / beyond_gb)
    one, two, one_worker, two_workers = s_per_gb
    share = 2 * (one - two) / one
    told = one_worker * (1 - share / 2)
    return [
        Figure("a GB of inserts, decoded and staged: local[1]", one, "s"),
        Figure("... local[2]", two, "s"),
        Figure("... share that divides", share, "times"),
        Figure("... a cluster's one worker", one_worker, "s"),
        Figure("... its two workers", two_workers, "s"),
        Figure("... beside what the share tells", two_workers / told, "times"),
        *(
            Figure(f"... {cores} cores by this share", 1 / (1 - share + share / cores), "times")
            for cores in (16, 64)
        ),
    ]


def _staged_apart(archive: Path, lake: Path, master: str) -> float:
    told_s: float = told_by("benchmarks.cluster", "staged", archive, lake, master)
    shutil.rmtree(lake)
    return told_s


def main() -> int:
    if sys.argv[1:2] == ["way"]:
        way, archive, lake, master, stop = sys.argv[2:]
        spent = run(way, Path(archive), Path(lake), master, stop=int(stop) if stop else None)
        print(json.dumps(spent.plain()), flush=True)
        return 0
    if sys.argv[1:2] == ["staged"]:
        print(json.dumps(staged(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])), flush=True)
        return 0
    if sys.argv[1:2] == ["contents"]:
        print(json.dumps(contents(Path(sys.argv[2]))), flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="cdc-bench-cluster-") as name:
        folder = Path(name)
        with spark_cluster(folder / "cluster") as master:
            if "--fit" in sys.argv:
                return report("how decoding divides", fitted(folder, master))
            recorded = dict(journals())
            figures = [
                figure
                for workload in (W1, W2)
                for figure in measured(workload, recorded[workload], folder / workload.name, master)
            ]
    return report("what executors take off", figures)


if __name__ == "__main__":
    sys.exit(main())
