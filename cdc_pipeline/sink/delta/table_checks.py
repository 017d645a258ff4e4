from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.sink.delta.compared_tables import ComparedTables
from cdc_pipeline.sink.delta.log import (
    TableLog,
    is_maintenance,
    is_of_batch,
    read_commit,
    read_table_log,
)
from cdc_pipeline.sink.delta.table_owner import check_owner
from cdc_pipeline.sink.delta.transactions import STEPS_PER_BATCH

_REQUESTS_AT_A_TIME: Final = 16


def failing_targets(
    paths: LakePaths, cut: Cut, pending: BatchRecord | None, *, boot: str = ""
) -> dict[str, LakeStateError]:
    """The targets of a cut whose tables differ from it, suspended ones included.

    `boot`, for the holder of the source's lock alone, identifies this boot of the machine: logs
    to which nothing has happened since the last comparison are not read (`compared_tables`).
    """
    compared = None
    if boot and pending is None and not is_object(paths.lake):
        compared = ComparedTables(paths, boot=boot)

    def is_known(name: str) -> bool:
        target = cut.cursor.targets[name]
        return (
            compared is not None
            and target.suspended is None
            and compared.is_known(name, cut.tables[name], target.app_id)
        )

    def failure(name: str) -> LakeStateError | None:
        try:
            check_target(paths, cut, name, pending)
        except LakeStateError as error:
            error.table = name
            return error
        return None

    names = sorted(cut.tables)
    # Each table is a few requests, which wait for the store, not for this machine.
    if is_object(paths.lake):
        with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as threads:
            failures = list(threads.map(failure, names))
    else:
        failures = [None if is_known(name) else failure(name) for name in names]
    found = {name: error for name, error in zip(names, failures, strict=True) if error is not None}
    if compared is not None:
        compared.remember(found)
    return found


def check_target(paths: LakePaths, cut: Cut, name: str, pending: BatchRecord | None) -> None:
    """Raises LakeStateError: the table is gone, is another one, was set back, or was written by
    others.
    """
    if pending is not None and any(
        made.table == name and made.content is not None for made in pending.targets
    ):
        return
    path, target = paths.table(name), cut.cursor.targets[name]
    table = cut.tables.get(name)
    if table is None:  # suspended before its table was created: the folder must hold nothing else
        there = read_table_log(path)
        if there is not None:
            check_owner(there, name, target.app_id, path=path)
        return
    if pending is not None and _is_replaced(path, name, target.app_id, pending):
        return
    own = {pending.batch_number} if pending is not None else set()
    if target.suspended is not None:
        own.update(_batches_with(paths, name, since=target.suspended.batch_number, cut=cut))
    _check_commits(paths, name, target.app_id, table, own)


def _batches_with(paths: LakePaths, name: str, *, since: int, cut: Cut) -> set[int]:
    """The batches up to a cut whose records have a target, and those whose records are gone."""
    there = read_table_log(paths.table(name))
    if there is None or there.version <= cut.tables[name].table_version:
        return set()  # no commit to explain; nor is another id at the cut's own version
    kept = set(list_numbers(paths.batches))
    return {
        number
        for number in range(since, cut.batch_number + 1)
        if number not in kept
        or any(made.table == name for made in read_record(paths, number).targets)
    }


def _is_replaced(path: Path, name: str, app_id: str, pending: BatchRecord) -> bool:
    """Whether the batch to finish puts a new table in the place of the cut's, done or under way."""
    there = read_table_log(path)
    return there is not None and any(
        (made.table, made.replaces) == (name, app_id) and there.app_id in (app_id, made.app_id)
        for made in pending.targets
    )


def _way_out(source: str, table: str) -> str:
    return (
        f"`cdc-pipeline verify {source} --table {table}` shows what was changed, and --repair "
        "restores the cut's rows; if these are gone, restore them from a backup, or take a new "
        f"snapshot: {new_snapshot(source, table)}; to prevent this, let other programs write only "
        "to copies of the lake's tables"
    )


def log_of_cut(paths: LakePaths, cut: Cut, name: str) -> TableLog:
    """Raises LakeStateError: the table is gone, is another one, or was set back; its log cannot
    be read.
    """
    return _log_of_cut(paths, name, cut.cursor.targets[name].app_id, cut.tables[name])


def _log_of_cut(paths: LakePaths, name: str, app_id: str, table: CutTable) -> TableLog:
    path, way_out = paths.table(name), _way_out(paths.source, name)
    try:
        there = read_table_log(path)
    except LakeStateError as error:
        error.next_step = f"{error.next_step}: {new_snapshot(paths.source, name)}"
        raise
    if there is None:
        raise LakeStateError(
            "a table of the last cut is gone",
            table=name,
            expected=f"a Delta table in {path}",
            next_step=way_out,
        )
    check_owner(there, name, app_id, path=path)
    if there.version < table.table_version:
        raise LakeStateError(
            "a table is older than the last cut",
            table=name,
            expected=f"Delta version {table.table_version} or later",
            got=f"version {there.version}",
            next_step=way_out,
        )
    return there


def _check_commits(
    paths: LakePaths, name: str, app_id: str, table: CutTable, own: set[int]
) -> None:
    there = _log_of_cut(paths, name, app_id, table)
    path, way_out = paths.table(name), _way_out(paths.source, name)
    for version in range(table.table_version + 1, there.version + 1):
        commit = read_commit(path, version)
        if commit is None or is_maintenance(commit, app_id=app_id):
            continue
        if not any(is_of_batch(commit, app_id=app_id, batch_number=number) for number in own):
            raise LakeStateError(
                "a table was changed by something other than this pipeline",
                table=name,
                expected=f"only maintenance after the last cut's version {table.table_version}",
                got=f"version {version}: {commit.operation}",
                next_step=way_out,
            )
    same = there.transaction_version == table.transaction_version
    if not same and there.transaction_version // STEPS_PER_BATCH not in own:
        raise LakeStateError(
            "a table's own record of applied batches contradicts the last cut",
            table=name,
            expected=f"transaction id {table.transaction_version} of {app_id}",
            got=there.transaction_version,
            next_step=way_out,
        )
