"""Lets a caller in the same process watch a capture that Dagster runs, and take its report.

Rules:
- The caller listens for one job execution; the asset's body finds it through a context variable, so that definitions
  that were loaded from a project's own file need not know of it.
- Observers hear everything in the order in which they were given; the one that logs Dagster's events is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.report import CaptureObserver, CapturePlan, CaptureReport, SilentObserver


@dataclass
class Listener:
    """What the caller hears with, and what it gets back: the report, or the error of the last attempt.

    `waits` is told who holds the source's lock, when that is waited for.
    """

    observer: CaptureObserver = field(default_factory=SilentObserver)
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


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[CaptureObserver]) -> None:
        self._observers = tuple(observers)

    def planned(self, plan: CapturePlan) -> None:
        for observer in self._observers:
            observer.planned(plan)

    def progressed(self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int) -> None:
        for observer in self._observers:
            observer.progressed(bytes_done=bytes_done, bytes_total=bytes_total, transactions=transactions, rows=rows)

    def reached(self, joint: str) -> None:
        for observer in self._observers:
            observer.reached(joint)

    def published(self, cut: Cut) -> None:
        for observer in self._observers:
            observer.published(cut)
