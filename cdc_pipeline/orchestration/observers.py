"""Lets a caller in the same process watch a capture that Dagster runs, and take its report.

Rules:
- The caller listens for one job execution; the asset's body finds it through a context variable, so that definitions
  that were loaded from a project's own file need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.report import CaptureReport


@dataclass
class Listener:
    """What the caller hears with, and what it gets back: the report, or the error of the last attempt.

    `waits` is told who holds the source's lock, when that is waited for.
    """

    observer: RunObserver = field(default_factory=RunObserver)
    waits: Callable[[str], None] = lambda _: None
    report: CaptureReport | None = None
    error: BaseException | None = None


_listener: ContextVar[Listener | None] = ContextVar("cdc_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Let `listener` hear captures that run inside this block."""
    token = _listener.set(listener)
    try:
        yield listener
    finally:
        _listener.reset(token)


def current_listener() -> Listener:
    """Who listens now; a silent one outside of `listening`."""
    return _listener.get() or Listener()
