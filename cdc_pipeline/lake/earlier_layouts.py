"""What a changelog's rows from before a DDL were written with, as kept in its cut: names of columns
and keys, and the values that an ADD COLUMN gave to existing rows.

These rows stay as they are: `_cdc_absent` names columns as they were called then, a change belongs
to the row that it had by the key of that time, and a new column is NULL. What the changes leave can
be derived only with all three (`sink/verify/changelog.py`).

Rules:
- The list of values follows the columns: renamed, widened and dropped with them.
- Each DDL that renames or drops columns, computes new ones from them, or changes the primary key
  adds one entry. Names of keys follow later DDL; names of columns lead from one entry to the next.
- A table that starts empty (TRUNCATE, a recreated table, a snapshot that restarts it) has no
  earlier rows, and so neither list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.lake.records import (
    BatchRecord,
    ColumnDefault,
    CutTable,
    EarlierLayout,
    RecordedTarget,
)
from cdc_pipeline.schema.evolution.steps import (
    DropColumn,
    FillColumns,
    RemoveRows,
    RenameColumn,
    Step,
    WidenColumn,
)

_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_Names = dict[str, tuple[str, ...]]


def earlier_layouts_after(
    before: CutTable | None, record: BatchRecord, target: RecordedTarget
) -> tuple[EarlierLayout, ...]:
    """The list after a batch. `before`: the target whose rows the batch goes on from, in the cut
    before; None if there is none.
    """
    if not MODES[target.spec.mode].rows_are_changes:
        return ()
    content = target.content
    if content is None and (target.create or target.replaces):
        return ()
    earlier = () if before is None else before.layouts
    if content is not None and not content.renamed_from:
        kept = earlier if content.keeps_rows and not content.restarts else ()
        added = [layout for layout in content.layouts if layout not in kept]
        return tuple(sorted((*kept, *added), key=lambda layout: int(layout.seq)))
    if any(isinstance(step, RemoveRows) for step in target.schema_steps):
        return ()
    names = names_after(target.schema_steps)
    followed = tuple(
        layout.model_copy(update={"keys": _renamed(layout.keys, names, target)})
        for layout in earlier
    )
    keys = _changed_keys(before, names, target)
    if not names and not keys:
        return followed
    interval = record.interval
    seq = interval.end.seq(record.cursor_after.epoch)
    return (*followed, EarlierLayout(seq=str(seq), names=names, keys=keys))


def names_after(steps: tuple[Step, ...]) -> _Names:
    """The columns that have a column's value after a DDL, by its name before; columns that only
    keep their name are left out, and () are the names of one that is gone.
    """
    now: dict[str, dict[str, None]] = {}  # what became of each name so far, in order

    def take(name: str) -> None:
        if not any(name in after for after in now.values()):
            now.setdefault(name, {name: None})

    for step in steps:
        if isinstance(step, FillColumns):
            computed = [value for value in step.values if value[0] not in step.defaults]
            for made, _, expression in computed:
                for quoted in _QUOTED.findall(expression):
                    name = quoted.replace("``", "`")
                    take(name)
                    for after in now.values():
                        if name in after:
                            after[made] = None
        elif isinstance(step, DropColumn):
            take(step.name)
            for after in now.values():
                after.pop(step.name, None)
        elif isinstance(step, RenameColumn):
            take(step.name)
            for name, after in now.items():
                if step.name in after:
                    now[name] = {step.new_name if one == step.name else one: None for one in after}
    return {name: tuple(after) for name, after in now.items() if list(after) != [name]}


def _changed_keys(
    before: CutTable | None, names: Mapping[str, tuple[str, ...]], target: RecordedTarget
) -> _Names:
    """The keys before a batch that changes them, by source table, under their new names."""
    if before is None:
        return {}
    earlier = _renamed(
        {name: of.key_in_target for name, of in before.spec.sources.items()}, names, target
    )
    sources = target.spec.sources
    return {
        name: key
        for name, key in earlier.items()
        if name in sources and key != sources[name].key_in_target
    }


def _renamed(
    keys: Mapping[str, tuple[str, ...]],
    names: Mapping[str, tuple[str, ...]],
    target: RecordedTarget,
) -> _Names:
    """Keys by source table under the names after a batch, which may rename the table."""
    renamed = {
        source: tuple(
            name if name in names.get(name, (name,)) else next(iter(names[name]), name)
            for name in key
        )
        for source, key in keys.items()
    }
    if target.content is not None and len(renamed) == len(target.spec.sources) == 1:
        return dict(zip(target.spec.sources, renamed.values(), strict=True))
    return renamed


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
        defaults = _defaults_after(defaults, step)
    return defaults


def _defaults_after(defaults: tuple[ColumnDefault, ...], step: Step) -> tuple[ColumnDefault, ...]:
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
