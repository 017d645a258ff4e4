"""Observers of a run: of a capture's progress, and of a load around captures."""

from __future__ import annotations

from cdc_pipeline.lake.loads import LoadState, Progress
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.report import CapturePlan, CaptureReport


class RunObserver:
    """Hear nothing; a subclass overrides what it wants to hear, in the run's own thread."""

    def planned(self, plan: CapturePlan) -> None:
        """Hear the plan, before anything is read."""

    def progressed(
        self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int
    ) -> None:
        """Hear from time to time how much was read of `bytes_total`, which is an estimate."""

    def merging(self) -> None:
        """Hear that a batch is recorded and its tables are merged next."""

    def merged(self, tables: int, of: int) -> None:
        """Hear how many tables of the batch are merged, of those that it changes."""

    def published(self, cut: Cut) -> None:
        """Hear that a batch's cut was written; its cursor comes next."""

    def ended(self, report: CaptureReport) -> None:
        """Hear that the capture has succeeded."""

    def failed(self, error: BaseException) -> None:
        """Hear that the capture has failed, whatever it published before."""

    def load_began(self, state: LoadState, *, resumed: bool) -> None:
        """Hear that a load begins, or resumes."""

    def load_stepped(self, text: str) -> None:
        """Hear what the load does now, or waits for, in words."""

    def load_progressed(self, state: LoadState, progress: Progress) -> None:
        """Hear that rows which were read are in the side lake."""


class RelayObserver(RunObserver):
    """Tell several observers of a run's captures, in the order in which they were given."""

    def __init__(self, *observers: RunObserver) -> None:
        self._observers = observers

    def planned(self, plan: CapturePlan) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.planned(plan)

    def progressed(
        self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int
    ) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.progressed(
                bytes_done=bytes_done, bytes_total=bytes_total, transactions=transactions, rows=rows
            )

    def merging(self) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.merging()

    def merged(self, tables: int, of: int) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.merged(tables, of)

    def published(self, cut: Cut) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.published(cut)

    def ended(self, report: CaptureReport) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.ended(report)

    def failed(self, error: BaseException) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.failed(error)
