"""How long a cut stays readable (K15: no vacuum removes files of a retained cut).

Rules:
- VACUUM cannot pin a version. ``sink.cut_retention`` is a duration: the tables' own retention of
  log and files. A file that a cut reads is removed by a later commit, hence after the cut was
  published, and remains for that long.
- Maintenance replaces files of a table that no batch changes. Cuts published afterwards name the
  version after it: otherwise the newest cut would lose its files to a vacuum. Only a version that
  is durable is named (K21).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.sink.delta.log import is_maintenance, read_commit
from cdc_pipeline.sink.durable.durability import Commits, make_durable

_READERS: Final = 16  # each reads a table's log: a round trip on an object store
LOG_RETENTION: Final = "delta.logRetentionDuration"
LOG_CLEANUP: Final = "delta.enableExpiredLogCleanup"
FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"


def retention_properties(config: SinkConfig) -> dict[str, str]:
    text = f"interval {round(config.cut_retention.total_seconds())} seconds"
    # Delta would remove old log files as soon as a checkpoint covers them, before that is durable
    # (`log_cleanup`).
    return {LOG_RETENTION: text, FILE_RETENTION: text, LOG_CLEANUP: "false"}


def differing_properties(config: SinkConfig, properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in retention_properties(config).items()
        if properties.get(name) != text
    }


def over_maintenance(paths: LakePaths, cut: Cut) -> Cut:
    """Each table at its newest version, if only maintenance lies between."""
    tables, targets = dict(cut.tables), dict(cut.cursor.targets)

    def newest(name: str) -> int:
        path, version = paths.table(name), cut.tables[name].table_version
        with suppress(LakeStateError):  # the next run checks the table and suspends it
            named, version = version, _after_maintenance(path, targets[name].app_id, version)
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
        update={"tables": tables, "cursor": cut.cursor.model_copy(update={"targets": targets})},
    )


def _after_maintenance(path: Path, app_id: str, version: int) -> int:
    while (commit := read_commit(path, version + 1)) is not None and is_maintenance(
        commit, app_id=app_id
    ):
        version += 1
    return version
