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
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from shlex import quote

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError, LakeStateError
from cdc_pipeline.fault_points import reach
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.erasures import NameBound
from cdc_pipeline.lake.long_operations import (
    OperationKind,
    give_up,
    new_operation_id,
)
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.remasks import Remask, RemaskCertificate, remasks_of
from cdc_pipeline.lake.schema_history import SchemaHistoryFile
from cdc_pipeline.lake.storage.lock import wait_for_lock
from cdc_pipeline.lake.suspensions import MASKS_CHANGED, suspended_at
from cdc_pipeline.operations.backfill.rebuild import rebuild
from cdc_pipeline.operations.erase.certify import alone, certified
from cdc_pipeline.operations.erase.keys import earlier_names
from cdc_pipeline.operations.erase.remasked import Remasked, shown
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.position.cursor import CursorStore, Suspension
from cdc_pipeline.run.admin_batch import AdminBatch, admin_batch
from cdc_pipeline.run.observer import OperationRun, RunObserver
from cdc_pipeline.run.plan.needs_snapshot import choose
from cdc_pipeline.run.publish import Publisher
from cdc_pipeline.run.recovery import recover
from cdc_pipeline.run.wiring import build_sink, build_source
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.replace.content import columns_of_lake
from cdc_pipeline.targets.route_checks import changed_rule, changed_settings, route_of_recorded
from cdc_pipeline.targets.routes import Routes
from cdc_pipeline.targets.table_filter import tables_named
from cdc_pipeline.targets.targets import targets_at


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
    source: str
    table: str
    targets: dict[str, RemaskedTarget]


@dataclass
class _Remasking:
    config: PipelineConfig
    asked: RemaskRequest
    batch: AdminBatch
    sink: DeltaSink

    def __post_init__(self) -> None:
        self.cut: Cut = self.batch.last_cut()
        self.states = self.cut.cursor.targets
        self.routes = Routes(self.config)
        known = {source for state in self.states.values() for source in state.source_names}
        chosen = choose(self.config, self.cut, known, [self.asked.table])
        self.sources = chosen.sources
        (asked,) = tables_named(self.config, [self.asked.table], self.states)
        self.table = asked if asked in self.sources else self.sources[0]  # of a target
        self.known = [name for name in chosen.targets if name in self.cut.tables]
        history = SchemaHistoryFile(self.sink.paths.schema_history).read()
        until = NameBound(seq=str(self.batch.cursor.seq), time_us=now_us())
        self.names = {one: earlier_names(history, one, until=until) for one in self.sources}
        named = set[str]().union(*self.names.values())
        remasks = remasks_of(self.sink.paths)
        self.recorded = [
            one
            for one in remasks.read()
            if one.table in named or not one.masks.keys().isdisjoint(chosen.targets)
        ]
        self.begun = [one for one in self.recorded if remasks.certificate_of(one.remask_id) is None]

    def to_do(self) -> dict[str, RemaskedTarget]:
        """Targets that need new rows. ConfigError: their rules differ in more than masks."""
        found = {}
        for name in self.known:
            spec = self.cut.tables[name].spec
            leading = (self.routes.of_table(one) for one in self.sources)
            rule = next(one.rule for routes in leading for one in routes if one.target == name)
            differs, (before, after) = changed_settings(name, spec, rule)
            if set(differs) - {"masks"}:
                raise ConfigError(
                    f"more than masks changed of target {name}: {', '.join(differs)}",
                    table=name,
                    next_step="change masks alone, and other settings under another `name`",
                )
            waits = any(name in one.masks for one in self.begun)
            suspended = self.states[name].suspended
            if differs or (waits and suspended is not None and suspended.needs_snapshot):
                past = _past_of(name, spec)
                found[name] = RemaskedTarget(
                    mode=spec.mode, before=shown(before), after=shown(after), past=past
                )
        return found

    def asked_for(self) -> dict[str, RemaskedTarget]:
        """As `to_do`. Also a ConfigError: there is nothing to do, nor to end."""
        found = self.to_do()
        if not found and not self.begun and not (self.asked.at_once and self.recorded):
            raise ConfigError(
                f"the rows of {self.table} have the masks of the configuration",
                table=self.table,
                setting="targets",
                next_step="add or change `masks` first; or --check what older files still hold",
            )
        return found

    def begin(self) -> bool:
        """Suspend the targets; whether they need new rows. Raises ConfigError or LakeStateError."""
        to_do = self.asked_for()
        lost = {name: one.past for name, one in to_do.items() if one.past}
        if lost and not (self.asked.from_log or self.asked.without_past):
            raise ConfigError(
                f"a snapshot would lose what only the lake has of {', '.join(lost)}: "
                f"{next(iter(lost.values()))}",
                table=self.table,
                next_step="rebuild it from the log, with its past: `--rebuild`, if journals reach "
                "back to the table's creation; or give that up: `--without-past`",
            )
        if to_do and not self.asked.from_log:
            self._check_shown()
        parking = self.sink.parking(epoch=self.cut.cursor.epoch, open_xa=self.cut.cursor.open_xa)
        if any(map(parking.holds_rows_of, self.sources)):
            raise LakeStateError(
                "masks cannot be applied now: a prepared XA transaction that changed the table is "
                "open",
                table=self.table,
                next_step="end it at the source, with the earlier masks run the source, and repeat "
                "this",
            )
        begun = {name: masks for one in self.begun for name, masks in one.masks.items()}
        if missing := {name: one.before for name, one in to_do.items() if name not in begun}:
            self._record(begun | missing)
            for one in self.begun:
                remasks_of(self.sink.paths).withdraw(one.remask_id)
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
            names=self.names,
            who=self.asked.who,
            why=self.asked.why,
        )
        remasks_of(self.sink.paths).put(new.remask_id, new)

    def _suspensions(self, names: Collection[str]) -> dict[str, Suspension | None]:
        """Of `names`, and of others whose masks changed: they wait for theirs (K4)."""
        gives_up = self.asked.without_past and not self.asked.from_log
        tables = dict.fromkeys(names, (self.table, gives_up))
        for name in self.cut.tables.keys() - set(self.known):
            route = route_of_recorded(self.routes, self.cut, name)
            changed = changed_rule(self.routes, self.cut, name)
            if route is None or changed is None or self.states[name].origin is not None:
                continue
            if changed.setting == f"{route.setting}.masks":
                tables[name] = route.source, False
        cursor, found = self.batch.cursor, dict[str, Suspension | None]()
        for name, (table, past_given_up) in tables.items():
            before = self.states[name].suspended
            command = f"cdc-pipeline remask {self.config.name} --table {quote(table)}"
            own = before or suspended_at(cursor, ConfigError(""), batch_number=self.batch.number)
            made = own.model_copy(
                update={
                    "changed_rule": MASKS_CHANGED,
                    "past_given_up": past_given_up,
                    "needs_snapshot": True,
                    "next_step": f"`{command}` goes on",
                }
            )
            if made != before:
                found[name] = made
        return found

    def _check_shown(self) -> None:
        if not isinstance(self.config.source, LiveSourceConfig):
            why, shown = "an archive shows no rows", None
        else:
            with closing(build_source(self.config)) as source:
                why, shown = "the server does not show it", source.tables()
        if shown is None or set(self.sources) - set(shown):
            raise ConfigError(
                f"no snapshot can bring new rows of {self.table}: {why}",
                table=self.table,
                expected="a table of the source's server that the account may SELECT from",
                next_step="rebuild it from the log: `--rebuild`, if journals reach back to the "
                "table's creation; or restore the earlier masks, with which runs go on",
            )


