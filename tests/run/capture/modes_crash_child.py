"""One capture in a process of its own, which kills itself with SIGKILL at a fault point.

    python -m tests.run.capture.modes_crash_child CONFIG_JSON POINT OCCURRENCE

The cursor is in memory: it is lost with the process, and the next run finds its place by the last
cut.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from tests.support.kills import AtPoint, sigkill

if __name__ == "__main__":
    _, config, point, occurrence = sys.argv
    made = PipelineConfig.model_validate_json(Path(config).read_text(encoding="utf-8"))
    with listening(AtPoint(point, sigkill, int(occurrence))):
        capture(made, cursors=MemoryCursorStore())
