"""Compare the Delta tables of a cut with what the cut says of them, without a JVM (K3).

Rules:
- After a cut's version a target holds only commits of the batch to finish, and maintenance.
  Anything else (RESTORE above all, which keeps transaction ids so that a replay would be skipped)
  stops that target. It is looked for when a run begins, and of each table that a batch changes,
  up to the version that the cut will name: the next run begins behind that.
- Of a table whose content the batch to finish replaces (`replace`) only what comes after counts.
- A suspended target may also hold commits that no cut names: those of the batches since it failed
  (K4), as far as their records have the target. Under a number whose record does not have it, the
  commit was made before the lake's state was restored from a backup.
- A commit that the log's retention has removed is not checked: the runs since then have checked it.

An untouched table costs one stat (`TableCheckCache`): a table's log changes only by a name that
comes, goes or is replaced in its folder, also if the table is dropped, created again, moved, or put
back from a backup. Each of these changes the folder's time of change, which no program can set, or
puts another folder (device, inode) in its place. So while the folder is what it was before the last
comparison, that comparison's answer holds.

- Only the answer "as the cut says" is remembered, with what the cut said. Another cut, another
  answer and a suspended table are compared in full.
- What was seen before the comparison is remembered, so that a change during it shows.
- A clock has ticks: a second change within one tick of the first leaves no trace. A folder that has
  changed within the last seconds is not remembered.
- A file that is overwritten in place is not noticed: Delta's protocol forbids it. The table's next
  commit reads again what the log says of the table; what it lists of files, whoever reads rows.
- After a restart of the machine every table is compared in full: a power cut may have taken back
  what the folder said.
- In an object store the commits from the cut's own on are listed, with the tags of their versions:
  one request. The same answer means that nothing came since, and that the table is the same one. It
  is remembered only where nothing is newer than the cut's version, also of the cut that a run
  publishes.
- Only the holder of the source's lock writes or uses the file. It may be removed at any time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths, list_numbers
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable, RecordedTarget
from cdc_pipeline.lake.state import read_record
from cdc_pipeline.lake.storage.object_path import is_object
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.lake.suspensions import new_snapshot
from cdc_pipeline.sink.delta.commit import STEPS_PER_BATCH
from cdc_pipeline.sink.delta.log import (
    COMMIT_NAME,
    LOG_FOLDER,
    Commit,
    commit_file,
    commits_after,
    newest_change,
)
from cdc_pipeline.sink.delta.table_log import TableLog, check_owner, read_table_log

_REQUESTS_AT_A_TIME: Final = 16


def failing_targets(
    paths: LakePaths,
    cut: Cut,
    pending: BatchRecord | None,
    *,
    compared: TableCheckCache | None = None,
) -> dict[str, LakeStateError]:
    """Suspended ones included. `compared`, for the holder of the source's lock alone: logs to which
    nothing has happened since are not read.
    """
    if pending is not None:
        compared = None

    def failure(name: str) -> LakeStateError | None:
        target = cut.cursor.targets[name]
        if (
            compared is not None
            and target.suspended is None
            and compared.is_known(name, cut.tables[name], target.app_id)
        ):
            return None
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
        failures = list(map(failure, names))
    errors = {name: error for name, error in zip(names, failures, strict=True) if error is not None}
    if compared is not None:
        compared.remember(errors)
    return errors


def check_target(paths: LakePaths, cut: Cut, name: str, pending: BatchRecord | None) -> None:
    if pending is not None and any(
        planned.table == name and planned.content is not None for planned in pending.targets
    ):
        return
    path, target = paths.table(name), cut.cursor.targets[name]
    if name not in cut.tables:  # suspended before its creation: the folder must hold nothing else
        there = read_table_log(path)
        if there is not None:
            check_owner(there, name, target.app_id, path=path)
        return
    if pending is not None and _is_replaced(path, name, target.app_id, pending):
        return
    own = {pending.batch_number} if pending is not None else set()
    if target.suspended is not None:
        own.update(_batches_with(paths, name, since=target.suspended.batch_number, cut=cut))
    _check_commits(paths, name, log_of_cut(paths, cut, name), cut.tables[name], own)


def check_batch(
    paths: LakePaths, cut: Cut | None, record: BatchRecord, target: RecordedTarget, there: TableLog
) -> None:
    """Of a table that a batch is applied to, or has been. `cut`: the last one. Raises
    LakeStateError: another program has changed it since, or since the batch replaced its content.
    """
    name, number = target.table, record.batch_number
    table = None if cut is None else cut.tables.get(name)
    goes_on = target.content is None and target.restores < 0
    if cut is not None and table is not None and goes_on:
        state = cut.cursor.targets[name]
        if state.app_id == there.app_id:
            first = number if state.suspended is None else state.suspended.batch_number
            _check_commits(paths, name, there, table, range(first, number + 1))
            return
    commit = newest_change(paths.table(name), there.version)
    if commit is not None and "cdc_app_id" not in commit.user_metadata:
        raise _written_by_others(
            commit,
            name,
            expected=f"only maintenance after the commits of batch {number}",
            next_step="take a new snapshot of the table; to prevent this, let other programs write "
            "only to copies of the lake's tables",
        )


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
        or any(planned.table == name for planned in read_record(paths, number).targets)
    }


def _is_replaced(path: Path, name: str, app_id: str, pending: BatchRecord) -> bool:
    """Whether the batch to finish puts a new table in the place of the cut's, done or under way."""
    there = read_table_log(path)
    return there is not None and any(
        (planned.table, planned.replaces) == (name, app_id)
        and there.app_id in (app_id, planned.app_id)
        for planned in pending.targets
    )


