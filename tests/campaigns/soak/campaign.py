"""Hours of work on both servers.

Each server has a replica, and tables in all modes that are written without a pause. One process a
source runs capture after capture; beside that tables are loaded again and verified, the lake is
maintained, processes are killed, and replicas take over. At the end every table must equal the
server's SELECT and every change must be recorded once; and memory, descriptors, threads, temporary
files and state must have been flat (see `verdict`). Prints a line for each source and minute.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.frame import SERVERS, Campaign, Case, Play, flavors, fresh
from tests.campaigns.soak.soaked import Soaked
from tests.campaigns.soak.verdict import judge


def _case(
    seed: int, number: int, *, flavor: str, hours: float, tables: int, pause_s: float
) -> Case:
    chosen = flavors(flavor)
    return [[chosen[number], seed, hours, tables // len(chosen), pause_s]]


def _cases(_seed: int, *, flavor: str, **_options: object) -> int:
    return len(flavors(flavor))


@contextmanager
def _opened(folder: Path) -> Iterator[Play]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and processes end with it

    def play(case: Case) -> Counter[str]:
        counts: Counter[str] = Counter()
        for flavor, seed, hours, tables, pause_s in case:
            with (
                fresh(folder, f"{flavor}-") as home,
                Soaked(
                    flavor,
                    home,
                    seed=seed,
                    tables=tables,
                    pause_s=pause_s,
                    retention=f"{max(1, round(hours * 5))} minutes",
                    measure_every_s=min(60.0, hours * 3600 / 30),
                ) as source,
            ):
                _work(source, hours * 3600)
                verdicts = judge(source.samples)
                print("\n".join(map(str, verdicts)), flush=True)
                short = [str(verdict) for verdict in verdicts if not verdict.is_flat]
                assert not source.findings + short, "\n".join(source.findings + short)
                counts += source.counts + source.workload.done + Counter(actions=source.actions)
        return counts

    yield play


def _work(source: Soaked, seconds: float) -> None:
    """Work so long; says each minute how far it is."""
    began_s, has_ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not has_ended.wait(60):
            print(_progress(source, time.monotonic() - began_s), flush=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        source.work(began_s + seconds)
    finally:
        has_ended.set()


def _progress(source: Soaked, seconds: float) -> str:
    sample = source.samples[-1] if source.samples else {}
    counts, done = source.counts, source.workload.done
    return (
        f"{seconds / 60:6.1f} min {source.flavor:8} {source.actions:5} actions, "
        f"{done['transactions']} transactions, {done['DDL']} DDL, {counts['batches']} batches, "
        f"{counts['kills']} kills, {counts['failover'] + counts['failover_in_capture']} failovers; "
        f"Python {sample.get('python_rss_mib', 0):.0f} MiB, "
        f"JVM {sample.get('jvm_rss_mib', 0):.0f} MiB (heap {sample.get('jvm_heap_mib', 0):.0f}); "
        f"{len(source.findings)} findings"
    )


CAMPAIGN = Campaign(
    "soak",
    _case,
    _opened,
    cases_max=_cases,
    case_s_max=float("inf"),
    needs=(*SERVERS, "jars"),
    options={"flavor": "", "hours": 2.0, "tables": 200, "pause_s": 1.0},
    budget="all",
    shrink_plays_max=0,
    on_disk=True,
)
