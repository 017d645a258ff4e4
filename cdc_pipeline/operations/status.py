"""Report a source's state from its lake, and from its cursor if that is given: no source, no JVM.

The last cut carries the cursor of its batch, so files tell almost everything. The cursor alone
knows how far runs have read that applied nothing, and whether it contradicts the lake; asking for
it loads Dagster. A status without it is never ahead of the truth.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, StoppedError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake import state
from cdc_pipeline.lake.long_operations import OperationStatus, operations_of
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import TableProof, proof_file, runs_of_a_pass
from cdc_pipeline.lake.records import Cut, CutTable
from cdc_pipeline.lake.suspensions import snapshot_command
from cdc_pipeline.operations.plan_text import operation_line
from cdc_pipeline.position.cursor import CursorState, CursorStore, OpenXa, Suspension
from cdc_pipeline.position.failback import Consumer
from cdc_pipeline.run.plan.needs_snapshot import why_needed, why_parted
from cdc_pipeline.run.plan.reconcile import Reconciled, reconcile
from cdc_pipeline.run.report import needed_position, quarantined


class TableStatus(FrozenModel):
    delta_version: int
    applied_batch: int
    columns: int
    key: tuple[str, ...]
    mode: Mode = "mirror"
    key_reason: str = ""
    partial: bool
    is_dropped: bool = False  # at the source
    suspended: Suspension | None = None
    needs_snapshot: str = ""  # why; "" if it needs none
    next_step: str = ""  # the command that takes it
    rescued: dict[str, int] = Field(default_factory=dict)  # values rescued so far, by column


class SourceStatus(FrozenModel):
    """`state`: ``unfinished`` if a recorded batch waits to be finished; ``no_cut`` if the lake has
    no cut and the cursor was not read; ``never_run`` if there is no cursor either. `position_of`:
    what position, GTID set, open XA transactions and suspended tables are of; `oldest_needed`: the
    log must be kept from here; `lag_s`: since the commit time of the last applied transaction; -1
    unknown, or the source is an archive, which is as old as its journals.
    """

    source: str
    kind: Literal["live", "archive"]
    state: Literal["ready", "suspended", "unfinished", "no_cut", "never_run"]
    reason: str
    position_of: Literal["cut", "cursor"] = "cut"
    identity: str = ""
    journal: str = ""
    offset: int = 0
    gtid_set: str = ""
    batch_number: int = 0
    unfinished_batch: int | None = None
    oldest_needed: Consumer | None = None
    source_time_us: int = -1
    published_at_us: int = -1
    lag_s: float = -1
    open_xa: tuple[OpenXa, ...] = ()
    # rows that wait there, by source table
    quarantine: dict[str, int] = Field(default_factory=dict)
    tables: dict[str, TableStatus] = Field(default_factory=dict)
    operations: tuple[OperationStatus, ...] = ()  # under way, or waiting to be resumed
    proofs: dict[str, TableProof] = Field(default_factory=dict)  # of the rolling proof, by table
    pass_runs: int | None = None  # the most runs in which it compares all rows; None: not known

    @property
    def suspended(self) -> list[str]:
        return sorted(name for name, table in self.tables.items() if table.suspended is not None)

    @property
    def needing_snapshot(self) -> list[str]:
        return sorted(name for name, table in self.tables.items() if table.needs_snapshot)


def status(config: PipelineConfig, *, cursors: CursorStore | None = None) -> SourceStatus:
    """LakeStateError or CursorError: records are damaged, or contradict the cursor."""
    paths = LakePaths.of(config)
    cut = state.last_cut(paths)
    pending = state.pending_record(paths)
    reconciled = (
        _of_cut(cut, config.sink.lake_path) if cursors is None else reconcile(cursors.read(), cut)
    )
    cursor = reconciled.cursor
    if cursor is None:
        absent: Literal["no_cut", "never_run"] = "no_cut" if cursors is None else "never_run"
        return SourceStatus(
            source=config.name,
            kind=config.source.kind,
            state=absent if pending is None else "unfinished",
            reason=reconciled.reason,
            position_of="cut" if cursors is None else "cursor",
            unfinished_batch=None if pending is None else pending.batch_number,
            operations=tuple(operations_of(config, cut)),
        )
    tables = _tables(config, cut, cursor)
    source_time_us = cut.source_time_us if cut is not None else -1
    has_lag = source_time_us >= 0 and config.source.kind == "live"
    held_back = len(cursor.suspended)
    of_all = f"{held_back} of {len(tables)} tables {'is' if held_back == 1 else 'are'} suspended; "
    return SourceStatus(
        source=config.name,
        kind=config.source.kind,
        state="unfinished" if pending is not None else "suspended" if held_back else "ready",
        reason=(of_all if held_back else "") + reconciled.reason,
        position_of="cut" if cursors is None else "cursor",
        identity=str(cursor.identity),
        journal=cursor.journal,
        offset=cursor.offset,
        gtid_set=cursor.gtid_set,
        batch_number=cursor.batch_number,
        unfinished_batch=None if pending is None else pending.batch_number,
        oldest_needed=needed_position(cursor),
        source_time_us=source_time_us,
        published_at_us=cut.published_at_us if cut is not None else -1,
        lag_s=max(0.0, time.time() - source_time_us / 1e6) if has_lag else -1,
        open_xa=cursor.open_xa,
        quarantine=quarantined(cut),
        tables=tables,
        operations=tuple(operations_of(config, cut)),
        **_proof(config, paths, cut),
    )


def stopped(config: PipelineConfig | None) -> StoppedError:
    """For a command that a signal has ended; what it has left is what its source's lake says."""
    left, again = "", "give the same command again"
    if config is not None:
        again += ": what is published stays, and it goes on from there"
        paths = LakePaths.of(config)
        with suppress(CdcError, OSError):
            cut, pending = state.last_cut(paths), state.pending_record(paths)
            left = "no cut yet" if cut is None else f"the lake is at cut {cut.batch_number}"
            if pending is not None:
                left += f"; batch {pending.batch_number} is recorded: the next run finishes it"
            left = "; ".join([left, *map(operation_line, operations_of(config, cut))])
    return StoppedError("the command was stopped", got=left or None, next_step=again)


