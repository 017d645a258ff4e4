"""Thousands of damaged journals.

``python -m tests.campaigns.fuzz [--count N] [--first N] [--bounds] [--case FILE ...]``.

Exits with 1 where a mutant did what it must not do; its steps are then in a file under --keep, to
be mended and moved to tests/campaigns/fuzz/crashers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.campaigns.fuzz import runner
from tests.campaigns.fuzz.mutations import Mutant

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdc_pipeline"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many mutants")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bounds", action="store_true", help="kernels compiled with bounds checks")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object")
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / "cdc-fuzz-findings"
    )
    parser.add_argument(
        "--case", type=Path, nargs="*", help="replay files of findings instead, in this process"
    )
    options = parser.parse_args()
    if options.bounds:
        os.environ["NUMBA_BOUNDSCHECK"] = "1"
        os.environ["NUMBA_CACHE_DIR"] = str(CACHE / "numba-bounds")
    if options.case:
        return _replay(options.case)
    started = time.monotonic()
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("mutants", total=options.count)
        result = runner.run(
            options.first,
            options.count,
            workers=options.workers,
            tell=lambda done: progress.update(task, completed=done),
        )
    files = runner.keep(result, options.keep) if result.found else []
    report: dict[str, Any] = {
        "mutants": options.count,
        "first": options.first,
        "bounds_checked": options.bounds,
        "seconds": round(time.monotonic() - started, 1),
        "outcomes": dict(result.outcomes.most_common()),
        "peak_growth_bytes": result.peak_bytes,
        "findings": {
            number: detail.splitlines()[0] for number, detail in sorted(result.found.items())
        },
        "kept": [str(file) for file in files],
    }
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        _print(report)
    return 1 if result.found else 0


def _print(report: dict[str, Any]) -> None:
    print(f"{report['mutants']} mutants in {report['seconds']} s", end="")
    print(f", memory grew by {report['peak_growth_bytes'] / 2**20:.0f} MiB at most")
    for outcome, count in report["outcomes"].items():
        print(f"{count:8}  {outcome}")
    for number, what in report["findings"].items():
        print(f"mutant {number}: {what}")
    for file in report["kept"]:
        print(f"kept: {file}")


def _replay(files: list[Path]) -> int:
    from tests.campaigns.fuzz import judge

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            case = json.loads(file.read_text(encoding="utf-8"))
            judge.load_seed(case["seed"], Path(folder))
            verdict = judge.judge(Mutant(case["seed"], case["steps"], case["repair"]), Path(folder))
            failed += verdict.outcome == "finding"
            print(f"{file.name}: {verdict.outcome}\n{verdict.detail}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