def _way_out(source: str, table: str) -> str:
    return (
        f"`cdc-pipeline verify {source} --table {table}` shows what was changed, and --repair "
        "restores the cut's rows; if these are gone, restore them from a backup, or take a new "
        f"snapshot: {new_snapshot(source, table)}; to prevent this, let other programs write only "
        "to copies of the lake's tables"
    )


@contextmanager
def _naming_snapshot(paths: LakePaths, table: str) -> Iterator[None]:
    """What is told of a log that cannot be read ends with the command of a new snapshot."""
    try:
        yield
    except LakeStateError as error:
        error.next_step = f"{error.next_step}: {new_snapshot(paths.source, table)}"
        raise


def log_of_cut(paths: LakePaths, cut: Cut, name: str) -> TableLog:
    """Raises LakeStateError: the table is gone, another one, set back, or its log is damaged."""
    path, way_out, table = paths.table(name), _way_out(paths.source, name), cut.tables[name]
    with _naming_snapshot(paths, name):
        there = read_table_log(path)
    if there is None:
        raise LakeStateError(
            "a table of the last cut is gone",
            table=name,
            expected=f"a Delta table in {path}",
            next_step=way_out,
        )
    check_owner(there, name, cut.cursor.targets[name].app_id, path=path)
    if there.version < table.table_version:
        raise LakeStateError(
            "a table is older than the last cut",
            table=name,
            expected=f"Delta version {table.table_version} or later",
            got=f"version {there.version}",
            next_step=way_out,
        )
    return there


def _written_by_others(
    commit: Commit, name: str, *, expected: str, next_step: str
) -> LakeStateError:
    return LakeStateError(
        "a table was changed by something other than this pipeline",
        table=name,
        expected=expected,
        got=f"version {commit.version}: {commit.operation}",
        next_step=next_step,
    )


