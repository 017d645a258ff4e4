"""Clocks of server and pipeline that jump, each by itself, in many histories.

``python -m tests.campaigns.clocks [--histories N] [--seed S]``.

See `history.py` for what happens in one and what must hold. Exits with 1 if it does not in one of
them, and prints the command that plays that one alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from tests.campaigns.clocks.sets import HISTORIES_OF_A_SET, play_set, play_spark
from tests.servers import Flavor


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.clocks", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=20, help="with each server")
    parser.add_argument("--flavor", choices=get_args(Flavor), help="one server only")
    parser.add_argument("--only", type=int, help="one history only, as a finding names it")
    parser.add_argument("--spark", action="store_true", help="also a lake on disk, with Spark")
    options = parser.parse_args(arguments)
    began_s, histories, findings = time.monotonic(), 0, 0
    counts: Counter[str] = Counter()
    first = options.seed * 1000
    seeds = [options.only] if options.only is not None else range(first, first + options.histories)
    for flavor in (options.flavor,) if options.flavor else get_args(Flavor):
        for at in range(0, len(seeds), HISTORIES_OF_A_SET):
            some = seeds[at : at + HISTORIES_OF_A_SET]
            for played in play_set(flavor, some):
                histories += 1
                counts += played.counts
                if played.finding:
                    findings += 1
                    command = f"python -m tests.campaigns.clocks --flavor {flavor}"
                    print(f"{command} --only {played.seed}: {played.finding}", flush=True)
        print(f"{flavor}: {time.monotonic() - began_s:.0f} s", flush=True)
    if options.spark:
        try:
            print(play_spark(), end="", flush=True)
        except RuntimeError as error:
            findings += 1
            print(f"python -m tests.campaigns.clocks --histories 0 --spark: {error}", flush=True)
    told = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    print(
        f"seed {options.seed}: {histories} histories, {findings} findings in "
        f"{time.monotonic() - began_s:.0f} s: {told}"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
