"""Apply masks that were added or changed to the rows of targets that are in the lake already.

    record (`lake/remasks.py`) -> targets suspended -> new rows, swapped in -> quarantine -> search
    -> certificate

Rules:
- New rows come as in a snapshot, or in a rebuild from the log; nothing of the old table stays, in
  any mode (`sink/replace/content.py`). So a mirror is masked by its snapshot. What only the lake
  has of the past is masked by a rebuild, or given up if a person says so.
- No stored value is masked in place: what was truncated, hashed or dropped before has lost what
  another mask needs.
- The targets are suspended meanwhile: their old rows stay readable, and the others go on (K4).
- The same request ends what a killed process left. `--check` proves by reading that each value of a
  newest version is one that its mask makes; of a changed salt the recorded masks tell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.config.target_config import FixedMask, HashMask, Mask, TruncateMask
from cdc_pipeline.errors import ConfigError, LakeStateError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import (
    OperationKind,
    claim,
    new_operation_id,
    operations_lock,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.remasks import Remask, RemaskCertificate, remasks_of
from cdc_pipeline.lake.storage.lock import wait_for_lock
from cdc_pipeline.lake.suspensions import PAST_GIVEN_UP, restated, suspension
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.operations.erase.certify import alone, cleaned, search, searched, since_us
from cdc_pipeline.operations.erase.search import Sought, column_of, images_of
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorStore, Suspension, TargetState
from cdc_pipeline.run.admin_batch import AdminBatch, admin_batch
from cdc_pipeline.run.observer import OperationRun, RunObserver
from cdc_pipeline.run.plan.needs_snapshot import choose
from cdc_pipeline.run.publish import Publisher
from cdc_pipeline.run.recovery import recover
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.replace.content import columns_of_lake
from cdc_pipeline.targets.masks import mask_of
from cdc_pipeline.targets.route_checks import changed_settings
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import tables_named
from cdc_pipeline.targets.targets import Targets, targets_at

_NOT_SEARCHED = (
    "the source, its journals, and their copies elsewhere",
    "separate lakes of backfills (--into), copies of cuts, and backups of the lake",
    "earlier versions that a bucket, or snapshots of a file system, keep of files",
    "defaults of columns, in records of batches and the schema history",
    "what Dagster keeps: reports of verifications name keys of rows that differed",
)


class RemaskRequest(FrozenModel):
    """`from_log`: the rows are rebuilt from the log, with their past; `without_past`: what only the
    lake has is given up; `at_once`: no older version or cut is kept.
    """

    table: str
    from_log: bool = False
    without_past: bool = False
    at_once: bool = False
    who: str = ""
    why: str = ""


class RemaskedTarget(FrozenModel):
    """`before`, `after`: masks by column; `past`: what a snapshot would lose, "" if nothing."""

    mode: str
    before: dict[str, str]
    after: dict[str, str]
    past: str


class RemaskPreview(FrozenModel):
    """What is still to be done."""

    source: str
    table: str
    targets: dict[str, RemaskedTarget]


@dataclass
class _Remasking:
    """One request, in the source's lock."""

    config: PipelineConfig
    asked: RemaskRequest
    batch: AdminBatch
    sink: DeltaSink

    def __post_init__(self) -> None:
        (self.table,) = tables_named(self.config, [self.asked.table])
        self.cut: Cut = self.batch.last_cut()
        self.states = self.cut.cursor.targets
        self.routes = Routes(self.config)
        known = {source for state in self.states.values() for source in state.source_names}
        chosen = choose(self.config, self.cut, known, [self.table])
        self.sources = chosen.sources
        self.known = [name for name in chosen.targets if name in self.cut.tables]
        self.begun = _unfinished(self.sink, self.table)

    def to_do(self) -> dict[str, RemaskedTarget]:
        """Targets whose rows have other masks, or wait for new rows. ConfigError: their rules
        differ in more than masks.
        """
        found = {}
        for name in self.known:
            spec = self.cut.tables[name].spec
            leading = (self.routes.of_table(one) for one in self.sources)
            rule = next(one.rule for routes in leading for one in routes if one.target == name)
            differs, (before, after) = changed_settings(spec, rule)
            if set(differs) - {"masks"}:
                raise ConfigError(
                    f"more than masks changed of target {name}: {', '.join(differs)}",
                    table=name,
                    next_step="change masks alone, and other settings under another `name`",
                )
            waits = self.begun is not None and name in self.begun.masks
            if differs or (waits and _needs_rows(self.states[name])):
                past = _past_of(name, spec)
                found[name] = RemaskedTarget(mode=spec.mode, before=before, after=after, past=past)
        return found

    def begin(self) -> bool:
        """Suspend the targets; whether they need new rows. Raises ConfigError or LakeStateError."""
        to_do = self.to_do()
        if not to_do and self.begun is None:
            raise ConfigError(
                f"the rows of {self.table} have the masks of the configuration",
                table=self.table,
                setting="targets",
                next_step="add or change `masks` first; or --check what older files still hold",
            )
        lost = {name: one.past for name, one in to_do.items() if one.past}
        if lost and not (self.asked.from_log or self.asked.without_past):
            raise ConfigError(
                f"a snapshot would lose what only the lake has of {', '.join(lost)}: "
                f"{next(iter(lost.values()))}",
                table=self.table,
                next_step="rebuild it from the log, with its past: `--rebuild`, if journals reach "
                "back to the table's creation; or give that up: `--without-past`",
            )
        parking = self.sink.parking(epoch=self.cut.cursor.epoch, open_xa=self.cut.cursor.open_xa)
        if any(map(parking.holds_rows_of, self.sources)):
            raise LakeStateError(
                "masks cannot be applied now: a prepared XA transaction that changed the table is "
                "open",
                table=self.table,
                next_step="end it at the source, with the earlier masks run the source, and repeat "
                "this",
            )
        if self.begun is None:
            masks = {name: one.before for name, one in to_do.items()}
            self._record(masks)
        reach("remask_recorded")
        if suspended := self._suspensions(to_do):
            self.batch.suspend(suspended)
            reach("remask_suspended")
        return bool(to_do)

    def _record(self, masks: Mapping[str, Mapping[str, str]]) -> None:
        new = Remask(
            remask_id=new_operation_id(),
            source=self.config.name,
            table=self.table,
            masks={name: dict(of) for name, of in masks.items()},
            who=self.asked.who,
            why=self.asked.why,
        )
        remasks_of(self.sink.paths).put(new.remask_id, new)

    def _suspensions(self, names: Collection[str]) -> dict[str, Suspension | None]:
        cursor, found = self.batch.cursor, dict[str, Suspension | None]()
        gives_up = self.asked.without_past and not self.asked.from_log
        error = ConfigError(
            PAST_GIVEN_UP if gives_up else "its masks changed, and its rows have the earlier ones",
            next_step=f"`cdc-pipeline remask {self.config.name} --table {self.table}` goes on",
        )
        for name in names:
            made = suspension(
                error,
                batch_number=self.batch.number,
                at=cursor.position,
                epoch=cursor.epoch,
                needs_snapshot=True,
            )
            before = self.states[name].suspended
            if before is None:
                found[name] = made
            elif not before.needs_snapshot or before.what != made.what:
                found[name] = restated(before, made)
        return found


