"""Captures and swaps of a load as Dagster runs."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.orchestration.cursor_job import ChangeKind
from cdc_pipeline.orchestration.execute import LoadedSource
from cdc_pipeline.orchestration.source_runs import SourceRuns
from cdc_pipeline.pipeline.load.observer import LoadObserver


class DagsterRuns(SourceRuns):
    """Implements `pipeline.load_main.MainRuns`."""

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
        super().__init__(loaded, config, instance=instance, kind=kind, log_level=log_level, on_waiting=on_waiting)

    def capture(self, observer: LoadObserver) -> None:
        """A run of the source's job, to the end of the log."""
        self.capture_to("end_of_log", observer)
