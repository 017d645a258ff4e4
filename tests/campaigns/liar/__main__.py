"""A server that lies: recorded conversations, changed and replayed to a pipeline.

``python -m tests.campaigns.liar [--count N] [--first N] [--bounds] [--lie NUMBER ...]``.

Exits with 1 if a play did what it must not do (see `judge.py`); each finding is printed with the
number that plays it alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.fuzz import runner
from tests.campaigns.fuzz.__main__ import CACHE

_PLAY_S_MAX = 30.0
# Plays of one process: its address space is limited, and in pieces after some hundreds.
_ROUND = 400


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.liar", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="how many lies")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bounds", action="store_true", help="kernels compiled with bounds checks")
    parser.add_argument("--lie", type=int, nargs="*", help="play these only, in this process")
    parser.add_argument("--record", action="store_true", help="record real servers again instead")
    options = parser.parse_args(arguments)
    if options.bounds:
        os.environ["NUMBA_BOUNDSCHECK"] = "1"
        os.environ["NUMBA_CACHE_DIR"] = str(CACHE / "numba-bounds")
    # Only now: these compile kernels.
    from tests.campaigns.liar import judge, lies, recording

    if options.record:
        with judge.scratch() as folder:
            for flavor in lies.FLAVORS:
                recording.record(flavor, Path(folder)).save()
        return 0
    if options.lie:
        failed = 0
        with judge.scratch() as folder:
            alone = judge.Judge(Path(folder))
            for number in options.lie:
                lie = lies.lie(number)
                verdict = alone.judge(lie)
                failed += verdict.outcome == "finding"
                print(f"lie {number}: {lie}\n{verdict.outcome}: {verdict.detail}")
        return 1 if failed else 0
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # of the workers: arenas are address space
    began_s = time.monotonic()
    result, end = runner.Findings(), options.first + options.count
    for first in range(options.first, end, _ROUND * options.workers):
        one = runner.run(
            first,
            min(_ROUND * options.workers, end - first),
            workers=options.workers,
            job=judge.judge_lies,
            mutant_s_max=_PLAY_S_MAX,
        )
        for number, detail in sorted(one.found.items()):
            told = lies.lie(number)
            print(
                f"--lie {number} ({told.flavor} {told.name}): {detail.splitlines()[0]}", flush=True
            )
        result.outcomes += one.outcomes
        result.found |= one.found
        result.peak_bytes = max(result.peak_bytes, one.peak_bytes)
    outcomes = ", ".join(f"{name} {count}" for name, count in result.outcomes.most_common())
    print(
        f"lies {options.first} to {options.first + options.count - 1}: {len(result.found)} "
        f"findings in {time.monotonic() - began_s:.0f} s, memory grew by "
        f"{result.peak_bytes / 2**20:.0f} MiB at most\n{outcomes}"
    )
    return 1 if result.found else 0


if __name__ == "__main__":
    sys.exit(main())
