"""Sets the cursor in a process of its own, which kills itself at a fault point.

    python -m tests.operations.cursor.set_child JOBS SOURCE JOURNAL OFFSET POINT

DAGSTER_HOME names the instance.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cdc_pipeline.config.pipeline_config import PositionConfig, load_config
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.cursor.cursor_change import apply_set, plan_set
from cdc_pipeline.orchestration.runs.execute import load_source, open_instance
from cdc_pipeline.orchestration.runs.source_runs import DagsterAccess
from tests.support.kills import AtPoint, sigkill


def main(jobs: str, source: str, journal: str, offset: str, point: str) -> None:
    config = load_config(Path(jobs) / f"{source}.yaml")
    loaded = load_source(Path(jobs), source)
    with listening(AtPoint(point, sigkill)), open_instance() as instance:
        to = PositionConfig(journal=journal, offset=int(offset))
        change = plan_set(config, cursors=loaded.cursors(instance), to=to, who="a test")
        DagsterAccess(loaded, config, instance).operate(
            "cursor_set",
            lambda run: apply_set(
                config, cursors=run["cursors"], change=change, run_id=run["run_id"]
            ),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
