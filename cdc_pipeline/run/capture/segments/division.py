"""Whether a run is read on executors, and how it is divided."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import PipelineConfig


@dataclass(frozen=True, slots=True)
class Parallel:
    """`stretch_bytes_min`: a smaller stretch is read in sequence; `wave_bytes`: of one batch."""

    stretch_bytes_min: int = 16 << 20
    wave_bytes: int = 8 << 30


def division(config: PipelineConfig, *, bytes_expected: int) -> Parallel | None:
    """None if the run is read in this process."""
    if config.batch.decode == "auto":
        is_large = bytes_expected >= config.batch.executors_bytes_min
        return Parallel() if is_large and not config.sink.spark.is_local else None
    return Parallel() if config.batch.decode == "executors" else None
