"""Swap the side lake's tables into their targets' place, as one recorded main batch (K2, K3, K17).

Rules:
- The main lake is locked and its cursor is exactly where the side lake's is.
- The batch holds nothing else: each target's content is replaced in one Delta commit.
- Quarantined rows of these tables are given up with the content that lacked them; those that
  the snapshot could not apply take their place.
- A target that followed such a table under another name (K28) gives it up: as far as the log
  shows, no table has the target's own name any more.
- No swap while prepared XA transactions are open whose rows only the side lake has parked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal

import pyarrow as pa

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import SnapshotError
from cdc_pipeline.lake.long_operations import new_operation_id
from cdc_pipeline.lake.quarantine import SCHEMA, Entry, read_entries
from cdc_pipeline.lake.records import Cut, Note, QuarantineMark
from cdc_pipeline.lake.remasks import Remask, remasks_of
from cdc_pipeline.lake.suspensions import SNAPSHOT_FAILED_NOTE
from cdc_pipeline.operations.snapshot.side import SnapshotLake
from cdc_pipeline.position.cursor import CursorState, OpenXa, TargetState
from cdc_pipeline.run.admin_batch import AdminBatch
from cdc_pipeline.run.plan.needs_snapshot import past_lost
from cdc_pipeline.sink.read.cuts import is_readable
from cdc_pipeline.sink.replace.content import masks_in, replacement
from cdc_pipeline.sink.staging.staging import StagedBatch
from cdc_pipeline.sink.target import Target
from cdc_pipeline.targets.targets import Targets, targets_at

_SUPERSEDED = "a new snapshot replaced the table"


def swap(
    main: AdminBatch, side: SnapshotLake, names: Sequence[str], *, is_whole: bool = False
) -> Cut:
    """Return the main lake's new cut. `is_whole`: see `content.replacement`.

    Raises SnapshotError: a target could not take its new content, the rest is done; CdcError: as
    `Sink.finish`; the record stays, and the next run of the source finishes it.
    """
    side_cut, cut, batch = side.cut, main.cut, main.rows
    assert side_cut is not None
    targets = targets_at(side.config, side_cut)
    state, seq = side.state, side.state.cursor.seq
    states = dict(cut.cursor.targets) if cut is not None else {}
    notes: list[Note] = []
    if not is_whole and (lost := past_lost(side.config, cut, names)):
        raise next(iter(lost.values()))
    _record_masks(main, targets, names, operation_id=state.operation_id)
    differing = {} if cut is None else main.sink.failing_targets(cut)
    for name in names:
        before = states.get(name)
        content = side.sink.tables.content_of(
            side_cut, name, lake=main.sink.paths.lake, seq=seq, ts_us=state.time_us
        )
        found = replacement(
            targets.by_name[name],
            content,
            before=None if cut is None else cut.tables.get(name),
            state=before,
            differs=differing.get(name),
            is_readable=cut is not None and is_readable(main.sink.paths, cut, name),
            is_whole=is_whole,
        )
        app_id = state.app_id(name)
        batch.replace(found.target.with_state(app_id=app_id), found.content)
        notes += found.notes
        states[name] = TargetState(
            table=name,
            app_id=app_id,
            table_version=-1 if before is None else before.table_version,
            applied_batch=-1 if before is None else before.applied_batch,
            sources=side_cut.cursor.targets[name].sources,
        )
    sources = {source for name in names for source in side_cut.cursor.targets[name].source_names}
    for left in given_up(side.config, cut, names, sources):
        batch.change(left, left.spec.columns, ())
        update = {"sources": tuple(left.spec.sources), "origin": None}
        states[left.name] = states[left.name].model_copy(update=update)
    marks = _superseded(main, sources, operation_id=state.operation_id)
    _carry_over(side, side_cut, batch, sources)
    published = main.publish(
        kind="snapshot",
        targets=states,
        notes=notes,
        marks=marks,
        source_time_us=side_cut.source_time_us if cut is None else cut.source_time_us,
    )
    failed = {
        note.table: note.text for note in published.notes if note.kind == SNAPSHOT_FAILED_NOTE
    }
    if failed:
        raise SnapshotError(
            "new tables could not replace their targets: "
            + "; ".join(f"{name}: {why}" for name, why in failed.items()),
            table=", ".join(failed),
            next_step="do that, then run the same command again: it continues from here",
        )
    return published


def _record_masks(
    main: AdminBatch, targets: Targets, names: Collection[str], *, operation_id: str
) -> None:
    """Of targets that get other masks, by whatever way: `remask` looks for their old values."""
    tables = {} if main.cut is None else main.cut.tables
    masks: dict[str, dict[str, dict[str, str]]] = {}
    for name in tables.keys() & set(names):
        old, new = tables[name].spec, targets.by_name[name].spec
        before = masks_in(name, old, old)
        if before != masks_in(name, old, new):
            masks.setdefault(min(new.sources_of(name)), {})[name] = dict(before)
    remasks = remasks_of(main.sink.paths)
    begun = [
        one
        for one in (remasks.read() if masks else ())
        if remasks.certificate_of(one.remask_id) is None
    ]
    for table, of in masks.items():
        if of.keys() - {name for one in begun for name in one.masks}:
            new_id, source = new_operation_id(), main.cursor.source
            who = f"snapshot {operation_id}"
            made = Remask(remask_id=new_id, source=source, table=table, masks=of, who=who)
            remasks.put(new_id, made)


def given_up(
    config: PipelineConfig, cut: Cut | None, names: Collection[str], sources: Collection[str]
) -> list[Target]:
    """Targets that follow these tables after a rename; the table of their own name is gone."""
    if cut is None:
        return []
    targets = targets_at(config, cut)
    found = []
    for name, state in cut.cursor.targets.items():
        if state.origin is None or name in names or name not in cut.tables:
            continue
        target = targets.by_name[name]
        if not any(source in sources and not of.gone for source, of in target.spec.sources.items()):
            continue
        of = next(iter(target.spec.sources.values()))
        found.append(
            target.with_spec(sources={state.origin[0]: of.model_copy(update={"gone": True})})
        )
    return found


def _superseded(
    main: AdminBatch, sources: Collection[str], *, operation_id: str
) -> tuple[QuarantineMark, ...]:
    if main.cut is None or not sources & main.cut.quarantine.keys():
        return ()
    before = main.cut.batch_number + 1
    entries = read_entries(main.sink.paths, before=before, tables=sources, only_open=True)
    who = f"snapshot {operation_id}"
    return tuple(entry.settled("discarded", who=who, why=_SUPERSEDED) for entry in entries)


def _carry_over(side: SnapshotLake, cut: Cut, batch: StagedBatch, sources: Collection[str]) -> None:
    if not sources & cut.quarantine.keys():
        return
    before, rows_by_table = cut.batch_number + 1, dict[str, list[dict[str, object]]]()
    for entry in read_entries(side.sink.paths, before=before, tables=sources, only_open=True):
        rows_by_table.setdefault(entry.table, []).append(_plain(entry))
    for table, rows in rows_by_table.items():
        batch.quarantine(table, pa.Table.from_pylist(rows, schema=SCHEMA))


def _plain(entry: Entry) -> dict[str, object]:
    values = {name: getattr(entry, name, None) or None for name in SCHEMA.names}
    return values | {"_op": entry.op, "_seq": Decimal(entry.seq)}


def unparked(side: CursorState, main: CursorState) -> list[OpenXa]:
    """The side lake's prepared XA transactions that the main lake has not parked."""
    parked = {(xa.xid, file.table, file.rows) for xa in main.open_xa for file in xa.files}
    return [
        xa
        for xa in side.open_xa
        if any((xa.xid, file.table, file.rows) not in parked for file in xa.files)
    ]
