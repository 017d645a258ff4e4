"""What happens to a server between two runs, and whether the next run decides as the matrix says.

``python -m tests.campaigns.server_history [--seed S] [--event NAME]``.

Each cell of the matrix (what happens, product and kind of positions, where the pipeline reads) is
played with servers of its own; see `matrix.py` for the decisions. Exits with 1 if a run decides
otherwise, if what its error says to do does not help, or if rows are lost in silence; each finding
is printed with the options that play its cell alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.campaigns.server_history.decisions import Impossible
from tests.campaigns.server_history.matrix import MATRIX, PLACES, POSITIONS
from tests.campaigns.server_history.play import Cell, judged


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.server_history", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--event", choices=[row.name for row in MATRIX], action="append")
    parser.add_argument("--positions", choices=POSITIONS, action="append")
    parser.add_argument("--place", choices=PLACES, action="append")
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--errors", action="store_true", help="print each error")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    cells: list[Cell] = [
        (number, positions, place, options.seed)
        for number, row in enumerate(MATRIX)
        if row.name in (options.event or [row.name])
        for positions in options.positions or POSITIONS
        for place in options.place or PLACES
        if not isinstance(row.decision(positions, place), Impossible)
    ]
    findings = 0
    outcomes: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=40) as pool:
        for (number, positions, place, _), played in pool.imap_unordered(judged, cells):
            row = MATRIX[number]
            outcomes[played.ended] += 1
            print(
                f"{row.name:44}{positions:17}{place:9}{played.took_s:5.1f} s  {played.ended}",
                flush=True,
            )
            if options.errors and played.error is not None:
                print(f"  {played.error}".replace("\n", "\n  "), flush=True)
            if played.finding:
                findings += 1
                print(
                    f"FINDING --event {row.name} --positions '{positions}' --place {place} "
                    f"--seed {options.seed}: {played.finding}",
                    flush=True,
                )
    told = ", ".join(f"{count} {ended}" for ended, count in outcomes.most_common())
    print(
        f"seed {options.seed}: {len(cells)} cells, {findings} findings in "
        f"{time.monotonic() - began_s:.0f} s: {told}"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
