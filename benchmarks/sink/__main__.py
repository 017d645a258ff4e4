"""What merging costs, beside a plain MERGE in the same run: figures, targets, verdicts; exit code 1
when one is missed.

    python -m benchmarks.sink [--json] [--small] [--upsert]

Each side has a JVM of its own; they take turns case by case, so that a busy phase of the machine
hits both. `--small` leaves out the table of 10 million rows and the two million inserts;
`--upsert`: 100,000 random keys onto that table alone, beside a plain MERGE and that of delta-rs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.decode.workloads import journals
from benchmarks.report import Figure, report
from benchmarks.sink.ours import TABLES, WARM_MERGES, Ours
from benchmarks.sink.plain import Plain

REPEATS = 3
MILLION = 1_000_000
LIMITS_S = {("random", 1): 7.0, ("random", 10): 13.0, ("recent", 1): 5.0, ("recent", 10): 6.0}
BULK_MAX_S = 25.0
GROWTH_MAX = 1.5
SLACK = 1.2
UPSERT_ROWS = int(os.environ.get("ROWS", 10 * MILLION))
UPSERT = {"rows": UPSERT_ROWS, "recent": False, "count": 100_000}
UPSERT_TIMES_MAX = 0.1


class Side:
    def __init__(self, name: str, folder: str) -> None:
        command = [sys.executable, "-m", "benchmarks.sink", "side", name, folder]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, arguments, named]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        raise SystemExit(f"the side ended in {method}")

    def median_s(self, method: str, *arguments: Any, **named: Any) -> float:
        return float(statistics.median(self.call(method, *arguments, **named)))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(name: str, folder: Path) -> int:
    side = Ours(folder) if name == "ours" else Plain(folder, tuned=name == "tuned")
    for line in sys.stdin:
        method, arguments, named = json.loads(line)
        print("RESULT " + json.dumps(getattr(side, method)(*arguments, **named)), flush=True)
    return 0


def main() -> int:
    if sys.argv[1:2] == ["side"]:
        return serve(sys.argv[2], Path(sys.argv[3]))
    small = "--small" in sys.argv
    if not small:
        list(journals())
    figures: list[Figure] = []

    def add(name: str, value: float, at_most: float | None = None, unit: str = "CPU-s") -> None:
        figures.append(Figure(name, value, unit, at_most))
        print(f"{name}: {value:.2f} {unit}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="cdc-bench-sink-") as folder:
        ours, plain = (Side(name, folder) for name in ("ours", "plain"))
        if "--upsert" in sys.argv:
            upsert(ours, plain, add)
            return report("merging", figures)
        tuned = Side("tuned", folder)
        floor_s = statistics.median(tuned.call("warm", WARM_MERGES)[-5:])
        add("a tiny MERGE, all settings tuned: the floor", floor_s)
        tuned.stop()
        add("... plain", statistics.median(plain.call("warm", WARM_MERGES)[-5:]))
        add("... ours", statistics.median(ours.call("warm", WARM_MERGES)[-5:]))
        add(
            "20 tables, 500 changes each, ours",
            ours.median_s("twenty", 2),
            floor_s * TABLES * SLACK,
        )
        add("... plain", plain.median_s("twenty", 1))
        found = {}
        for millions in (1,) if small else (1, 10):
            for kind in ("recent", "random"):
                recent, rows = kind == "recent", millions * MILLION
                found[kind, millions] = ours.median_s("onto", rows, recent=recent, repeats=REPEATS)
                limit = LIMITS_S[kind, millions]
                add(
                    f"10,000 {kind} keys onto {millions} M rows, ours", found[kind, millions], limit
                )
                add(
                    "... plain, deletion vectors",
                    plain.median_s("onto", rows, recent=recent, repeats=1),
                )
                add(
                    "... plain, copy on write",
                    plain.median_s("onto", rows, recent=recent, repeats=1, deletion_vectors=False),
                )
        if not small:
            add(
                "recent keys: 10 M rows against 1 M",
                found["recent", 10] / found["recent", 1],
                GROWTH_MAX,
                "times",
            )
            bulk = ours.call("bulk")
            add("2 M inserts of W1, journal to table, ours: the JVM", bulk["jvm"])
            add("... and this side's process with it", bulk["jvm"] + bulk["python"], BULK_MAX_S)
            add("... plain MERGE of such rows alone", plain.call("bulk")["jvm"])
        ours.stop()
        plain.stop()
    return report("merging", figures)


def upsert(ours: Side, plain: Side, add: Callable[..., None]) -> None:
    name = f"100,000 random keys onto {UPSERT_ROWS / MILLION:g} M rows"
    spent_s = ours.median_s("onto", repeats=REPEATS, **UPSERT)
    peers = {
        "a plain MERGE, deletion vectors": {},
        "a plain MERGE, copy on write": {"deletion_vectors": False},
        "delta-rs' merge, copy on write": {"deletion_vectors": False, "delta_rs": True},
    }
    add(f"{name}, ours", spent_s)
    peers_s = []
    for peer, settings in peers.items():
        peers_s.append(plain.median_s("onto", repeats=1, **UPSERT, **settings))
        add(f"... {peer}", peers_s[-1])
    add("... ours beside the best of these", spent_s / min(peers_s), UPSERT_TIMES_MAX, "times")
    ours.stop()
    plain.stop()


if __name__ == "__main__":
    sys.exit(main())
