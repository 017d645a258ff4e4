"""One load in a process of its own, which kills itself with SIGKILL at a fault point
(`kills.AtPoint`).

Tables that are named are loaded whether they need it or not.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.kills import AtPoint, sigkill


class Steps(RunObserver):
    """Prints what the load does, for whoever reads of a failure."""

    def step(self, text: str) -> None:
        print(f"{time.monotonic():.1f} {text}", file=sys.stderr, flush=True)


def main(config_file: str, cursor_folder: str, points: str, *tables: str) -> int:
    config = PipelineConfig.model_validate_json(Path(config_file).read_text(encoding="utf-8"))
    cursors = DeltaCursorStore(Path(cursor_folder), source=config.name)
    with listening(AtPoint(points, sigkill)):
        take_snapshot(config, cursors=cursors, tables=tables or None, observer=Steps())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
