"""Who is told of a load's progress."""

from __future__ import annotations

from typing import Protocol

from cdc_pipeline.lake.loads import LoadState, Progress
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.pipeline.report import CaptureObserver, CapturePlan, SilentObserver


class LoadObserver(CaptureObserver, Protocol):
    """Is told of a load, in the load's own thread; of captures of the main lake as well, as their own observer is.

    Joints besides those of `CaptureObserver`: load_begun (what is loaded is written down), load_created, load_chunks
    (a batch of rows is in the side lake), load_read (all rows are), load_caught_up, load_swapping (the main lake is
    locked), load_swapped, load_removed. Joints of the side lake's own batches come under their own names.
    """

    def load_began(self, state: LoadState, *, resumed: bool) -> None:
        """A load begins, or goes on."""

    def load_stepped(self, text: str) -> None:
        """What the load does now, or waits for, in words."""

    def load_progressed(self, state: LoadState, progress: Progress) -> None:
        """Rows that were read are in the side lake."""


class SilentLoadObserver(SilentObserver):
    """Observes nothing."""

    def load_began(self, state: LoadState, *, resumed: bool) -> None: ...

    def load_stepped(self, text: str) -> None: ...

    def load_progressed(self, state: LoadState, progress: Progress) -> None: ...


class MutedObserver(SilentObserver):
    """Passes the joints of a side lake's captures on, and nothing else: its plans and cuts are not the source's."""

    def __init__(self, observer: CaptureObserver) -> None:
        self._observer = observer

    def reached(self, joint: str) -> None:
        self._observer.reached(joint)

    def planned(self, plan: CapturePlan) -> None: ...

    def published(self, cut: Cut) -> None: ...