def _check_commits(
    paths: LakePaths, name: str, there: TableLog, table: CutTable, own: Collection[int]
) -> None:
    path, app_id, way_out = paths.table(name), there.app_id, _way_out(paths.source, name)
    with _naming_snapshot(paths, name):
        commits = list(commits_after(path, table.table_version, there.version))
    for commit in commits:
        if not commit.is_maintenance(app_id) and commit.batch_of(app_id) not in own:
            expected = f"only maintenance after the last cut's version {table.table_version}"
            raise _written_by_others(commit, name, expected=expected, next_step=way_out)
    same = there.transaction_version == table.transaction_version
    if not same and there.transaction_version // STEPS_PER_BATCH not in own:
        raise LakeStateError(
            "a table's own record of applied batches contradicts the last cut",
            table=name,
            expected=f"transaction id {table.transaction_version} of {app_id}",
            got=there.transaction_version,
            next_step=way_out,
        )


_SETTLED_NS: Final = 2_000_000_000


class TableCheckCache:
    """The tables of one source that are as a cut says, since the boot of the machine."""

    def __init__(self, paths: LakePaths, *, boot: str) -> None:
        self._paths = paths
        self._boot = boot
        self._known = _read(_file(paths))
        self._now: dict[str, str] = {}

    def is_known(self, name: str, table: CutTable, app_id: str) -> bool:
        """Whether nothing has happened to it since; if not, note what its folder is like."""
        entry = self._entry(name, table, app_id)
        if not entry:
            return False
        self._now[name] = entry
        return self._known.get(name) == entry

    def is_newest(self, name: str, table: CutTable, app_id: str, *, is_just_made: bool) -> bool:
        """`is_just_made`: the newest commit is of that cut's batch, and has nothing behind it."""
        commit = commit_file(self._paths.table(name), table.table_version)
        if not is_object(commit):
            return False
        tag = commit.store.tag_written(commit.key) if is_just_made else ""
        # Maintenance runs beside a capture: what was seen when the run began is seen no longer.
        entry = f"{tag} {_said(table, app_id)}" if tag else self._entry(name, table, app_id)
        if tag or name in self._now:  # it was compared when the run began
            self._now[name] = entry
        return bool(entry)

    def _entry(self, name: str, table: CutTable, app_id: str) -> str:
        path = self._paths.table(name)
        if is_object(path):
            seen = _commits_from(self._paths.table(name), table.table_version)
        else:
            seen = f"{self._boot} {local}" if (local := _seen(path)) else ""
        return f"{seen} {_said(table, app_id)}" if seen else ""

    def remember(self, failures: Mapping[str, object]) -> None:
        for name in failures:
            self._now.pop(name, None)
        known = {name: entry for name, entry in self._now.items() if entry}
        if known != self._known:
            file = _file(self._paths)
            storage_of(file).replace(file, json.dumps(known, separators=(",", ":")).encode())
            self._known = known


def _said(table: CutTable, app_id: str) -> str:
    return f"{table.table_version} {table.transaction_version} {app_id}"


def _commits_from(table: Path, version: int) -> str:
    """The tag of a version's commit; "" if it is gone, or not the newest."""
    log, file = table / LOG_FOLDER, commit_file(table, version)
    assert is_object(log)
    listed = log.store.listed_after(
        log.key, commit_file(table, version - 1).name if version else ""
    )
    commits = [name for name in listed if COMMIT_NAME.fullmatch(name)]
    return listed[file.name].tag if commits == [file.name] else ""


def _file(paths: LakePaths) -> Path:
    return paths.state / "table_check_cache.json"


def _read(file: Path) -> dict[str, str]:
    try:
        seen_by_name = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return seen_by_name if isinstance(seen_by_name, dict) else {}


def _seen(table: Path) -> str:
    """What identifies the state of a table's log folder; "" if it is gone or has just changed."""
    try:
        folder_stat = os.stat(table / LOG_FOLDER)
    except OSError:
        return ""
    if time.time_ns() - folder_stat.st_ctime_ns < _SETTLED_NS:
        return ""
    return f"{folder_stat.st_dev}:{folder_stat.st_ino}:{folder_stat.st_ctime_ns}"
