"""How long a cut stays readable (K15: no vacuum removes files of a retained cut), and when old
files of a table's log are removed (K21: only once the checkpoint that covers them is durable).

Rules:
- VACUUM cannot pin a version. ``sink.cut_retention`` is a duration: the tables' own retention of
  log and files. A file that a cut reads is removed by a later commit, hence after the cut was
  published, and remains for that long.
- Maintenance replaces files of a table that no batch changes. Cuts published afterwards name the
  version after it: otherwise the newest cut would lose its files to a vacuum. Only a version that
  is durable is named (K21).
- Delta would remove them as soon as it has written a checkpoint, which is then only in memory: a
  power cut could keep the removal and lose the checkpoint. The tables' properties switch that off
  (`retention`), and this is called after the cut that follows the checkpoint.
- A version stays readable for the table's own retention after the next one replaced it (K15): the
  newest checkpoint that is older than the retention, and everything after it, is kept. So is what
  the oldest cut needs that its age keeps: it may name a version of long before it was replaced.
- A failure only costs disk space: the next cleanup removes the files too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import CdcError, LakeDiskError, LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.storage import TEMPORARY_PREFIX, storage_of
from cdc_pipeline.sink.delta.features import allowed, creation_properties
from cdc_pipeline.sink.delta.log import LOG_FOLDER, VERSION_NAME, commit_file, read_commit
from cdc_pipeline.sink.delta.replay import complete_checkpoints
from cdc_pipeline.sink.delta.table_checks import TableCheckCache
from cdc_pipeline.sink.delta.table_log import TableLog
from cdc_pipeline.sink.durable.durability import Commits, make_durable

_READERS: Final = 16  # each reads a table's log: a round trip on an object store
LOG_RETENTION: Final = "delta.logRetentionDuration"
LOG_CLEANUP: Final = "delta.enableExpiredLogCleanup"
FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"


def retention_properties(config: SinkConfig) -> dict[str, str]:
    text = f"interval {round(config.cut_retention.total_seconds())} seconds"
    # Delta would remove old log files as soon as a checkpoint covers them, before that is durable
    # (`remove_old_log_files`).
    return {LOG_RETENTION: text, FILE_RETENTION: text, LOG_CLEANUP: "false"}


def new_properties(config: SinkConfig) -> dict[str, str]:
    """Those that the sink sets in a new table of its own accord."""
    return creation_properties(allowed(config)) | retention_properties(config)


def differing_properties(config: SinkConfig, properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in retention_properties(config).items()
        if properties.get(name) != text
    }


def over_maintenance(paths: LakePaths, cut: Cut, compared: TableCheckCache | None = None) -> Cut:
    """Each table at its newest version, if only maintenance lies between."""
    tables, targets = dict(cut.tables), dict(cut.cursor.targets)

    def newest(name: str) -> int:
        path, version, target = paths.table(name), cut.tables[name].table_version, targets[name]
        is_just_made = target.applied_batch == cut.batch_number
        if compared and compared.is_newest(
            name, cut.tables[name], target.app_id, is_just_made=is_just_made
        ):
            return version
        # The next run checks the table and suspends it.
        with suppress(LakeStateError, LakeDiskError):
            named, version = version, _after_maintenance(path, target.app_id, version)
            if version != named and make_durable(
                {name: Commits(path, named, version)}, lake=paths.lake
            ):
                return named
        return version

    with ThreadPoolExecutor(_READERS, "cut") as threads:
        versions = dict(zip(cut.tables, threads.map(newest, cut.tables), strict=True))
    for name, version in versions.items():
        table = cut.tables[name]
        if version != table.table_version:
            tables[name] = table.model_copy(update={"table_version": version})
            targets[name] = targets[name].model_copy(update={"table_version": version})
    if tables == cut.tables:
        return cut
    return cut.model_copy(
        update={"tables": tables, "cursor": cut.cursor.model_copy(update={"targets": targets})}
    )


def _after_maintenance(path: Path, app_id: str, version: int) -> int:
    while (commit := read_commit(path, version + 1)) and commit.is_maintenance(app_id):
        version += 1
    return version


_INTERVAL: Final = re.compile(r"interval (\d+) (second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


def remove_old_log_files(table: Path, log: TableLog, *, read: int | None = None) -> int:
    """Older than its retention, and covered by a checkpoint up to `log`, or to one still `read`."""
    newest = log.version if read is None else min(read, log.version)
    interval = _INTERVAL.fullmatch(log.properties.get(LOG_RETENTION, ""))
    if interval is None:
        return 0
    until_s = time.time() - int(interval[1]) * _SECONDS[interval[2].lower()]
    folder, removed = table / LOG_FOLDER, 0
    with suppress(OSError, CdcError):
        written_s = storage_of(folder).written_s(folder)
        old = {name for name, at_s in written_s.items() if at_s <= until_s}
        covering = [
            version
            for version in complete_checkpoints(folder, written_s)
            if version <= newest and commit_file(table, version).name in old
        ]
        kept = max(covering, default=0)
        for name in sorted(written_s):
            name_match = VERSION_NAME.fullmatch(name)
            is_covered = name_match is not None and int(name_match[1]) < kept
            # one whose writer was killed
            is_left = name.startswith(TEMPORARY_PREFIX) and name in old
            if is_covered or is_left:
                (folder / name).unlink(missing_ok=True)
                removed += 1
    return removed
