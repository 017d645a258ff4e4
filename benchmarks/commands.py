"""Commands that read files only: CPU-seconds of the whole process, against importing Arrow.

    python -m benchmarks.commands [--json]

The lake is that of the demo's shop; the yardstick is a process that imports pyarrow and numpy. All
figures are medians of five processes, after one to warm up.
"""

from __future__ import annotations

import sys

from benchmarks.report import Figure, report
from benchmarks.shop_project import JOURNALS, captured_shop

RATIO_MAX = 2.5
COMMANDS = {
    "validate": ("validate",),
    "status": ("status",),
    "cuts list": ("cuts", "list", "shop"),
    "binlog": ("binlog", str(JOURNALS / "binlog.000001")),
}


def main() -> int:
    with captured_shop() as project:
        yardstick_s = project.cpu_s(project.python("import pyarrow, numpy"))
        figures = [Figure("import pyarrow, numpy", yardstick_s, "CPU-s")]
        for name, arguments in COMMANDS.items():
            cpu_s = project.cpu_s(project.command(*arguments))
            figures.append(Figure(name, cpu_s, "CPU-s"))
            figures.append(Figure("... against it", cpu_s / yardstick_s, "times", RATIO_MAX))
        numba_s = project.cpu_s(project.python("import numba"))
        figures.append(Figure("import numba", numba_s, "CPU-s"))
        cursor_s = project.cpu_s(project.command("status", "--cursor"))
        figures.append(Figure("status --cursor", cursor_s, "CPU-s"))
    return report("commands that read files", figures)


if __name__ == "__main__":
    sys.exit(main())
