"""A run that finds nothing new: CPU-seconds of the whole process, and no JVM.

    python -m benchmarks.idle [--json]

The shop is captured into a lake of its own first; then `cdc-pipeline run shop` finds nothing, three
times.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import Figure, report

ROOT = Path(__file__).resolve().parents[1]
CPU_SECONDS_MAX = 6.0
RUNS = 3


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cdc-bench-idle-") as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "jobs", root / "jobs")
        shutil.copytree(
            ROOT / "dagster_home",
            root / "home",
            ignore=lambda _d, names: set(names) - {"dagster.yaml"},
        )
        job = root / "jobs" / "shop.yaml"
        journals = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
        job.write_text(
            job.read_text(encoding="utf-8").replace(
                "../cdc_pipeline/demo/shop/journals", str(journals)
            )
        )
        _run(root)
        figures = []
        for number in range(RUNS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = _run(root)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if found["outcome"] != "nothing_new":
                raise SystemExit(f"the run applied something: {found['reason']}")
            figures.append(Figure(f"run {number + 1}: CPU", cpu_s, "s", CPU_SECONDS_MAX))
            figures.append(
                Figure(f"run {number + 1}: JVMs started", float(found["spark_started"]), "", 0.0)
            )
    return report("a run that finds nothing new", figures)


def _run(root: Path) -> dict[str, object]:
    done = subprocess.run(
        [
            Path(sys.executable).parent / "cdc-pipeline",
            "--jobs",
            root / "jobs",
            "run",
            "shop",
            "--json",
        ],
        env={**os.environ, "DAGSTER_HOME": str(root / "home")},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the run failed:\n{done.stdout}\n{done.stderr}")
    document: dict[str, object] = json.loads(done.stdout)
    return document.get("report", document)  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
