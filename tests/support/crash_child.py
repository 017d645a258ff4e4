"""One capture as a Dagster run in a process of its own, which kills itself at a fault point.

    python -m tests.support.crash_child JOBS SOURCE [POINT OCCURRENCE]

DAGSTER_HOME names the instance. Without a point the run goes to its end and prints its report.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from cdc_pipeline.fault_points import listening
from cdc_pipeline.orchestration.runs.execute import execute_capture, load_source, open_instance
from tests.support.kills import AtPoint, sigkill


def main(jobs: str, source: str, point: str = "", occurrence: str = "1") -> int:
    with ExitStack() as stack:
        if point:
            stack.enter_context(listening(AtPoint(point, sigkill, int(occurrence))))
        instance = stack.enter_context(open_instance())
        run = execute_capture(load_source(Path(jobs), source), instance=instance)
    if run.error is not None:
        print(run.error, file=sys.stderr)
        return 1
    assert run.report is not None
    print(run.report.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
