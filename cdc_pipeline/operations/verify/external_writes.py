"""Writes by other programs: what they changed in a table, and the batch that reverts it (K3).

Rules:
- Such a table is suspended from the next run on (K4: a table that cannot follow does not stop the
  others). The change is found by comparing the version of the last cut with the newest one.
- A restored table has the rows and the position of the last cut; the next capture catches it up.
- A table is not restored while a recorded batch is unfinished. Restoring does not move the cursor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from cdc_pipeline.errors import CdcError, LakeStateError
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.operations.verify.read import VerifyContext
from cdc_pipeline.operations.verify.report import Difference, ExternalChange
from cdc_pipeline.operations.verify.rows import recorded_of
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.sink.apply.external_writes import ExternalWrite, find_external_write
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.read.spilled import StoredRows
from cdc_pipeline.sink.verify.compare import (
    DIFFERENCES,
    ComparisonResult,
    Kind,
    compare,
    read_differences,
)
from cdc_pipeline.sink.verify.sides import ComparisonSides
from cdc_pipeline.sink.verify.tables import VersionedTable
from cdc_pipeline.targets.targets import targets_at

_RESTORED_NOTE = "restored"


def find_external_writes(sink: DeltaSink, names: Collection[str]) -> dict[str, ExternalWrite]:
    cut, pending = sink.last_cut(), sink.pending_record()
    if cut is None:
        return {}
    writes = {
        name: find_external_write(sink.paths, cut, name, pending)
        for name in sorted(names)
        if name in cut.tables
    }
    return {name: write for name, write in writes.items() if write is not None}


def describe(context: VerifyContext, write: ExternalWrite) -> ExternalChange:
    """With keys, if the rows of the cut still exist."""
    sink = context.sink
    cause = write.error
    what = cause.what if cause.got is None else f"{cause.what}: {cause.got}"
    change = ExternalChange(
        versions=dict(write.versions), what=what, restorable=write.is_restorable
    )
    cut = sink.last_cut()
    if not write.is_restorable or cut is None:
        return change
    target = targets_at(context.config, cut).by_name[write.table]
    recorded = recorded_of(target)
    path = sink.paths.table(write.table)
    sides = ComparisonSides(
        target=recorded,
        columns=tuple(column.name for column in recorded.spec.columns),
        key=target.spec.key,
        lake=VersionedTable(write.table, path, write.newest),
        source=VersionedTable(write.table, path, cut.tables[write.table].table_version),
    )
    try:
        nothing = StoredRows(context.spill)
        comparison = compare(context.start, sides, nothing, spill=context.spill)
    except CdcError as error:  # columns were changed: the table can be restored all the same
        return change.model_copy(update={"what": f"{what}; {error.got}"})
    counts = {kind: count for kind, count in comparison.counts.items() if kind in DIFFERENCES}
    shown = displayed(context, comparison, DIFFERENCES)
    return change.model_copy(update={"counts": counts, "differences": shown})


def displayed(
    context: VerifyContext, found: ComparisonResult, kinds: Sequence[Kind], already: int = 0
) -> tuple[Difference, ...]:
    """Keys that differ, as many as are shown of a table after those `already` named."""
    room = context.options.keys_shown - already
    if room <= 0 or not found.counts:
        return ()
    return _display(found.sides, read_differences(found, kinds, limit=room))


def put_back(context: VerifyContext, tables: Sequence[str], batch: AdminBatch) -> Cut:
    """LakeStateError: it is no longer possible; SinkError: the next run finishes the record."""
    sink, who = context.sink, context.options.who
    cut = batch.last_cut()
    targets = targets_at(context.config, cut, batch.cursor)
    notes, states = [], dict(cut.cursor.targets)
    for name in tables:
        write = find_external_write(sink.paths, cut, name)
        if write is None or not write.is_restorable:
            raise LakeStateError(
                "the table can no longer be restored",
                table=name,
                expected="rows of the last cut, followed by commits of other programs",
                got="it is as in the cut" if write is None else write.error.got,
                next_step="verify again",
            )
        version = cut.tables[name].table_version
        batch.rows.restore(targets.by_name[name], version)
        suspension = states[name].suspended
        if suspension is not None and suspension.needs_snapshot:
            # The table now holds the cut's rows, so that it can be caught up from its position.
            suspension = suspension.model_copy(update={"needs_snapshot": False, "next_step": ""})
        states[name] = states[name].model_copy(update={"suspended": suspension, "exact": False})
        undone = ", ".join(f"{number} ({what})" for number, what in write.versions.items())
        text = f"restored to version {version} by {who}, which undoes versions {undone}"
        notes.append(Note(kind=_RESTORED_NOTE, text=text, table=name))
    return batch.publish(kind="repair", targets=states, notes=notes)


def _display(sides: ComparisonSides, rows: pa.Table) -> tuple[Difference, ...]:
    names = {f"c{at}": sides.target.spec.columns[at].name for at in sides.key_positions}
    return tuple(
        Difference(
            kind=row["_kind"],
            key={name: text_of(row[place]) for place, name in names.items()},
            columns=tuple(row["_columns"] or ()),
            rows=abs(row["_more"]) if not sides.key else 1,
        )
        for row in rows.to_pylist()
    )


def text_of(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return f"0x{value.hex().upper()}"
    if isinstance(value, bool):
        return str(int(value))
    return str(value)
