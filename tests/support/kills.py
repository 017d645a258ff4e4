"""Ends of a run at a fault point: of its whole process, or of the run alone."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cdc_pipeline.fault_points import FAULT_POINTS, listening


class Killed(BaseException):
    """Ends a run as a kill would, inside a process that goes on."""


def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def end_run() -> None:
    raise Killed


class AtPoint:
    """Listen for a fault point, and act once when it is reached for the n-th time.

    ``a/b`` is the first b behind the first a.
    """

    def __init__(self, points: str, act: Callable[[], None], occurrence: int = 1) -> None:
        self._left = points.split("/") * occurrence
        self._act = act
        assert FAULT_POINTS.keys() >= set(self._left)

    def __call__(self, point: str) -> None:
        if self._left[:1] == [point]:
            del self._left[0]
            if not self._left:
                self._act()


@contextmanager
def killed_at(points: str, occurrence: int = 1) -> Iterator[None]:
    """Kill the context's run at a fault point; fail if it does not come to it."""
    with pytest.raises(Killed), listening(AtPoint(points, end_run, occurrence)):
        yield


def close_files_in(folder: Path) -> None:
    """Close what a dead process had open there, with its locks."""
    gc.collect()
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(folder):
                os.close(descriptor)
