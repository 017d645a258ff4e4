"""Captures and repairs of a verification as Dagster runs, so that the cursor's events are valid (K3).

Rules:
- Reading and comparing are in no run: they hold no slot of the source's pool.
- Each capture is a run of the source's job as any other; a repair is one like a person's change of the cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import dagster as dg

from cdc_pipeline.config import Bound, PipelineConfig
from cdc_pipeline.orchestration.cursor_job import execute_cursor_change
from cdc_pipeline.orchestration.execute import LoadedSource, execute_capture
from cdc_pipeline.pipeline.report import CaptureObserver
from cdc_pipeline.position.cursor import CursorState, CursorStore

T = TypeVar("T")


class VerifyRuns:
    """Implements `pipeline.verify_captures.Runs`.

    Args:
        on_waiting: is told the ids of the runs that hold the source.
    """

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        log_level: str = "CRITICAL",
        on_waiting: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._loaded = loaded
        self._config = config
        self._instance = instance
        self._log_level = log_level
        self._on_waiting = on_waiting

    def capture(self, bound: Bound, observer: CaptureObserver) -> None:
        """A run of the source's job."""
        run = execute_capture(
            self._loaded,
            instance=self._instance,
            bound=bound,
            observer=observer,
            log_level=self._log_level,
            on_waiting=self._on_waiting,
        )
        if run.error is not None:
            raise run.error

    def change(self, work: Callable[[CursorStore, str], T]) -> T:
        """A run of its own in which the lake is changed."""
        found: list[T] = []
        execute_cursor_change(
            self._loaded,
            self._config,
            kind="repair",
            instance=self._instance,
            work=lambda cursors, run_id: found.append(work(cursors, run_id)),
            log_level=self._log_level,
            on_waiting=self._on_waiting,
        )
        return found[0]

    def cursor(self) -> CursorState | None:
        """The latest cursor in Dagster."""
        return self._loaded.cursors(self._instance).read()
