"""Step failures whose text Dagster may store, without a cause that it would record (K26: no row
values in logs)."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.text.server_messages import said_by


def resolved(pipeline: PipelineConfig) -> PipelineConfig:
    """With secrets, which definitions have not; `dg.Failure`: a variable is unset, or wrong."""
    try:
        return pipeline.resolved()
    except CdcError as error:
        raise failure_of(error, allow_retries=False) from error


@contextmanager
def failing_step(lake: Path) -> Iterator[None]:
    """What the block raises becomes a failure of the step."""
    try:
        with files_failing(lake):
            yield
    except CdcError as error:
        raise failure_of(error, allow_retries=error.retryable) from error
    except Exception as error:
        raise unexpected(error) from None


def failure_of(error: CdcError, *, allow_retries: bool) -> dg.Failure:
    metadata = {
        name: value if isinstance(value, int | bool) else str(value)
        for name, value in error.as_dict().items()
    }
    return dg.Failure(description=str(error), metadata=metadata, allow_retries=allow_retries)


def unexpected(error: Exception) -> dg.Failure:
    """The failure for an unexpected error: its type, and where this package met it.

    Raise it `from None`: a library's message may quote row values, and Dagster would store them
    with the traceback.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "cdc_pipeline" in frame.filename
    ]
    places = [
        f"{frame.filename.rpartition('cdc_pipeline')[2].lstrip('/')}:{frame.lineno}"
        for frame in frames[-3:]
    ]
    return dg.Failure(description=f"{said_by(error)} (at {', '.join(places)})", allow_retries=True)