def _past_of(name: str, spec: TargetSpec) -> str:
    """What of a target no row of the source has."""
    if MODES[spec.mode].keeps_past:
        return f"earlier rows of a {spec.mode}"
    columns = [column.name for column in columns_of_lake(name, spec)]
    return f"columns that the source has dropped ({', '.join(columns)})" if columns else ""


def _certify(remasking: _Remasking, *, at_once: bool = False) -> list[RemaskCertificate]:
    """Of all requests for the table, oldest first."""
    config, sink, batch = remasking.config, remasking.sink, remasking.batch
    targets = targets_at(config, remasking.cut, batch.cursor)
    requests = remasks_of(sink.paths)
    certifying = [
        Remasked(config, sink, requests, one.remask_id, batch.number, one, remasking.names, targets)
        for one in remasking.recorded
    ]
    return certified(config, sink, certifying, at_once=at_once)


# -- the operation ---------------------------------------------------------------------------------


def preview(config: PipelineConfig, asked: RemaskRequest, *, cursors: CursorStore) -> RemaskPreview:
    """What `remask` would do; writes nothing. Raises as it does."""
    sink = build_sink(config)
    with admin_batch(sink, cursors=cursors, doing="apply the masks") as batch:
        remasking = _Remasking(config, asked, batch, sink)
        return RemaskPreview(
            source=config.name, table=remasking.table, targets=remasking.asked_for()
        )


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
    # A killed process left them when their tables were swapped in, or they have earlier masks.
    kinds: tuple[OperationKind, ...] = ("snapshot", "rebuild", "reread", "gap")
    cut, pending = sink.last_cut(), sink.pending_record()
    give_up(config, *kinds, sources=remasking.sources, cut=cut, pending=pending)
    with locked() as batch, alone(sink, at_once=asked.at_once):
        remasking = _Remasking(config, asked, batch, sink)
        return _certify(remasking, at_once=asked.at_once)[-1]


def check(config: PipelineConfig, *, cursors: CursorStore, table: str) -> list[RemaskCertificate]:
    """LakeStateError: the new masks are not in place; ConfigError: as `remask`."""
    sink = build_sink(config)
    with admin_batch(
        sink, cursors=cursors, doing="check the masks", wait_s=config.snapshot.lock_wait_s
    ) as batch:
        remasking = _Remasking(config, RemaskRequest(table=table), batch, sink)
        if remasking.begun or remasking.to_do():
            command = f"cdc-pipeline remask {config.name} --table {quote(remasking.table)}"
            raise LakeStateError(
                "the new masks are not in place",
                table=remasking.table,
                next_step=f"`{command}` brings them",
            )
        return _certify(remasking)
