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
"""

from __future__ import annotations

from cdc_pipeline.config.modes import keeps_every_change
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.sink.delta.log import is_of_batch, read_commit, read_table_log
from cdc_pipeline.sink.delta.table_owner import check_owner
from cdc_pipeline.sink.durable.power_cut import set_back


def take_back(paths: LakePaths, cut: Cut, name: str) -> int | None:
    """Remove a suspended target's table, or return the version to restore it to; None if there is
    nothing to take back.

    Raises:
        LakeStateError: another table lies in the target's place, or its log is damaged.
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
    for version in range(table.table_version + 1, there.version + 1):
        commit = read_commit(path, version)
        if commit is not None and any(
            is_of_batch(commit, app_id=state.app_id, batch_number=number)
            for number in range(state.suspended.batch_number, cut.batch_number + 1)
        ):
            return table.table_version
    return None