def _needs_rows(state: TargetState) -> bool:
    return state.suspended is not None and state.suspended.needs_snapshot


def _past_of(name: str, spec: TargetSpec) -> str:
    """What of a target no row of the source has."""
    if MODES[spec.mode].keeps_past:
        return f"earlier rows of a {spec.mode}"
    columns = [column.name for column in columns_of_lake(name, spec)]
    return f"columns that the source has dropped ({', '.join(columns)})" if columns else ""


def _unfinished(sink: DeltaSink, table: str) -> Remask | None:
    remasks = remasks_of(sink.paths)
    of_table = [one for one in remasks.read() if one.table == table]
    left = [one for one in of_table if remasks.certificate_of(one.remask_id) is None]
    return left[-1] if left else None


# -- what is left of the old values ----------------------------------------------------------------


@dataclass(kw_only=True)
class _SoughtValues(Sought):
    """Values that their masks do not make, by target and column."""

    specs: Mapping[str, TargetSpec]
    masks: Mapping[str, Mapping[str, Mask]]

    def columns(self, target: str) -> set[str]:
        masked = self.masks[target].keys() & {one.name for one in self.specs[target].columns}
        return {*masked, *images_of(self.specs[target])[1:]} if masked else set()

    def count(self, target: str, rows: pa.Table) -> int:
        found = pa.repeat(pa.scalar(False), len(rows))
        for image in images_of(self.specs[target]):
            there = {one.name for one in (rows.schema.field(image).type if image else rows.schema)}
            for name, mask in self.masks[target].items():
                if name in there:
                    wrong = _is_other(column_of(rows, name, image), mask)
                    found = pc.or_(found, pc.fill_null(wrong, False))
        return int(pc.sum(found).as_py() or 0)


def _masks_of(targets: Targets, name: str, spec: TargetSpec) -> dict[str, Mask]:
    """By column of the target, also of columns that the source has no more."""
    kept, masks = columns_of_lake(name, spec), dict[str, Mask]()
    for source, of in spec.sources.items():
        names, routes = dict(of.names), targets.routes_of(source)
        for column in (*of.columns, *kept):
            mask = mask_of(routes, column.name)
            if mask is not None:
                masks[names.get(column.name, column.name)] = mask
    return masks


def _is_other(values: pa.Array, mask: Mask) -> pa.Array:
    """Which values the mask does not make; NULL is none."""
    if isinstance(mask, HashMask):
        return pc.invert(pc.match_substring_regex(values, "^[0-9a-f]{64}$"))
    if isinstance(mask, TruncateMask) and pa.types.is_string(values.type):
        return pc.greater(pc.utf8_length(values), mask.truncate)
    if isinstance(mask, TruncateMask):  # of text that is stored as bytes, at most four each
        return pc.greater(pc.binary_length(values), 4 * mask.truncate)
    if isinstance(mask, FixedMask) and mask.fixed is not None:
        return pc.not_equal(values, pa.scalar(mask.fixed).cast(values.type))
    return pc.is_valid(values)


