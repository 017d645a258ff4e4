"""Remove old files of a table's log once the checkpoint that covers them is durable (K21).

Rules:
- Delta removes them as soon as it has written a checkpoint, which is then only in memory: a power
  cut could keep the removal and lose the checkpoint. The tables' properties switch that off
  (`retention`).
- Delta's own code removes them, by the same rules and the table's own retention, after the cut that
  follows the checkpoint. A failure only costs disk space: the next cleanup removes them too.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def remove_old_log_files(session: SparkSession, table: Path) -> None:
    """Remove the files of the log that are older than the table's retention and that a checkpoint
    covers."""
    context: Any = session
    with suppress(Exception):
        log = context._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            context._jsparkSession, str(table)
        )
        defaults = (getattr(log, f"cleanUpExpiredLogs$default${at}")() for at in (2, 3, 4))
        log.cleanUpExpiredLogs(log.unsafeVolatileSnapshot(), *defaults)
