"""Check who owns a Delta table by the properties that the pipeline set when it created it (K16: one
writer per target)."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.sink.delta.log import SOURCE_PROPERTY, TABLE_PROPERTY, TableLog


def check_owner(there: TableLog, table: str, app_id: str, *, path: Path) -> None:
    """Raises LakeStateError: the table belongs to another source, was created again, or was not
    made by the pipeline.
    """
    if there.app_id == app_id and there.properties.get(TABLE_PROPERTY) == table:
        return
    owner = there.properties.get(SOURCE_PROPERTY)
    of = (
        f"source {owner}, table {there.properties.get(TABLE_PROPERTY)}, {there.app_id}"
        if owner
        else "another program"
    )
    raise LakeStateError(
        f"the Delta table in {path} is not the one that was created for this target",
        table=table,
        expected=f"application id {app_id}",
        got=f"a table of {of}",
        next_step="move that table away and restore the target from a backup, or use a separate "
        "lake for this source",
    )
