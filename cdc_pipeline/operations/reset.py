"""Reset a table: its rows count as wrong until a new snapshot has replaced them.

Rules:
- Nothing is deleted: readers see the old rows, and captures follow the source, until the snapshot
  is complete. What changes is the table's state: it is partial (K19), so that the next snapshot
  reads it and no batch appends to it without looking for its keys (K12).
- It is recorded in a cut with the person and the reason, like every change by hand.
- A snapshot, or rows that are read again, that is unfinished is given up: some of its rows may be
  those that are wrong, and no log shows what changed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.lake.long_operations import give_up
from cdc_pipeline.lake.records import Cut, Note
from cdc_pipeline.position.cursor import CursorStore, TargetState
from cdc_pipeline.run.admin_batch import AdminBatch, admin_batch
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.targets.table_filter import tables_named

RESET_NOTE: Final = "reset"


class ResetReport(FrozenModel):
    """`targets` need a snapshot now; `cut` records it, None if they needed one already."""

    source: str
    tables: tuple[str, ...]
    targets: tuple[str, ...]
    cut: int | None


def reset(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    tables: tuple[str, ...],
    who: str,
    why: str = "",
    run_id: str = "",
) -> ResetReport:
    """Mark the targets of `tables` (source tables or targets) as partial, in a cut of their own.
    Raises ConfigError: no such table, LockError: a run is writing or a snapshot reads them, or as
    `admin_batch`.
    """
    sink = build_sink(config)
    cut, pending = sink.last_cut(), sink.pending_record()
    known = named_targets(config, cut, tables).values()
    sources = {source for state in known for source in state.source_names}
    give_up(config, "snapshot", "reread", sources=sources, cut=cut, pending=pending)
    with admin_batch(sink, cursors=cursors, doing="reset the tables", run_id=run_id) as batch:
        chosen = named_targets(config, batch.last_cut(), tables)
        new = {name for name, state in chosen.items() if not state.partial}
        cut = _publish(batch, new, who=who, why=why) if new else None
    return ResetReport(
        source=config.name,
        tables=tables,
        targets=tuple(sorted(chosen)),
        cut=None if cut is None else cut.batch_number,
    )


def _publish(batch: AdminBatch, names: set[str], *, who: str, why: str) -> Cut:
    states = {
        name: state.model_copy(update={"partial": True, "exact": False}) if name in names else state
        for name, state in batch.last_cut().cursor.targets.items()
    }
    reason = f": {why}" if why else ""
    text = f"{who} reset it{reason}; it needs a new snapshot"
    return batch.publish(
        kind="catch_up",
        targets=states,
        notes=[Note(kind=RESET_NOTE, text=text, table=name) for name in sorted(names)],
    )


def named_targets(
    config: PipelineConfig, cut: Cut | None, tables: Sequence[str]
) -> dict[str, TargetState]:
    """The targets of source tables or targets. ConfigError: the lake has no such table."""
    states = {} if cut is None else cut.cursor.targets
    chosen: dict[str, TargetState] = {}
    for table in tables_named(config, tables, states):
        of_table = {
            name: state
            for name, state in states.items()
            if table == name or table in state.source_names
        }
        if not of_table:
            raise ConfigError(
                f"{table} is not in the lake of {config.name}",
                setting="table",
                expected=f"one of: {', '.join(sorted(states)[:20])}"
                if states
                else "a captured table",
                next_step=f"name tables as schema.table; `cdc-pipeline status {config.name}` lists "
                "them, and one that is not there yet has nothing to reset or to compare",
            )
        chosen |= of_table
    return chosen
