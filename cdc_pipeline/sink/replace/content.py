"""Plan what a batch must record to put a side table in the place of a target (K3, K17, K18). Needs
no JVM.

Rules:
- The target takes over the spec of the side table: its mode, key, columns and sources. Afterwards
  it is whole, follows the source again and is not exact (K12). Its application id is new.
- Rows of the old table stay if its mode keeps deleted rows (`SinkMode.replaced_sql`) and if mode
  and key are unchanged: otherwise nothing shows which rows belong together. Rows with other masks
  never stay, nor do their columns (K14).
- What stays is of the last cut's version: not what another program has written since, nor what a
  batch committed that no cut names (K3). If that version cannot be read, it is what is there.
- A column that the source has dropped and the target has kept is carried over: by key, or with the
  rows that stay. A column that the rules exclude is removed with all of its values: that is what
  excluding it means.
- A note names what is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cdc_pipeline.config.modes import MODES, is_keyless_mirror
from cdc_pipeline.errors import LakeStateError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut, CutTable, Note, RecordedContent
from cdc_pipeline.lake.suspensions import cause_of, note_of
from cdc_pipeline.position.cursor import TargetState
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.delta.replay import files_of, readable_state, table_state
from cdc_pipeline.sink.target import Carried, Target

LOADED_NOTE: Final = "loaded"
DROPPED_NOTE: Final = "snapshot_dropped"  # columns or rows of the old table that the new one lacks
GAP_NOTE: Final = "load_gap"  # changes that a changelog or history will never hold


@dataclass(frozen=True, slots=True)
class Replacement:
    """What `StagedBatch.replace` takes, and notes for its record."""

    target: Target
    content: RecordedContent
    notes: tuple[Note, ...] = ()


def content_of(
    side: LakePaths, cut: Cut, table: str, *, lake: Path, seq: int, ts_us: int
) -> RecordedContent:
    folder, there = side.table(table), cut.tables[table]
    state = readable_state(folder, there.table_version)
    rows = state.rows
    return RecordedContent(
        path=folder.relative_to(lake).as_posix(),
        version=there.table_version,
        app_id=cut.cursor.targets[table].app_id,
        rows=-1 if rows is None else rows,
        files=state.files,
        size_bytes=state.size_bytes,
        seq=str(seq),
        ts_us=ts_us,
        rescued_ever=there.rescued_ever,
        column_defaults=there.column_defaults,
        layouts=there.layouts,
    )


def carried_content(paths: LakePaths, cut: Cut | None, carried: Carried) -> RecordedContent:
    """Of a target at the last cut, for another target that takes over its rows (K28)."""
    name = carried.origin
    there = cut.tables[name] if cut is not None else CutTable(table_version=carried.version)
    return RecordedContent(
        path=paths.table(name).relative_to(paths.lake).as_posix(),
        version=carried.version,
        app_id=carried.app_id,
        files=-1,
        keeps_rows=carried.keeps_rows,
        rescued_ever=there.rescued_ever,
        column_defaults=there.column_defaults,
        renamed_from=name,
    )


def replacement(
    target: Target,
    content: RecordedContent,
    *,
    before: CutTable | None,
    state: TargetState | None,
    differs: LakeStateError | None = None,
    is_readable: bool = True,
    is_whole: bool = False,
) -> Replacement:
    """How a side table takes the place of a target. `before`, `state`: of the target in the last
    cut; `differs`: how its table differs from that; `is_readable`: whether the last cut's version
    is; `is_whole`: the side table holds the whole log since the table's creation, so that no mode
    keeps rows (K18).
    """
    name, spec = target.name, target.spec.expanded(target.name)
    whole = replace(target, spec=spec).with_state(partial=False, exact=False)
    notes = [Note(kind=LOADED_NOTE, text=f"{max(content.rows, 0)} rows were loaded", table=name)]
    if before is None or state is None or state.table_version < 0:
        return Replacement(whole, content, tuple(notes))
    whole = replace(whole, replaces=state.app_id)
    mode, old = MODES[spec.mode], before.spec
    is_masked_alike = masks_in(name, old, old) == masks_in(name, old, spec)
    alike = is_masked_alike and (old.mode, old.key) == (spec.mode, spec.key)
    keeps = alike and mode.keeps_past and not is_whole
    if not alike and MODES[old.mode].keeps_past:
        was = f"was a {old.mode} by {', '.join(old.key) or 'no key'}"
        was = was if is_masked_alike else "had other masks"
        text = f"the target {was}: none of its rows is kept"
        notes.append(Note(kind=DROPPED_NOTE, text=text, table=name))
    kept = _kept_columns(name, spec, old)
    carries = keeps or (alike and not is_keyless_mirror(spec.mode, spec.key))
    if kept and not carries:
        text = (
            "columns that the source has dropped were removed: "
            f"{', '.join(column.name for column in kept)}"
        )
        notes.append(Note(kind=DROPPED_NOTE, text=text, table=name))
        kept = ()
    if kept:
        whole = whole.with_spec(columns=(*spec.columns, *kept))
    if differs is not None and (keeps or kept):
        stays = "what stays of the old rows is that of the last cut"
        if not is_readable:
            stays = (
                "the rows of the last cut cannot be read: of the old ones stays what is there, and "
                "what else there was before the snapshot is lost"
            )
        note = Note(kind=DROPPED_NOTE, text=f"{cause_of(differs)}; {stays}", table=name)
        notes.append(note)
    if keeps:
        whole = replace(whole, rescued=_rescued(whole, before))
    content = content.model_copy(
        update={
            "keeps_rows": keeps,
            "kept_version": before.table_version if is_readable else None,
            "carried": tuple(column.name for column in kept),
            "restarts": mode.rows_are_changes and (state.partial or state.suspended is not None),
        }
    )
    if keeps and mode.keeps_every_change and state.suspended is not None:
        left = state.suspended.passed or state.suspended.position
        text = f"this {spec.mode} lacks the changes between {left} and the snapshot"
        update = {"kind": GAP_NOTE, "text": text, "journal": left.journal, "offset": left.offset}
        notes.append(note_of(name, state.suspended).model_copy(update=update))
    return Replacement(whole, content, tuple(notes))


def masks_in(name: str, old: TargetSpec, of: TargetSpec) -> Mapping[str, str]:
    """Those `of` a rule that columns of the old table have."""
    return {} if of.shape is None else old.masks_of(name, of.shape.masks)


def _kept_columns(name: str, spec: TargetSpec, before: TargetSpec) -> tuple[TargetColumn, ...]:
    """Columns that the target's sources no longer have, and that no rule computes or excludes."""
    gone = {column.name.lower() for column in spec.columns} | _added(spec)
    return tuple(one for one in columns_of_lake(name, before) if one.name.lower() not in gone)


