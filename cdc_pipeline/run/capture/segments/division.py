"""Whether a run is read on executors, and how it is divided."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.config.pipeline_config import PipelineConfig


@dataclass(frozen=True, slots=True)
class Parallel:
    """`stretch_bytes_min`: a smaller stretch is read in sequence; `wave_bytes`: of one batch."""

    stretch_bytes_min: int = 16 << 20
    wave_bytes: int = 8 << 30


def division(config: PipelineConfig, *, bytes_expected: int) -> Parallel | str:
    """Or why the run is read in this process."""
    wanted = config.batch.decode
    if wanted == "driver":
        return "batch.decode is driver"
    if wanted == "auto" and config.sink.spark.is_local:
        return "Spark's executors are threads of this process"
    if wanted == "auto" and bytes_expected < config.batch.executors_bytes_min:
        return "the log to read is shorter than batch.executors_bytes_min"
    return Parallel()
