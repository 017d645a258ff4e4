"""Ends of a run at a joint: of its whole process, or of the run alone."""

from __future__ import annotations

import os
import signal

from cdc_pipeline.pipeline.observer import RunObserver


class Killer(RunObserver):
    """Kills its own process, with SIGKILL, when a joint is reached for the n-th time."""

    def __init__(self, joint: str, occurrence: int = 1) -> None:
        self._joint, self._left = joint, occurrence

    def reached(self, joint: str) -> None:
        if joint == self._joint:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Killed(BaseException):
    """Ends a run as a kill would, inside a process that goes on."""


class KilledAt(RunObserver):
    """Raises `Killed` when a joint is reached for the n-th time."""

    def __init__(self, joint: str, occurrence: int = 1) -> None:
        self._joint, self._left = joint, occurrence

    def reached(self, joint: str) -> None:
        if joint == self._joint:
            self._left -= 1
            if self._left == 0:
                raise Killed
