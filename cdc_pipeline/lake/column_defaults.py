"""Values that an ADD COLUMN gave to existing rows, as kept in a changelog's cut.

A changelog holds changes: its rows from before the statement stay as they are, NULL in the new
column. The present state of a row can be derived from them only with the value that the server
filled in (`sink/verify/sides.py`).

Rules:
- The list follows the columns: renamed, widened and dropped with them.
- A table that starts empty (TRUNCATE, a recreated table, a snapshot that restarts it) has no
  earlier rows, and so no list.
"""

from __future__ import annotations

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import ColumnDefault, CutTable, RecordedTarget
from cdc_pipeline.schema.evolution.steps import (
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
)


def column_defaults_after(
    before: CutTable | None, target: RecordedTarget
) -> tuple[ColumnDefault, ...]:
    """The list after a batch. `before`: the target in the cut before; None if there is none."""
    if not MODES[target.spec.mode].rows_are_changes:
        return ()
    if target.content is None and (target.create or target.replaces):
        return ()  # a table created from scratch; what a snapshot replaces may keep its rows
    defaults = () if before is None else before.column_defaults
    content = target.content
    if content is not None:
        kept = () if content.restarts or not content.keeps_rows else defaults
        defaults = (*kept, *(default for default in content.column_defaults if default not in kept))
    for step in target.schema_steps:
        defaults = _after(defaults, step)
    return defaults


def _after(defaults: tuple[ColumnDefault, ...], step: Step) -> tuple[ColumnDefault, ...]:
    if isinstance(step, RemoveRows):
        return ()
    if isinstance(step, FillColumns):
        added = [value for value in step.values if value[0] in step.defaults and step.seq]
        more = (
            ColumnDefault(column=name, delta_type=kind, value=sql, seq=step.seq)
            for name, kind, sql in added
        )
        return (*defaults, *more)
    if isinstance(step, DropColumn):
        return tuple(default for default in defaults if default.column != step.name)
    change = {}
    if isinstance(step, RenameColumn):
        change = {"column": step.new_name}
    elif isinstance(step, WidenColumn):
        change = {"delta_type": step.delta_type}
    else:
        return defaults
    return tuple(
        default.model_copy(update=change) if default.column == step.name else default
        for default in defaults
    )
