"""One capture as a Dagster run in a process of its own, which kills itself at a joint.

    python -m tests.support.crash_child JOBS SOURCE [JOINT OCCURRENCE]

DAGSTER_HOME names the instance. Without a joint the run goes to its end and prints its report.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cdc_pipeline.orchestration.execute import execute_capture, load_source, open_instance
from cdc_pipeline.pipeline.observer import RunObserver
from tests.support.kills import Killer


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