def columns_of_lake(name: str, spec: TargetSpec) -> tuple[TargetColumn, ...]:
    """A target's columns that neither its sources have nor its rule adds."""
    gone = _added(spec)
    for source in spec.sources_of(name).values():
        names = dict(source.names)
        gone |= {names.get(column.name, column.name).lower() for column in source.columns}
    return tuple(column for column in spec.columns if column.name.lower() not in gone)


def _added(spec: TargetSpec) -> set[str]:
    return set() if spec.shape is None else {column.name.lower() for column in spec.shape.added}


def _rescued(target: Target, before: CutTable) -> tuple[str, ...] | None:
    """If old rows stay: the side table's own, and columns that have another type now."""
    types = {column.name: column.delta_type for column in before.spec.columns}
    changed = {
        column.name
        for column in target.spec.columns
        if types.get(column.name, column.delta_type) != column.delta_type
    }
    if target.rescued is None and not before.rescues and not changed:
        return None
    return tuple(sorted({*(target.rescued or ()), *before.rescued_ever, *changed}))


def forget(paths: LakePaths, content: RecordedContent, table: str) -> int:
    """Names that an abandoned replacement left; only if no commit of the batch is in the log."""
    side, folder = paths.lake / content.path, paths.table(table)
    given, now = table_state(side, content.version), table_state(folder)
    named = {at for name in (now.names if now else ()) for at in files_of(folder, name)}
    left = {
        folder / at.relative_to(side).as_posix()
        for name in (given.names if given else ())
        for at in files_of(side, name)
    }
    there = [at for at in left - named if at.exists()]
    for at in there:
        at.unlink()
    return len(there)
