"""Take back what a target got from batches that left it behind (K2, K4).

A batch may have committed to a table and leave its target behind nevertheless: the table's
registration failed, or an earlier run that was killed had come that far. No cut names these
commits, and the target reads its part of the log again from before them. Where each change leaves a
record of its own, it would be there twice.

Rules:
- A table that a cut names must be restored to that version, which is a batch of its own (see
  `external_writes`). Mirrors and soft deletes with a key are not: a change that comes again alters
  nothing there.
- A table that no cut names is removed, the newest commit first, so that its log is valid at each
  moment. Nobody has read it as of a cut.
- It is looked at again in the same step that applies the changes: Delta refuses one of two commits
  under the ids of one table.
"""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.errors import ConcurrentWriterError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import BatchRecord, Cut, RecordedTarget
from cdc_pipeline.lake.state import read_cut
from cdc_pipeline.sink.delta.log import commits_after
from cdc_pipeline.sink.delta.table_log import TableLog, check_owner, read_table_log
from cdc_pipeline.sink.durable.power_cut import set_back


def roll_back_uncut(paths: LakePaths, cut: Cut, name: str) -> int | None:
    """Remove a suspended target's table, or return the version to restore it to; None if there is
    nothing to take back. Raises LakeStateError: another table lies there, or its log is damaged.
    """
    path, state, table = paths.table(name), cut.cursor.targets[name], cut.tables.get(name)
    there = read_table_log(path)
    if there is None:
        return None
    check_owner(there, name, state.app_id, path=path)
    if table is None:
        set_back(path, -1)
        return None
    if state.suspended is None or not keeps_every_change(table.spec.mode, table.spec.key):
        return None
    return table.table_version if _has_left_behind(path, there, cut, name) else None


def check_taken_back(paths: LakePaths, record: BatchRecord, target: RecordedTarget) -> None:
    """A run that has lost its lease and went on may commit the batch that left the target behind
    after another run has looked, and before that one applies the same changes. Raises
    ConcurrentWriterError; LakeStateError: the last cut or the table's log is damaged.
    """
    if (
        record.kind != "catch_up"
        or target.restores >= 0  # this batch is what takes such commits back
        or not keeps_every_change(target.spec.mode, target.spec.key)
    ):
        return
    path = paths.table(target.table)
    there = read_table_log(path)
    cut = read_cut(paths, record.batch_number - 1)
    if there is not None and _has_left_behind(path, there, cut, target.table):
        raise ConcurrentWriterError(
            "another run has written to a table while it was being caught up",
            table=target.table,
            expected="no commits of earlier batches after the version that the last cut names",
            got=f"version {there.version}",
            next_step="start the run again: it takes the table back to that version first",
        )


def _has_left_behind(path: Path, there: TableLog, cut: Cut, name: str) -> bool:
    state, table = cut.cursor.targets[name], cut.tables.get(name)
    if state.suspended is None:
        return False
    numbers = range(state.suspended.batch_number, cut.batch_number + 1)
    commits = commits_after(path, -1 if table is None else table.table_version, there.version)
    return any(commit.batch_of(state.app_id) in numbers for commit in commits)
