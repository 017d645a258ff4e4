"""Remove old files of a table's log once the checkpoint that covers them is durable (K21).

Rules:
- Delta would remove them as soon as it has written a checkpoint, which is then only in memory: a
  power cut could keep the removal and lose the checkpoint. The tables' properties switch that off
  (`retention`), and this is called after the cut that follows the checkpoint.
- A version stays readable for the table's own retention after the next one replaced it (K15): the
  newest checkpoint that is older than the retention, and everything after it, is kept.
- A failure only costs disk space: the next cleanup removes the files too.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import TEMPORARY_PREFIX, storage_of
from cdc_pipeline.sink.delta.log import LOG_FOLDER, TableLog, commit_file
from cdc_pipeline.sink.delta.row_count import log_files
from cdc_pipeline.sink.durable.retention import LOG_RETENTION

_LOG_NAME: Final = re.compile(r"\.?(\d{20})\..*")
_INTERVAL: Final = re.compile(r"interval (\d+) (second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


def remove_old_log_files(table: Path, log: TableLog) -> int:
    """Remove the files of a log that are older than its retention and that a checkpoint up to
    the version of `log` covers. Return how many.
    """
    interval = _INTERVAL.fullmatch(log.properties.get(LOG_RETENTION, ""))
    if interval is None:
        return 0
    until_s = time.time() - int(interval[1]) * _SECONDS[interval[2].lower()]
    folder, removed = table / LOG_FOLDER, 0
    with suppress(OSError, CdcError):
        checkpoints = sorted(log_files(folder)[1], reverse=True)
        old = (
            version
            for version in checkpoints
            if version <= log.version and _is_old(commit_file(table, version), until_s)
        )
        kept = next(old, 0)
        for name in sorted(storage_of(folder).names(folder)):
            found = _LOG_NAME.fullmatch(name)
            is_covered = found is not None and int(found[1]) < kept
            # one whose writer was killed
            is_left = name.startswith(TEMPORARY_PREFIX) and _is_old(folder / name, until_s)
            if is_covered or is_left:
                (folder / name).unlink(missing_ok=True)
                removed += 1
    return removed


def _is_old(file: Path, until_s: float) -> bool:
    """False if it is gone."""
    if is_object(file):
        at = file.store.modified_at(file.key)
        return at is not None and at.timestamp() <= until_s
    return file.exists() and file.stat().st_mtime <= until_s
