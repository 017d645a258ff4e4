"""Observers of a run: of a capture's progress, and of a load around captures."""

from __future__ import annotations

from cdc_pipeline.lake.loads import LoadState, Progress
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.report import CapturePlan


class RunObserver:
    """Hear nothing; a subclass overrides what it wants to hear, in the run's own thread."""

    def planned(self, plan: CapturePlan) -> None:
        """Hear the plan, before anything is read."""

    def progressed(self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int) -> None:
        """Hear from time to time how much was read of `bytes_total`, which is an estimate."""

    def published(self, cut: Cut) -> None:
        """Hear that a batch's cut was written; its cursor comes next."""

    def load_began(self, state: LoadState, *, resumed: bool) -> None:
        """Hear that a load begins, or resumes."""

    def load_stepped(self, text: str) -> None:
        """Hear what the load does now, or waits for, in words."""

    def load_progressed(self, state: LoadState, progress: Progress) -> None:
        """Hear that rows which were read are in the side lake."""

    def reached(self, joint: str) -> None:
        """Hear that a step of K2 (stage, record, act) is reached.

        The names are those of `Sink`, and before_cursor, before_ack.

        Two come before those, in the reader's thread, and must not raise: put (a list is in the
        store) and spill (the store has written a list to files). A load has load_begun (what is
        loaded is written down), load_created, load_chunks (a batch of rows is in the side lake),
        load_read (all rows are), load_caught_up, load_swapping (the main lake is locked),
        load_swapped, load_removed besides; the side lake's own batches come under their own names.
        """


class RelayObserver(RunObserver):
    """Tell several observers of a run's captures, in the order in which they were given."""

    def __init__(self, *observers: RunObserver) -> None:
        self._observers = observers

    def planned(self, plan: CapturePlan) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.planned(plan)

    def progressed(self, *, bytes_done: int, bytes_total: int, transactions: int, rows: int) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.progressed(bytes_done=bytes_done, bytes_total=bytes_total, transactions=transactions, rows=rows)

    def published(self, cut: Cut) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.published(cut)

    def reached(self, joint: str) -> None:
        """See `RunObserver`."""
        for observer in self._observers:
            observer.reached(joint)


class MutedObserver(RunObserver):
    """Pass on the steps of a side lake's captures alone: its plans and cuts are not the source's."""

    def __init__(self, observer: RunObserver) -> None:
        self._observer = observer

    def reached(self, joint: str) -> None:
        """See `RunObserver`."""
        self._observer.reached(joint)
