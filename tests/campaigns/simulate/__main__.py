"""Whole histories of a pipeline from one seed each: threads' order, crashes, faults and time.

``python -m tests.campaigns.simulate [--seeds N] [--first SEED] [--processes N]``.

A history is a database that goes on, and runs of a pipeline over it into tables in memory, of which
some are killed at a place of the seed's choice and some meet faults; see `history.py` for what must
hold. Exits with 1 if it does not in one of them, and prints the command that plays that one alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.campaigns.simulate.history import judged, warm_up


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    began_s, findings = time.monotonic(), 0
    counts: Counter[str] = Counter()
    seeds = range(options.first, options.first + options.seeds)
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes, initializer=warm_up) as pool:
        for done, (seed, found, finding) in enumerate(
            pool.imap_unordered(judged, seeds, chunksize=4), start=1
        ):
            counts += found
            if finding:
                findings += 1
                print(
                    f"python -m tests.campaigns.simulate --first {seed} --seeds 1: {finding}",
                    flush=True,
                )
            if done % 500 == 0:
                print(f"{done} histories, {time.monotonic() - began_s:.0f} s", flush=True)
    took_s = time.monotonic() - began_s
    told = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    print(
        f"{options.seeds:,} histories, {findings} findings in {took_s:.0f} s "
        f"({60 * options.seeds / took_s:,.0f} a minute): {told}"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
