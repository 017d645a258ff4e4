"""Compute the cut of a batch: a pure function of its record, the previous cut, and the tables'
present versions (K3, K4).

Rules:
- The targets of the batch are as their tables are now, all others as the previous cut has them.
- Suspended tables are in the record's cursor; those that fail now are added.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.column_defaults import given_after
from cdc_pipeline.lake.records import BatchRecord, Cut, CutTable, Note, RecordedTarget
from cdc_pipeline.lake.suspensions import LOAD_FAILED_NOTE, cause_of, left_behind, note_of
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.sink.modes.rescue import summed
from cdc_pipeline.sink.protocol import TableVersion


def next_cut(
    record: BatchRecord, previous: Cut | None, there: Mapping[str, TableVersion], failing: Mapping[str, CdcError]
) -> Cut:
    """Return the cut of a batch.

    Args:
        record: the batch.
        previous: the cut before it; None before the first.
        there: the present version of each target that has the batch.
        failing: the targets that do not have it, each with the cause.
    """
    unchanged = {"rows_inserted": 0, "rows_updated": 0, "rows_deleted": 0, "rescued": {}, "rescued_rows": 0}
    tables: dict[str, CutTable] = {}
    states: dict[str, TargetState] = {}
    if previous is not None:
        tables = {name: table.model_copy(update=unchanged) for name, table in previous.tables.items()}
        # A moved cursor may relabel tables (K19): its record has the label of each.
        is_set = record.kind == "cursor_set"
        states = dict(record.cursor_after.targets if is_set else previous.cursor.targets)
        if is_set:  # rows may come a second time, or never (K12)
            states = {name: state.model_copy(update={"exact": False}) for name, state in states.items()}
    for name in record.dropped:
        tables.pop(name, None)
        states.pop(name, None)
    kept = {target.table for target in record.targets if target.is_of_load and target.table in failing}
    for name, after in record.cursor_after.targets.items():
        if name in kept:
            continue
        if name in states:
            exact = states[name].exact and after.exact and after.suspended is None
            states[name] = states[name].model_copy(update={"suspended": after.suspended, "exact": exact})
        elif after.suspended is not None:
            states[name] = after
    notes = list(record.notes)
    mine = {target.table for target in record.targets}
    for name, error in failing.items():
        if name in states and name not in mine:
            left = left_behind(record, error, held=states[name].suspended)
            notes.append(note_of(name, left))
            states[name] = states[name].model_copy(update={"suspended": left, "exact": False})
    for target in record.targets:
        before = states.get(target.table)
        planned = record.cursor_after.targets.get(target.table, before)
        if target.table in failing:
            error = failing[target.table]
            if target.is_of_load:
                notes.append(Note(kind=LOAD_FAILED_NOTE, text=cause_of(error), table=target.table))
                continue
            last = previous.cursor.targets.get(target.table) if previous is not None else None
            held = last.suspended if last is not None else None
            left = left_behind(record, error, held=held)
            if target.content is not None:  # it holds the rows of a table with another name (K28)
                left = left.model_copy(update={"needs_reload": True})
            notes.append(note_of(target.table, left))
            state_of = last or TargetState(
                table=target.table,
                app_id=target.app_id,
                table_version=-1,
                applied_batch=-1,
                partial=target.partial,
                sources=tuple(target.sources),
            )
            states[target.table] = state_of.model_copy(update={"suspended": left, "exact": False})
            continue
        now, content = there[target.table], target.content
        ever = tables[target.table].rescued_ever if target.table in tables else {}
        tables[target.table] = CutTable(
            table_version=now.version,
            transaction_version=now.transaction_version,
            rows_inserted=target.rows_inserted,
            rows_updated=target.rows_updated,
            rows_deleted=target.rows_deleted,
            mode=target.mode,
            columns=target.columns,
            key=target.key,
            key_reason=target.key_reason,
            sources=target.sources,
            shape=target.shape,
            rescues=target.rescues,
            rescued=target.rescued,
            rescued_rows=target.rescued_rows,
            rescued_ever=summed(ever, target.rescued) if content is None else content.rescued_ever,
            given=given_after(tables.get(target.table), target),
        )
        states[target.table] = TargetState(
            table=target.table,
            app_id=target.app_id,
            table_version=now.version,
            applied_batch=record.batch_number,
            # A shard that joins later may make a whole target partial (K19).
            partial=target.partial
            or (content is None and before is not None and before.table_version >= 0 and before.partial),
            suspended=planned.suspended if planned is not None and content is None else None,
            sources=tuple(target.sources),
            exact=_stays_exact(record, target, before, planned),
            origin=planned.origin if planned is not None else None,
        )
    return Cut(
        source=record.source,
        batch_number=record.batch_number,
        kind=record.kind,
        published_at_us=time.time_ns() // 1000,
        source_time_us=record.source_time_us,
        interval=record.interval,
        cursor=record.cursor_after.model_copy(update={"targets": dict(sorted(states.items()))}),
        tables=dict(sorted(tables.items())),
        ddl=record.ddl,
        notes=tuple(notes),
    )


def _stays_exact(
    record: BatchRecord, target: RecordedTarget, before: TargetState | None, planned: TargetState | None
) -> bool:
    """Return whether a target is exact after a batch that it has (K12). Catching up may bring rows
    that it already has."""
    was = target.exact if before is None or before.table_version < 0 else target.exact and before.exact
    follows = planned is None or planned.suspended is None
    return was and follows and record.kind == "batch"
