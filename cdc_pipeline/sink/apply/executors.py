"""Whether Spark's executors can run this package's code.

A cluster's workers have their own Pythons. One small task finds beforehand what would fail there: a
recorded batch that only executors can finish must not wait until a package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cdc_pipeline
from cdc_pipeline.errors import RuntimeSetupError
from cdc_pipeline.sink.spark.journal_tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS: Final = 2  # more than one machine may answer


def lack_of_executors(session: SparkSession) -> str:
    """Return why executors cannot run this package's code, in one sentence; empty if they can."""
    try:
        versions = set(run_tasks(session, [""] * _TASKS, _version))
    except RuntimeSetupError as error:
        return f"Spark's executors cannot run this package: {error.got}"
    other = sorted(versions - {cdc_pipeline.__version__})
    if other:
        return (
            f"Spark's executors have cdc_pipeline {', '.join(other)}, the driver has "
            f"{cdc_pipeline.__version__}"
        )
    return ""


def _version(_task: str) -> str:
    """Return the package's version on an executor, after importing what decoding needs there."""
    from cdc_pipeline.sink.apply import raw_decode  # noqa: F401  (with all that it needs)

    return cdc_pipeline.__version__
