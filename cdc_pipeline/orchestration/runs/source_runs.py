"""Captures and changes of the lake as separate Dagster runs, because only a run's event is a valid
cursor (K3).

Rules:
- Each capture is an ordinary run of the source's job; a change is a run like a person's change of
  the cursor.
- Work between them belongs to no run, so it holds no slot of the source's pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import dagster as dg

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.orchestration.runs.cursor_job import ChangeKind, execute_cursor_change
from cdc_pipeline.orchestration.runs.execute import LoadedSource, execute_capture
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.position.cursor import CursorStore, StoredCursor

T = TypeVar("T")


class SourceRuns:
    """Starts runs of one source (see `pipeline.runs.Runs`).

    `kind`: name of a change of the lake; `on_waiting`: called with the ids of the runs that hold
    the source.
    """

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        kind: ChangeKind,
        log_level: str = "CRITICAL",
        on_waiting: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._loaded = loaded
        self._config = config
        self._instance = instance
        self._kind: ChangeKind = kind
        self._log_level = log_level
        self._on_waiting = on_waiting

    def capture(self, bound: Bound, observer: RunObserver) -> None:
        """Run the source's job; raise the error it failed with."""
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
        """In a run of its own."""
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

    def cursor(self) -> StoredCursor | None:
        return self._loaded.cursors(self._instance).read()


class DagsterAccess:
    """A source whose cursor is in Dagster (see `cli.common.source_access.SourceAccess`)."""

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        log_level: str = "CRITICAL",
    ) -> None:
        self.loaded = loaded
        self.instance = instance
        self.cursors = loaded.cursors(instance)
        self._config = config
        self._log_level = log_level

    @property
    def skipped(self) -> tuple[str, ...]:
        """The events that the last read of the cursor passed over."""
        return self.cursors.skipped

    def runs(self, kind: ChangeKind, *, on_waiting: Callable[[list[str]], None]) -> SourceRuns:
        return SourceRuns(
            self.loaded,
            self._config,
            instance=self.instance,
            kind=kind,
            log_level=self._log_level,
            on_waiting=on_waiting,
        )
