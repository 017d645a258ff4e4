"""Hours of work on both servers: ``python -m tests.campaigns.soak [--hours H] [--seed S] ...``.

Each server has a replica, and tables in all modes that are written without a pause. One process a
source runs capture after capture; beside that tables are loaded again and verified, the lake is
maintained, processes are killed, and replicas take over. At the end every table must equal the
server's SELECT and every change must be recorded once; and memory, descriptors, threads, temporary
files and state must have been flat (see `verdict`). Prints a line for each source and minute, and
exits with 1 if something falls short.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

from tests.campaigns.soak.soaked import Soaked
from tests.campaigns.soak.verdict import judge
from tests.servers import Flavor


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", type=int, default=200, help="of both servers together")
    parser.add_argument("--flavor", choices=get_args(Flavor), help="one server only")
    parser.add_argument("--pause-s", type=float, default=1.0, help="between two transactions")
    parser.add_argument("--folder", type=Path, help="leave the lakes, samples and logs there")
    options = parser.parse_args(arguments)
    flavors: tuple[Flavor, ...] = (options.flavor,) if options.flavor else get_args(Flavor)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and processes end with it
    until_s = time.monotonic() + options.hours * 3600
    with ExitStack() as stack:
        folder = options.folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cdc-soak-"))
        )
        sources = [
            stack.enter_context(
                Soaked(
                    flavor,
                    folder.absolute() / flavor,
                    seed=options.seed,
                    tables=options.tables // len(flavors),
                    pause_s=options.pause_s,
                    retention=f"{max(1, round(options.hours * 5))} minutes",
                    measure_every_s=min(60.0, options.hours * 3600 / 30),
                )
            )
            for flavor in flavors
        ]
        threads = [
            threading.Thread(target=_work, args=(source, until_s), name=source.name, daemon=True)
            for source in sources
        ]
        for thread in threads:
            thread.start()
        began_s = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(60 / len(threads))
            for source in sources:
                print(_progress(source, time.monotonic() - began_s), flush=True)
        short = False
        for source in sources:
            short |= _report(source)
    if short:
        chosen = f" --flavor {options.flavor}" if options.flavor else ""
        print(
            f"again: python -m tests.campaigns.soak --hours {options.hours:g} --seed "
            f"{options.seed} --tables {options.tables}{chosen}"
        )
    return int(short)


def _work(source: Soaked, until_s: float) -> None:
    try:
        source.work(until_s)
    except BaseException:
        source.findings.append(traceback.format_exc())
        print(f"[{source.flavor}] ENDED {source.findings[-1]}", flush=True)


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


def _report(source: Soaked) -> bool:
    """Print what became of a source; whether something falls short."""
    print(f"-- {source.name}: {source.actions} actions; {dict(source.workload.done)}")
    print("   " + ", ".join(f"{count} {name}" for name, count in sorted(source.counts.items())))
    judged = judge(source.samples)
    for one in judged:
        print(f"   {one}")
    for finding in source.findings:
        print(f"   FINDING {finding}")
    return bool(source.findings) or not all(one.is_flat for one in judged)


if __name__ == "__main__":
    sys.exit(main())
