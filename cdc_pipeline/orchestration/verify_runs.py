"""Captures and repairs of a verification as Dagster runs."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.orchestration.execute import LoadedSource
from cdc_pipeline.orchestration.source_runs import SourceRuns
from cdc_pipeline.pipeline.report import CaptureObserver


class VerifyRuns(SourceRuns):
    """Implements `pipeline.verify_captures.Runs`."""

    def __init__(
        self,
        loaded: LoadedSource,
        config: PipelineConfig,
        *,
        instance: dg.DagsterInstance,
        log_level: str = "CRITICAL",
        on_waiting: Callable[[list[str]], None] | None = None,
    ) -> None:
        super().__init__(loaded, config, instance=instance, kind="repair", log_level=log_level, on_waiting=on_waiting)

    def capture(self, bound: Bound, observer: CaptureObserver) -> None:
        """A run of the source's job."""
        self.capture_to(bound, observer)
