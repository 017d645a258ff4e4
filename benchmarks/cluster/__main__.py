"""W1 and W2 from an archive on a standalone cluster of a master and two workers, rows decoded in
the driver beside rows decoded on executors, in one run.

    python -m benchmarks.cluster [--json]

CPU-seconds of the driver's process and of its JVM, each told apart, per million changes: what a
capture of the whole journal spends more than one of its first transactions, whose cost is that of
starting. Both lakes are compared table by table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.cluster.cluster import spark_cluster
from benchmarks.cluster.ways import WAYS, Spent, contents, first_end, run
from benchmarks.decode.workloads import W1, W2, Workload, journals
from benchmarks.report import Figure, report

SHARE_MAX = 0.3
_START_BYTES = 256 << 10


def _own_process(*arguments: str) -> str:
    """Return what a process of this benchmark prints last."""
    command = [sys.executable, "-m", "benchmarks.cluster", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


def _spent(way: str, archive: Path, lake: Path, master: str, stop: int | None = None) -> Spent:
    text = _own_process("way", way, str(archive), str(lake), master, str(stop or ""))
    spent = Spent(**json.loads(text))
    print(f"{lake}: {spent}", file=sys.stderr, flush=True)
    return spent


def measured(workload: Workload, journal: Path, folder: Path, master: str) -> list[Figure]:
    """Return the figures of one workload."""
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
            spent.process_s - start.process_s, spent.jvm_s - start.jvm_s, spent.changes, 0
        )
    tables = json.loads(_own_process("contents", str(folder)))
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


def main() -> int:
    if sys.argv[1:2] == ["way"]:
        way, archive, lake, master, stop = sys.argv[2:]
        spent = run(way, Path(archive), Path(lake), master, stop=int(stop) if stop else None)
        print(json.dumps(spent.plain()), flush=True)
        return 0
    if sys.argv[1:2] == ["contents"]:
        print(json.dumps(contents(Path(sys.argv[2]))), flush=True)
        return 0
    recorded = dict(journals())
    with tempfile.TemporaryDirectory(prefix="cdc-bench-cluster-") as name:
        folder = Path(name)
        with spark_cluster(folder / "cluster") as master:
            figures = [
                figure
                for workload in (W1, W2)
                for figure in measured(workload, recorded[workload], folder / workload.name, master)
            ]
    return report("what executors take off the driver", figures)


if __name__ == "__main__":
    sys.exit(main())
