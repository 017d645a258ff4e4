"""A table of MySQL into Delta: ours beside a row loop and beside Spark's own JDBC; the rows of
both servers to Arrow, ours beside connectorx. All in one run.

    python -m benchmarks.snapshot [--json]          ROWS=5000000 by default

CPU-seconds of the client's process tree, JVM included, server excluded; each way in a process of
its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.processes import told_by
from benchmarks.report import Figure, report
from benchmarks.snapshot.table import served
from benchmarks.snapshot.ways import SLICE_ROWS, WAYS, Spent, Work

ROWS = int(os.environ.get("ROWS", "5000000"))
MILLION = 1_000_000
LOOP_TIMES_MIN = 3.0
BETTER_TIMES_MAX = 0.5
READING_MAX_S = 3.0
GROWTH_MAX = 1.2
CONNECTORX_TIMES_MAX = 0.7


def measured(name: str, work: Work) -> Spent:
    with tempfile.TemporaryDirectory(prefix="cdc-bench-snapshot-") as folder:
        told = told_by("benchmarks.snapshot", "way", name, work.port, folder, work.rows)
    spent = Spent(**told)
    print(
        f"{name}: {spent.rows:,} rows, {spent.cpu_s:.2f} CPU-s, {spent.peak_mib:.0f} MiB",
        file=sys.stderr,
        flush=True,
    )
    return spent


def main() -> int:
    if sys.argv[1:2] == ["way"]:
        name, port, folder, rows = sys.argv[2:6]
        took = WAYS[name](Work(int(port), Path(folder), int(rows)))
        print(json.dumps(took.plain()), flush=True)
        return 0
    with served(ROWS) as server:
        server.create_replication_user()
        work = Work(server.port, Path(), ROWS)
        # kernels that are not compiled yet
        measured("reading", replace(work, rows=min(ROWS, 1000)))
        spent = {name: measured(name, work) for name in WAYS}
        tenth = measured("reading", replace(work, rows=ROWS // 10))
    with served(ROWS, "mariadb") as server:
        server.create_replication_user()
        work = Work(server.port, Path(), ROWS)
        maria = {name: measured(name, work) for name in ("arrow", "connectorx")}
    for name, one in [*spent.items(), *maria.items()]:
        wanted = min(ROWS, SLICE_ROWS) if name.startswith("row_loop") else ROWS
        if one.rows != wanted:
            raise SystemExit(f"{name} read {one.rows} of {wanted} rows")
    loop_s, loop_delta_s, jdbc_s, delta_rs_s, arrow_s, connectorx_s, reading_s, ours_s = (
        one.cpu_s for one in spent.values()
    )
    millions = ROWS / MILLION
    peak_mib = spent["reading"].peak_mib
    figures = [
        Figure(
            f"{millions:g} M rows into Delta, a row loop (a slice, scaled)", loop_delta_s, "CPU-s"
        ),
        Figure("... spark.read.jdbc over the same ranges", jdbc_s, "CPU-s"),
        Figure("... connectorx and delta-rs", delta_rs_s, "CPU-s"),
        Figure("... ours", ours_s, "CPU-s"),
        Figure(
            "... the row loop beside it", loop_delta_s / ours_s, "times", at_least=LOOP_TIMES_MIN
        ),
        Figure(
            "... it beside the better of these two",
            ours_s / min(jdbc_s, delta_rs_s),
            "times",
            at_most=BETTER_TIMES_MAX,
        ),
        Figure("the same into Parquet, a row loop (a slice, scaled)", loop_s, "CPU-s"),
        Figure("... ours", reading_s, "CPU-s", at_most=READING_MAX_S * millions),
        Figure("... the row loop beside it", loop_s / reading_s, "times", at_least=LOOP_TIMES_MIN),
        Figure("to Arrow alone, from MySQL, connectorx", connectorx_s, "CPU-s"),
        Figure("... ours", arrow_s, "CPU-s"),
        Figure(
            "... it beside connectorx",
            arrow_s / connectorx_s,
            "times",
            at_most=CONNECTORX_TIMES_MAX,
        ),
        Figure("... from MariaDB, connectorx", maria["connectorx"].cpu_s, "CPU-s"),
        Figure("... ours", maria["arrow"].cpu_s, "CPU-s"),
        Figure(
            "... it beside connectorx",
            maria["arrow"].cpu_s / maria["connectorx"].cpu_s,
            "times",
            at_most=CONNECTORX_TIMES_MAX,
        ),
        Figure("ours into Parquet: resident memory at its largest", peak_mib, "MiB"),
        Figure(
            "... beside a tenth of the rows", peak_mib / tenth.peak_mib, "times", at_most=GROWTH_MAX
        ),
    ]
    return report("loading a table", figures)


if __name__ == "__main__":
    sys.exit(main())