def _has_other_masks(targets: Targets, rows: DecodedRows) -> bool:
    """Whether rows in quarantine were masked otherwise."""
    columns = tuple(replace(column, masked="") for column in rows.schema.columns)
    try:
        return targets.masks.schema(replace(rows.schema, columns=columns)) != rows.schema
    except ConfigError:
        return True


def _certify(
    config: PipelineConfig, sink: DeltaSink, batch: AdminBatch, done: Remask, *, at_once: bool
) -> RemaskCertificate:
    cut, remasks = batch.last_cut(), remasks_of(sink.paths)
    known = remasks.certificate_of(done.remask_id)
    targets = targets_at(config, cut, batch.cursor)
    by_name = targets.by_name
    specs = {name: by_name[name].spec for name in done.masks if name in by_name}
    clean = cleaned(
        sink.paths,
        {source for spec in specs.values() for source in spec.sources},
        specs.keys(),
        before=batch.number,
        is_gone=partial(_has_other_masks, targets),
    )
    reach("remask_cleaned")
    found = _SoughtValues(
        what="rows with values that no mask of theirs makes",
        targets=specs.keys(),
        names=done.masks.keys(),
        since_us=since_us(known),
        versions={} if known is None else dict(known.versions),
        specs=specs,
        masks={name: _masks_of(targets, name, spec) for name, spec in specs.items()},
    )
    search(config, sink, [found], at_once=at_once)
    certificate = RemaskCertificate(
        remask_id=done.remask_id,
        masks={name: dict(spec.shape.masks) if spec.shape else {} for name, spec in specs.items()},
        **searched(config, done.table, found, clean, known),
        not_searched=_NOT_SEARCHED,
    )
    remasks.certify(done.remask_id, certificate)
    return certificate


# -- the operation ---------------------------------------------------------------------------------


def preview(config: PipelineConfig, asked: RemaskRequest, *, cursors: CursorStore) -> RemaskPreview:
    """What `remask` would do; writes nothing. Raises as it does."""
    sink = build_sink(config)
    with admin_batch(sink, cursors=cursors, doing="apply the masks") as batch:
        remasking = _Remasking(config, asked, batch, sink)
        return RemaskPreview(source=config.name, table=remasking.table, targets=remasking.to_do())


def remask(
    config: PipelineConfig,
    asked: RemaskRequest,
    *,
    cursors: CursorStore,
    observer: RunObserver | None = None,
    run_id: str = "",
) -> RemaskCertificate:
    """Apply the present masks to all targets of a table; the same request ends what was left.

    Raises ConfigError: no masks changed, or more than masks, or the past would be lost;
    LakeStateError: something is under way; LockError: as `snapshot.lock_wait_s`, or with `at_once`
    a maintenance is at work; CdcError: as `take_snapshot` or `rebuild`.
    """
    sink, wait_s = build_sink(config), config.snapshot.lock_wait_s
    observer = observer or RunObserver()
    how: OperationRun = {"cursors": cursors, "observer": observer, "run_id": run_id}
    locked = partial(admin_batch, sink, doing="repeat this command", wait_s=wait_s, **how)
    with ExitStack() as stack:  # what a killed process recorded is finished first
        wait_for_lock(lambda: stack.enter_context(sink.lock()), wait_s=wait_s)
        recover(Publisher(sink, cursors, observer, run_id))
    with locked() as batch:
        remasking = _Remasking(config, asked, batch, sink)
        table, is_needed = remasking.table, remasking.begin()
    if is_needed and asked.from_log:
        rebuild(config, tables=[table], **how)
    elif is_needed:
        take_snapshot(config, tables=[table], **how)
    reach("remask_swapped")
    _forget_side_lakes(config, sink)
    with locked() as batch, alone(sink, at_once=asked.at_once):
        done = _unfinished(sink, table)
        assert done is not None
        return _certify(config, sink, batch, done, at_once=asked.at_once)


def _forget_side_lakes(config: PipelineConfig, sink: DeltaSink) -> None:
    """Of operations that a killed process left when their tables were swapped in."""
    with ExitStack() as stack, operations_lock(config):
        kinds: tuple[OperationKind, ...] = ("snapshot", "rebuild")
        for kind in kinds:
            claim(config, kind, stack, matches=lambda _: False, cut=sink.last_cut())


def check(config: PipelineConfig, *, cursors: CursorStore, table: str) -> RemaskCertificate | None:
    """Search the lake again for values from before a table's last new masks; None: it got none.
    Raises LakeStateError: they are not in place.
    """
    sink = build_sink(config)
    (table,) = tables_named(config, [table])
    with admin_batch(
        sink, cursors=cursors, doing="check the masks", wait_s=config.snapshot.lock_wait_s
    ) as batch:
        if _unfinished(sink, table) is not None:
            raise LakeStateError(
                "the new masks are not in place",
                table=table,
                next_step=f"`cdc-pipeline remask {config.name} --table {table}` goes on",
            )
        done = [one for one in remasks_of(sink.paths).read() if one.table == table]
        return _certify(config, sink, batch, done[-1], at_once=False) if done else None
