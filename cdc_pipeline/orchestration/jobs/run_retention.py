"""Keep Dagster's history of a source small: delete old runs with their events.

Dagster itself never deletes a run, and its SQLite storage has a file for each one.

Rules:
- Only finished runs of the source's own jobs are deleted.
- The run of the cursor stays, and those of the newest event of each asset of the source, and of
  each partition of its snapshots and backfills: the next run reads the first, and Dagster's pages
  show the others. So a table that seldom changes keeps what is known of it. So does the run that
  an asset's next `cdc_changes` follow.
- A run's file of events is removed with it: SQLite does not shrink a file whose rows are deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg

from cdc_pipeline.orchestration.changes import run_of_bookmark
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.translator import SOURCE_TAG, CdcTranslator

_FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_RECORDS_PER_REQUEST: Final = 1_000  # Dagster raises above 10,000


def delete_old_runs(
    instance: dg.DagsterInstance,
    *,
    source: str,
    retention: timedelta | None,
    translator: CdcTranslator,
) -> int:
    """Those unchanged for longer than the retention (None keeps all); returns how many."""
    if retention is None:
        return 0
    old = instance.get_run_ids(
        dg.RunsFilter(
            tags={SOURCE_TAG: source},
            statuses=list(_FINISHED),
            updated_before=datetime.now(UTC) - retention,
        )
    )
    kept = _runs_in_use(instance, source, translator) if old else set()
    deleted = [run_id for run_id in old if run_id not in kept]
    for run_id in deleted:
        instance.delete_run(run_id)
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        _remove_file_of(instance, run_id)
    return len(deleted)


def _runs_in_use(instance: dg.DagsterInstance, source: str, translator: CdcTranslator) -> set[str]:
    cursor_key = translator.cursor_key(source)
    cursors = DagsterCursorStore(instance, asset_key=cursor_key, source=source)
    run_ids = {entry.run_id for entry in cursors.history(1)}
    newest = instance.get_latest_materialization_events(instance.get_asset_keys())
    run_ids |= {event.run_id for event in newest.values() if event is not None}
    run_ids |= {run_of_bookmark(instance, key) for key in newest}
    for key in (translator.snapshot_key(source), translator.backfill_key(source)):
        by_partition = instance.event_log_storage.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        ids = [*by_partition.values()]
        for first in range(0, len(ids), _RECORDS_PER_REQUEST):
            storage_ids = ids[first : first + _RECORDS_PER_REQUEST]
            part = dg.AssetRecordsFilter(key, storage_ids=storage_ids)
            records = instance.fetch_materializations(part, limit=len(storage_ids)).records
            run_ids |= {record.run_id for record in records}
    return run_ids


def _remove_file_of(instance: dg.DagsterInstance, run_id: str) -> None:
    # Only the storage with a file for each run has this method.
    path_of = getattr(instance.event_log_storage, "path_for_shard", None)
    if path_of is None:
        return
    file = Path(path_of(run_id))
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)
