"""Compute the cut of a batch: a pure function of its record, the previous cut, and the tables'
present versions (K3, K4).

Rules:
- The targets of the batch are as their tables are now, all others as the previous cut has them.
- Suspended tables are in the record's cursor; those that fail now are added.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc_pipeline.clock import now_us
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.cut_order import with_order
from cdc_pipeline.lake.earlier_layouts import column_defaults_after, earlier_layouts_after
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable, Note, RecordedTarget
from cdc_pipeline.lake.suspensions import SNAPSHOT_FAILED_NOTE, cause_of, left_behind, note_of
from cdc_pipeline.position.cursor import Suspension, TargetState
from cdc_pipeline.sink.modes.rescue import summed
from cdc_pipeline.sink.protocol import TableVersion


def next_cut(
    record: BatchRecord,
    previous: Cut | None,
    there: Mapping[str, TableVersion],
    failing: Mapping[str, CdcError],
) -> Cut:
    """`there` are the targets that have the batch, `failing` those that do not, with the cause."""
    tables = (
        {}
        if previous is None
        else {name: _unchanged(table) for name, table in previous.tables.items()}
    )
    for name in record.dropped:
        tables.pop(name, None)
    states = _states_before(record, previous, failing)
    notes = list(record.notes)
    mine = {target.table for target in record.targets}
    for name, error in failing.items():
        if name in states and name not in mine:
            left = left_behind(record, error, held=states[name].suspended)
            states[name] = _suspended(states[name], left)
            notes.append(note_of(name, left))
    for target in record.targets:
        name = target.table
        if name not in failing:
            tables[name] = _table_after(record, target, there[name], previous)
            states[name] = _state_after(record, target, there[name], states.get(name))
        elif target.is_of_snapshot:
            text = "; ".join(filter(None, (cause_of(failing[name]), failing[name].next_step)))
            notes.append(Note(kind=SNAPSHOT_FAILED_NOTE, text=text, table=name))
        else:
            last = (None if previous is None else previous.cursor.targets.get(name)) or _unmade(
                target
            )
            left = left_behind(record, failing[name], held=last.suspended)
            if target.content is not None:  # it holds the rows of a table with another name (K28)
                left = left.model_copy(update={"needs_snapshot": True})
            states[name] = _suspended(last, left)
            notes.append(note_of(name, left))
    at_us = now_us()
    own = {"targets": dict(sorted(states.items())), "cut_published_at_us": at_us}
    new = Cut(
        source=record.source,
        batch_number=record.batch_number,
        kind=record.kind,
        published_at_us=at_us,
        source_time_us=record.source_time_us,
        interval=record.interval,
        cursor=record.cursor_after.model_copy(update=own),
        tables=dict(sorted(tables.items())),
        ddl=record.ddl,
        notes=tuple(notes),
    )
    return with_order(new, previous)


def _unchanged(table: CutTable) -> CutTable:
    counts = {
        "engine": "",
        "rows_inserted": 0,
        "rows_updated": 0,
        "rows_deleted": 0,
        "rescued": {},
        "rescued_rows": 0,
    }
    return table.model_copy(update=counts)


def _states_before(
    record: BatchRecord, previous: Cut | None, failing: Mapping[str, CdcError]
) -> dict[str, TargetState]:
    """With what the record says of suspensions, exactness and the label partial."""
    states: dict[str, TargetState] = {}
    if previous is not None and record.kind == "cursor_set":
        # A moved cursor may relabel tables (K19): its record has the label of each. Rows may come
        # a second time, or never (K12).
        for name, state in record.cursor_after.targets.items():
            states[name] = state.model_copy(update={"exact": False})
    elif previous is not None:
        states = dict(previous.cursor.targets)
    for name in record.dropped:
        states.pop(name, None)
    kept = {
        target.table
        for target in record.targets
        if target.is_of_snapshot and target.table in failing
    }
    for name, after in record.cursor_after.targets.items():
        if name in kept:
            continue
        if name in states:
            exact = states[name].exact and after.exact and after.suspended is None
            # A person may have reset a table (K19): only its new rows take the label off.
            partial = states[name].partial or after.partial
            states[name] = states[name].model_copy(
                update={"suspended": after.suspended, "exact": exact, "partial": partial}
            )
        elif after.suspended is not None:
            states[name] = after
    return states


def _suspended(state: TargetState, left: Suspension) -> TargetState:
    return state.model_copy(update={"suspended": left, "exact": False})


def _unmade(target: RecordedTarget) -> TargetState:
    return TargetState(
        table=target.table,
        app_id=target.app_id,
        table_version=-1,
        applied_batch=-1,
        partial=target.partial,
        sources=tuple(target.spec.sources),
    )


def _table_after(
    record: BatchRecord, target: RecordedTarget, now: TableVersion, previous: Cut | None
) -> CutTable:
    tables = {} if previous is None else previous.tables
    before = None if target.table in record.dropped else tables.get(target.table)
    moved = tables.get(target.content.renamed_from) if target.content is not None else None
    ever = {} if before is None else before.rescued_ever
    return CutTable(
        spec=target.spec,
        table_version=now.version,
        transaction_version=now.transaction_version,
        engine=now.engine,
        rows_inserted=target.rows_inserted,
        rows_updated=target.rows_updated,
        rows_deleted=target.rows_deleted,
        rescues=target.rescues,
        rescued=target.rescued,
        rescued_rows=target.rescued_rows,
        rescued_ever=summed(ever, target.rescued)
        if target.content is None
        else target.content.rescued_ever,
        column_defaults=column_defaults_after(before, target),
        layouts=earlier_layouts_after(moved or before, record, target),
    )


def _state_after(
    record: BatchRecord, target: RecordedTarget, now: TableVersion, before: TargetState | None
) -> TargetState:
    planned = record.cursor_after.targets.get(target.table, before)
    is_loaded = target.content is not None
    # A shard that joins later may make a whole target partial (K19).
    was_partial = before is not None and before.table_version >= 0 and before.partial
    return _unmade(target).model_copy(
        update={
            "table_version": now.version,
            "applied_batch": record.batch_number,
            "partial": target.partial or (was_partial and not is_loaded),
            "suspended": None if planned is None or is_loaded else planned.suspended,
            "exact": _stays_exact(record, target, before, planned),
            "origin": None if planned is None else planned.origin,
        }
    )


def _stays_exact(
    record: BatchRecord,
    target: RecordedTarget,
    before: TargetState | None,
    planned: TargetState | None,
) -> bool:
    """Whether it is exact (K12). Catching up may bring rows that it already has."""
    was = (
        target.exact
        if before is None or before.table_version < 0
        else target.exact and before.exact
    )
    follows = planned is None or planned.suspended is None
    return was and follows and record.kind == "batch"
