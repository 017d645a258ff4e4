"""One capture as a Dagster run in a process of its own, which kills itself at a joint.

    python -m tests.pipeline.crash_child JOBS SOURCE [JOINT OCCURRENCE]

DAGSTER_HOME names the instance. Without a joint the run goes to its end and prints its report.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cdc_pipeline.orchestration.execute import execute_capture, load_source, open_instance
from cdc_pipeline.pipeline.observer import RunObserver


class Killer(RunObserver):
    """Kills its own process, with SIGKILL, when a joint is reached for the n-th time."""

    def __init__(self, joint: str, occurrence: int) -> None:
        self._joint = joint
        self._left = occurrence

    def reached(self, joint: str) -> None:
        if joint == self._joint:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main(jobs: str, source: str, joint: str = "", occurrence: str = "1") -> int:
    observer = Killer(joint, int(occurrence)) if joint else RunObserver()
    with open_instance() as instance:
        run = execute_capture(load_source(Path(jobs), source), instance=instance, observer=observer)
    if run.error is not None:
        print(run.error, file=sys.stderr)
        return 1
    assert run.report is not None
    print(run.report.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
