"""Old files of a table's log are removed once the checkpoint that sums them up is durable (K21).

Rules:
- Delta removes them as soon as it has written a checkpoint, which is then in the machine's memory alone: a power cut
  could keep the removal and lose the checkpoint. The tables' properties switch that off (`retention`).
- Delta's own code removes them, by the same rules and the table's own retention, after the cut that follows the
  checkpoint. A failure costs only room: the next checkpoint's turn removes them too.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def remove_old_log_files(session: SparkSession, table: Path) -> None:
    """Remove the files of the log that are older than the table's retention and that a checkpoint sums up."""
    context: Any = session
    with suppress(Exception):
        log = context._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(context._jsparkSession, str(table))
        defaults = (getattr(log, f"cleanUpExpiredLogs$default${at}")() for at in (2, 3, 4))
        log.cleanUpExpiredLogs(log.unsafeVolatileSnapshot(), *defaults)
