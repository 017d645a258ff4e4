"""Fill a side lake from an archive in parallel, one segment of a journal a task on executors
(K18).

A killed backfill resumes at the lake's cursor, in parallel or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PositionConfig
from cdc_pipeline.errors import ConfigError, TargetSuspendedError
from cdc_pipeline.pipeline.capture.segments.division import Parallel
from cdc_pipeline.pipeline.capture.segments.parallel import hashed_table
from cdc_pipeline.pipeline.report import ParallelReport
from cdc_pipeline.pipeline.side_lake import SideLake


def fill_in_parallel(
    lake: SideLake, *, tables: Sequence[str], parallel: Parallel
) -> ParallelReport:
    """The lake's start and end are fixed; a capture after it finds what is left.

    Raises ConfigError if the range is not that of an archive.
    """
    config = lake.config
    if not isinstance(config.source, ArchiveSourceConfig):
        raise ConfigError(
            "only archives can be decoded in parallel",
            setting="parallel",
            expected="a directory of journals",
            got="a running server",
            next_step="name the directory with --archive, or omit --parallel",
        )
    refused = hashed_table(config, tables)
    if not isinstance(config.bound, PositionConfig) or not isinstance(config.start, PositionConfig):
        refused = "the range does not lie between two positions of the journals"
    if refused:
        return ParallelReport(one_after_the_other=(refused,))
    try:
        done = lake.capture(parallel=parallel).parallel
    except TargetSuspendedError as error:
        why = f"{error.what}: the rest, for the tables that continue"
        return ParallelReport(one_after_the_other=(why,))
    return done or ParallelReport()
