"""A terabyte in ten thousand unread journals: planning, and catching up.

python -m benchmarks.backlog [--json]        (GIGABYTES= for less to catch up)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.backlog import catch_up, planning
from benchmarks.backlog.journals import write_archive
from benchmarks.report import report

JOURNALS = 10_000
FEW_JOURNALS = 20
GIGABYTES = float(os.environ.get("GIGABYTES", "20"))


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        return catch_up.child(Path(sys.argv[2]))
    with tempfile.TemporaryDirectory(prefix="cdc-bench-backlog-") as name:
        folder = Path(name)
        many = write_archive(folder / "many", JOURNALS)
        few = write_archive(folder / "few", FEW_JOURNALS)
        figures = planning.figures(many, few, folder)
        figures += catch_up.figures(folder, gigabytes=GIGABYTES)
    return report(f"a backlog of {JOURNALS:,} journals", figures)


if __name__ == "__main__":
    sys.exit(main())
