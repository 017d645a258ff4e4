"""Captures and swaps of a load as Dagster runs of their own, so that the cursor's events are valid (K3).

Rules:
- What a load reads and builds beside the source's tables is in no run: it holds no slot of the source's pool.
- Each capture is a run of the source's job as any other; the swap is one like a person's change of the cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import dagster as dg

from cdc_pipeline.config import PipelineConfig
from cdc_pipeline.orchestration.cursor_job import ChangeKind, execute_cursor_change
from cdc_pipeline.orchestration.execute import LoadedSource, execute_capture
from cdc_pipeline.pipeline.load_observer import LoadObserver
from cdc_pipeline.position.cursor import CursorStore

T = TypeVar("T")


class DagsterRuns:
    """Implements `pipeline.load_main.MainRuns`.

    Args:
        kind: what a change of the lake is called.
        on_waiting: is told the ids of the runs that hold the source.
    """

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        kind: ChangeKind = "load",
        log_level: str = "CRITICAL",
        on_waiting: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._loaded = loaded
        self._config = config
        self._instance = instance
        self._kind: ChangeKind = kind
        self._log_level = log_level
        self._on_waiting = on_waiting

    def capture(self, observer: LoadObserver) -> None:
        """A run of the source's job, to the end of the log."""
        run = execute_capture(
            self._loaded,
            instance=self._instance,
            bound="end_of_log",
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
            kind=self._kind,
            instance=self._instance,
            work=lambda cursors, run_id: found.append(work(cursors, run_id)),
            log_level=self._log_level,
            on_waiting=self._on_waiting,
        )
        return found[0]
