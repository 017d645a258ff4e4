"""One load in a process of its own, which kills itself with SIGKILL at a joint.

The joint ``a/b`` is the first b behind the first a. Tables that are named are loaded whether they need it or not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.pipeline.load.load import load
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.position.cursor_file import FileCursorStore
from tests.support.kills import Killed


def sigkill() -> None:
    """The end of this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def end() -> None:
    """The end of the load alone."""
    raise Killed


class Killer(RunObserver):
    """Kills its own process, or its own load alone, when it has met all of its joints, one after the other."""

    def __init__(self, joints: str, die: Callable[[], None] = sigkill) -> None:
        self._joints, self._die = joints.split("/"), die

    def reached(self, joint: str) -> None:
        if joint == self._joints[0]:
            self._joints = self._joints[1:]
            if not self._joints:
                self._die()

    def load_stepped(self, text: str) -> None:
        print(f"{time.monotonic():.1f} {text}", file=sys.stderr, flush=True)


def main(config_file: str, cursor_folder: str, joints: str, *tables: str) -> int:
    config = PipelineConfig.model_validate_json(Path(config_file).read_text(encoding="utf-8"))
    cursors = FileCursorStore(Path(cursor_folder), source=config.name)
    load(config, cursors=cursors, tables=tables or None, observer=Killer(joints))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
