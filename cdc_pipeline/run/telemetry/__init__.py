"""Figures and events of each capture for other systems: OpenMetrics and OpenLineage.

Rules:
- Both are off by default, and belong to the capture itself: the command line, Python and Dagster
  write the same.
- Nobody who only watches can fail a run: what cannot be written or sent is logged as a warning. A
  client that is configured and not installed is refused before the run begins.
- A capture that another one keeps waiting has not begun: nothing is written about it.
"""

from __future__ import annotations

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.run.observer import RelayObserver, RunObserver


def watched(config: PipelineConfig, observer: RunObserver | None, *, run_id: str) -> RunObserver:
    """With the observers that are configured; RuntimeSetupError: a client is not installed."""
    observers = [] if observer is None else [observer]
    # Late: most captures need neither.
    if config.metrics is not None:
        from cdc_pipeline.run.telemetry.metrics import MetricsObserver

        observers.append(MetricsObserver(config, config.metrics))
    if config.openlineage is not None:
        from cdc_pipeline.run.telemetry.lineage import LineageObserver

        observers.append(LineageObserver(config, config.openlineage, run_id=run_id))
    return observers[0] if len(observers) == 1 else RelayObserver(*observers)
