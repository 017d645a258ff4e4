"""Observers of a run: of a capture's progress, and of a snapshot around captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from cdc_pipeline.lake.long_operations import Operation, Progress
from cdc_pipeline.lake.proofs import ProofReport
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.report import CapturePlan, CaptureReport


class RunObserver:
    """Hear nothing; a subclass overrides what it wants to hear, in the run's own thread."""

    def planned(self, plan: CapturePlan) -> None:
        """Before anything is read."""

    def progressed(
        self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int
    ) -> None:
        """From time to time: how much was read of `bytes_total`, which is an estimate."""

    def merging(self) -> None:
        """A batch is recorded and its tables are merged next."""

    def merged(self, tables: int, of: int) -> None:
        """How many tables of the batch are merged, of those that it changes."""

    def published(self, cut: Cut) -> None:
        """A batch's cut was written; its cursor comes next."""

    def ended(self, report: CaptureReport) -> None:
        """The capture has succeeded."""

    def failed(self, error: BaseException) -> None:
        """The capture has failed, whatever it published before."""

    def proved(self, proof: ProofReport) -> None:
        """The rolling proof behind the capture has ended, whatever it found."""

    def operation_began(self, state: Operation, *, resumed: bool) -> None:
        """A snapshot begins, or resumes."""

    def step(self, text: str) -> None:
        """What the snapshot does now, or waits for, in words."""

    def operation_progressed(self, state: Operation, progress: Progress) -> None:
        """Rows which were read are in the side lake."""


class RelayObserver(RunObserver):
    """Tell several observers of a run's captures, in the order in which they were given."""

    def __init__(self, *observers: RunObserver) -> None:
        self._observers = observers


def _relay(name: str) -> Callable[..., None]:
    def tell(relay: RelayObserver, *args: object, **named: object) -> None:
        for observer in relay._observers:
            getattr(observer, name)(*args, **named)

    return tell


for _name in (
    *("planned", "progressed", "merging", "merged", "published", "ended", "failed", "proved"),
    *("operation_began", "step", "operation_progressed"),
):
    setattr(RelayObserver, _name, _relay(_name))


class OperationRun(TypedDict):
    """What every long operation takes."""

    cursors: CursorStore
    observer: RunObserver
    run_id: str