def _tables(config: PipelineConfig, cut: Cut | None, cursor: CursorState) -> dict[str, TableStatus]:
    tables = {}
    for name, table in () if cut is None else cut.tables.items():
        assert cut is not None
        state, (need, next_step) = cut.cursor.targets[name], _need(config, name, cut)
        tables[name] = TableStatus(
            delta_version=table.table_version,
            applied_batch=state.applied_batch,
            columns=len(table.spec.columns),
            key=table.spec.key,
            mode=table.spec.mode,
            key_reason=table.spec.key_reason,
            partial=state.partial,
            is_dropped=_is_dropped(name, table),
            suspended=state.suspended,
            needs_snapshot=need,
            next_step=next_step,
            rescued={column: count for column, count in table.rescued_ever.items() if count},
        )
    for name, suspension in cursor.suspended.items():
        # Suspended before its table was created.
        not_made = TableStatus(
            delta_version=-1,
            applied_batch=-1,
            columns=0,
            key=(),
            partial=False,
            suspended=suspension,
        )
        tables.setdefault(name, not_made)
    return tables


def _proof(config: PipelineConfig, paths: LakePaths, cut: Cut | None) -> dict[str, Any]:
    if config.verify is None or cut is None:
        return {}
    from cdc_pipeline.sink.delta.replay import row_count

    proofs = proof_file(paths).read()
    runs = None
    with suppress(CdcError, OSError):  # a run says what is wrong with a table
        rows = {
            name: row_count(paths.table(name), version=cut.tables[name].table_version) or 0
            for name, proof in proofs.tables.items()
            if name in cut.tables and not (proof.reason or proof.given_up)
        }
        runs = runs_of_a_pass(config.verify.each_run, proofs, rows)
    return {"proofs": proofs.tables, "pass_runs": runs}


def _of_cut(cut: Cut | None, lake: Path) -> Reconciled:
    if cut is None:
        is_gone = isinstance(lake, Path) and not lake.exists()
        where = f"there is no lake in {lake}" if is_gone else "the lake has no cut"
        return Reconciled(None, f"{where}: no run has applied anything yet", False)
    return Reconciled(cut.cursor, f"the lake is at cut {cut.batch_number}", False)


def _is_dropped(name: str, table: CutTable) -> bool:
    return all(source.gone for source in table.spec.sources_of(name).values())


def _need(config: PipelineConfig, name: str, cut: Cut) -> tuple[str, str]:
    """And the command for it; both empty if it needs none or its table is gone."""
    state = cut.cursor.targets[name]
    parted = why_parted(config, state)
    if parted and state.origin is not None:
        return parted, snapshot_command(config.name, state.origin[0])
    if _is_dropped(name, cut.tables[name]):
        return "", ""
    why = why_needed(state)
    return why, snapshot_command(config.name, name) if why else ""
