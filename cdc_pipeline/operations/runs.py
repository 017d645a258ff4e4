"""Run captures and changes of a source's lake: in this process, or by an orchestrator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypedDict, TypeVar

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.position.cursor import CursorStore, StoredCursor
from cdc_pipeline.run.observer import RunObserver

T = TypeVar("T")


class OperationRun(TypedDict):
    """What every long operation takes."""

    cursors: CursorStore
    observer: RunObserver
    run_id: str


class Runs(Protocol):
    """Starter of runs of one source."""

    def capture(self, bound: Bound, observer: RunObserver) -> None:
        """Raises what `capture.capture` does."""

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        """Run `work` with a writable cursor store and the id of the run."""

    def cursor(self) -> StoredCursor | None:
        pass


class DirectRuns:
    """Runs in this process, with one cursor store."""

    def __init__(self, config: PipelineConfig, cursors: CursorStore, run_id: str = "") -> None:
        self._config = config
        self._cursors = cursors
        self._run_id = run_id

    def capture(self, bound: Bound, observer: RunObserver) -> None:
        # Imported late: Dagster's definitions need the types alone.
        from cdc_pipeline.run.capture.capture import capture

        capture(
            self._config, cursors=self._cursors, bound=bound, observer=observer, run_id=self._run_id
        )

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        return work(self._cursors, self._run_id)

    def cursor(self) -> StoredCursor | None:
        return self._cursors.read()
