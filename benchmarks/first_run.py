"""The first run on a machine: what compiling the decoder costs, and that it says so.

    python -m benchmarks.first_run [--json]

`cdc-pipeline binlog --format parquet` decodes every row of the shop's journals, as a capture does:
first with an empty folder for compiled kernels, then with the folder that this has filled.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import spent
from benchmarks.report import Figure, report
from cdc_pipeline.demo import SHOP_DIRECTORY

COMPILING_CPU_S_MAX = 15.0
_LINE = "compiling the decoder"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cdc-bench-first-run-") as folder:
        first_s, first_text = _decoded(Path(folder))
        shutil.rmtree(Path(folder, "rows"))
        again_s, again_text = _decoded(Path(folder))
    return report(
        "the first run on a machine",
        [
            Figure("first time", first_s, "CPU-s"),
            Figure("again", again_s, "CPU-s"),
            Figure("compiling", first_s - again_s, "CPU-s", COMPILING_CPU_S_MAX),
            Figure("lines that say so", first_text.count(_LINE), "", 1, 1),
            Figure("... again", again_text.count(_LINE), "", 0),
        ],
    )


def _decoded(folder: Path) -> tuple[float, str]:
    """CPU-seconds of decoding the shop's journals, and what was written to standard error."""
    command = [sys.executable, "-m", "cdc_pipeline.cli", "binlog", "--format", "parquet"]
    done = spent(
        [*command, "--output", str(folder / "rows"), str(SHOP_DIRECTORY / "journals")],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kernels")},
    )
    return done.cpu_s, done.errors


if __name__ == "__main__":
    sys.exit(main())
