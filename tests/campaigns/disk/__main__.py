"""Every call of a run fails once, the process ends at it, and the power goes at every fault point.

python -m tests.campaigns.disk. Without a JVM by default: batches are applied by a stand-in for
Delta, so that every call can have its turn. `--spark` does the same with Spark, for each
`--stride`-th call.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.campaigns.disk.parts import PARTS, run_part


def main() -> int:
    """The exit code: 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.disk")
    parser.add_argument("--part", choices=PARTS, action="append", help="one part; all by default")
    parser.add_argument("--spark", action="store_true", help="with Spark, as the product works")
    parser.add_argument(
        "--stride", type=int, default=0, help="each n-th call or fault point; 1, or 25 with Spark"
    )
    parser.add_argument(
        "--states", type=int, default=10, help="states of the disk for each moment of a power cut"
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = 0
    for part in asked.part or PARTS:
        with tempfile.TemporaryDirectory(prefix="torture-disk-") as folder:
            stride = asked.stride or (25 if asked.spark else 1)
            report = run_part(
                Path(folder),
                part,
                spark=asked.spark,
                stride=stride,
                seed=asked.seed,
                states=asked.states,
            )
        print(f"{part}: {report.cases} cases, {len(report.findings)} findings", flush=True)
        for finding in report.findings:
            print(f"  {finding}", flush=True)
        found += len(report.findings)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
