"""Turns a capture's progress into Dagster events.

Rules:
- Order per batch (K2: an event must be true when it is logged): changed tables, then the cursor.
- A table that a batch suspends gets a failed check `follows`, and no materialization (K4). One
  that a batch changes, or that follows again, passes it; a run repeats no result of its own.
- A cursor that moves to a cut of an earlier run (killed between cut and cursor) first logs what
  that run could not: only the tables whose newest event is of an earlier batch, so no batch appears
  twice.
- The run's observation on each asset (`observations.py`) comes last.
- Dagster skips a step whose input's output is missing: an asset that follows has one if a step that
  is not ours needs it. It logs no event, since the asset has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import dagster as dg
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import ProofReport
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.suspensions import SUSPENDED_NOTE, sentence
from cdc_pipeline.orchestration.columns import SourceColumn, SourceColumns, read_source_columns
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore, cursors_of
from cdc_pipeline.orchestration.events.observations import events_of, observation_of
from cdc_pipeline.orchestration.events.table_checks import (
    follows_evaluation,
    follows_key,
    proof_metadata,
    proved_evaluation,
)
from cdc_pipeline.orchestration.metadata import changed_by, cursor_entry, data_version, ddl_of
from cdc_pipeline.orchestration.names import dagster_name
from cdc_pipeline.orchestration.translator import SOURCE_TAG, CdcTranslator
from cdc_pipeline.position.cursor import CursorState, Suspension
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CapturePlan
from cdc_pipeline.targets.known_tables import newest_cut
from cdc_pipeline.text.wording import listed

# Counts the rows of a table at a Delta version, if that is known without a JVM.
RowCounter = Callable[[PipelineConfig, str, int], int | None]

LOADED_NOTE = "loaded"  # of a table whose rows a snapshot has replaced
_TABLES_NAMED_MAX = 20


def _count_by_log(config: PipelineConfig, table: str, version: int) -> int | None:
    """From the table's log, which may have no counts. Raises LakeStateError if it is damaged."""
    # Imported late: definitions are loaded often, and runs that log no table need none of it.
    from cdc_pipeline.sink.delta.replay import row_count

    return row_count(LakePaths.of(config).table(table), version=version)


class MaterializationRecorder(RunObserver):
    """Logs in the run of `context`: tables as an observer, the cursor as a writer."""

    def __init__(
        self,
        context: dg.AssetExecutionContext | dg.OpExecutionContext,
        config: PipelineConfig,
        *,
        translator: CdcTranslator,
        row_counter: RowCounter | None = None,
    ) -> None:
        self._context = context
        self._config = config
        self._translator = translator
        self._row_counter = row_counter or _count_by_log
        self._cut: Cut | None = None
        self._plan: CapturePlan | None = None
        self._planned_at_s = 0.0
        self._materialized: set[dg.AssetKey] = set()
        self._at_source: dict[str, Mapping[str, SourceColumn]] = {}
        self._described = -1  # the batch whose tables are in it
        self._follows: dict[str, bool] = {}  # results of this run, by table
        self._suspended: Set[dg.AssetKey] = frozenset()

    def cursors(self) -> DagsterCursorStore:
        """The source's cursor, which this run writes."""
        instance, writer = self._context.instance, self.write_cursor
        return cursors_of(instance, self._config, self._translator, writer=writer)

    def planned(self, plan: CapturePlan) -> None:
        self._plan, self._planned_at_s = plan, time.time()
        self._context.log.info(
            f"{plan.source} ({plan.identity}): from {plan.start} "
            f"({'; '.join(plan.start_reasons)}) to {plan.end} "
            f"({plan.end_reason}), {plan.bytes_between:,} bytes; {tables_text(plan.tables)}"
        )
        for warning in plan.warnings:
            self._context.log.warning(warning)

    def published(self, cut: Cut) -> None:
        self._cut = cut
        self._log_snapshots(cut)
        for table in sorted(cut.tables):
            if changed_by(cut, table):
                self._log_table(cut, table)
        for table in sorted({note.table for note in cut.notes if note.kind == SUSPENDED_NOTE}):
            self._tell_follows(table, cut.cursor.suspended.get(table))

    def write_cursor(self, cursor: CursorState, given: dict[str, object]) -> None:
        cut = self._cut
        if cut is None or cut.batch_number != cursor.batch_number:
            cut = newest_cut(self._config)
            if cut is not None and cut.batch_number == cursor.batch_number:
                self._log_missing_tables(cut)
            else:
                cut = None
        entry = cursor_entry(cursor, at_cut=cut)
        if cut is not None and cut.cursor.position.order != cursor.position.order:
            cut = None  # only the position moved: the cut's counts are not this event's
        metadata = self._translator.cursor_event_metadata(cursor, cut, given)
        self._materialize(
            dg.AssetMaterialization(
                asset_key=self._translator.cursor_key(self._config.name),
                description=f"batch {cursor.batch_number}, {cursor.position}",
                metadata={**metadata, **entry},
            )
        )

    def record_observations(
        self, cursor: CursorState, *, decoded_by: str = "", run_fails: bool = False
    ) -> None:
        """Log what a run leaves at its end: the check of each table that is suspended, that
        follows again, or that was selected with its checks; and its observation on the assets.

        Of a run that fails, Dagster calls each selected asset without a materialization failed:
        so those that follow get one.
        """
        observation = observation_of(
            self._config,
            cursor,
            plan=self._plan,
            planned_at_s=self._planned_at_s,
            decoded_by=decoded_by,
        )
        selected = run_fails and self._context.has_assets_def
        wanted = self._context.selected_asset_keys if selected else frozenset()
        for event in events_of(
            self._config,
            self._translator,
            observation,
            materialized=self._materialized,
            wanted=wanted,
        ):
            self._context.log_event(event)
        # After the materializations, to which Dagster attributes the results.
        self._suspended = {
            self._translator.table_key(self._config.name, table) for table in cursor.suspended
        }
        before = self._plan.suspended if self._plan is not None else {}
        announced = self._announced_checks()
        for table, target in sorted(cursor.targets.items()):
            if (
                target.suspended is not None
                or table in before
                or self._translator.table_key(self._config.name, table) in wanted
                or (announced and follows_key(self._config, self._translator, table) in announced)
            ):
                self._tell_follows(table, target.suspended)

    def outputs(self) -> Iterator[dg.Output[Any]]:
        """Of selected assets that other steps of the run wait for."""
        job, steps = self._context.job_def, self._context.job_def.dependency_structure
        logged = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
        for key in sorted(self._context.selected_asset_keys - self._suspended):
            handle = job.asset_layer.get_op_output_handle(key)
            assert handle is not None
            node, name = job.get_node(handle.node_handle), handle.output_name
            waiting = steps.output_to_downstream_inputs_for_node(node.name)
            inputs = waiting.get(node.get_output(name), ())
            if any(SOURCE_TAG not in it.node.tags for it in inputs):
                yield dg.Output(None, output_name=name, metadata=logged)

    def proved(self, proof: ProofReport) -> None:
        self._context.log.info(f"compared {proof.rows:,} rows with the server")
        if proof.failure:
            self._context.log.warning(f"the comparison failed: {proof.failure}")
        for warning in proof.warnings:
            self._context.log.warning(warning)
        for table, of_table in proof.tables.items():
            self._context.log_event(
                dg.AssetObservation(
                    self._translator.table_key(self._config.name, table),
                    description=of_table.summary,
                    metadata=proof_metadata(of_table),
                )
            )
            evaluation = proved_evaluation(self._config, self._translator, table, of_table)
            self._context.log_event(evaluation)  # type: ignore[arg-type]  # as in `_tell_follows`

    def _announced_checks(self) -> Set[dg.AssetCheckKey]:
        if not self._context.has_assets_def:
            return frozenset()
        keys: Set[dg.AssetCheckKey] = self._context.job_def.asset_layer.asset_graph.asset_check_keys
        return keys

    def _tell_follows(self, table: str, held: Suspension | None) -> None:
        if self._follows.get(table) is (held is None):
            return
        self._follows[table] = held is None
        if held is not None:
            self._context.log.warning(sentence(table, held))
        evaluation = follows_evaluation(self._config, self._translator, table, held)
        self._context.log_event(evaluation)  # type: ignore[arg-type]  # missing in its annotation

    def _materialize(self, event: dg.AssetMaterialization) -> None:
        self._materialized.add(event.asset_key)
        self._context.log_event(event)

    def _log_snapshots(self, cut: Cut) -> None:
        """Partitions of the snapshot asset, which only live servers have."""
        if not isinstance(self._config.source, LiveSourceConfig):
            return
        replaced = sorted({note.table for note in cut.notes if note.kind == LOADED_NOTE})
        for table in (name for name in replaced if name in cut.tables):
            version = cut.tables[table].table_version
            rows = self._count(table, version)
            metadata: dict[str, dg.MetadataValue] = {
                "target": dg.MetadataValue.text(table),
                "cut": dg.MetadataValue.text(str(cut.batch_number)),
                "delta_version": dg.MetadataValue.text(str(version)),
            }
            if rows is not None:
                metadata["rows"] = dg.MetadataValue.int(rows)
            for source in cut.cursor.targets[table].source_names:
                self._context.log_event(
                    dg.AssetMaterialization(
                        self._translator.snapshot_key(self._config.name),
                        partition=dagster_name(source),
                        description=f"snapshot of cut {cut.batch_number}",
                        metadata=metadata,
                    )
                )

    def _log_missing_tables(self, cut: Cut) -> None:
        missing = [
            table
            for table in sorted(cut.tables)
            if changed_by(cut, table) and self._last_batch(table) < cut.batch_number
        ]
        if missing:
            self._log_snapshots(cut)
        for table in missing:
            self._log_table(cut, table)

    def _last_batch(self, table: str) -> int:
        key = self._translator.table_key(self._config.name, table)
        entry = self._context.instance.get_latest_materialization_event(key)
        materialization = entry.asset_materialization if entry is not None else None
        value = (
            materialization.metadata.get("batch_number") if materialization is not None else None
        )
        return 0 if value is None else int(str(value.value))

    def _count(self, table: str, version: int) -> int | None:
        """An unreadable log does not fail the run here: the batch is already published."""
        try:
            return self._row_counter(self._config, table, version)
        except CdcError as error:
            self._context.log.warning(f"the rows of {table} are not counted: {error}")
            return None

    def _columns_at_source(self, cut: Cut) -> SourceColumns:
        """Asked once for each table, and again after a statement."""
        if self._described != cut.batch_number:
            self._described = cut.batch_number
            changed = [table for table in cut.tables if changed_by(cut, table)]
            asked = {
                source
                for table in changed
                for source in cut.cursor.targets[table].source_names
                if source not in self._at_source or ddl_of(cut, table)
            }
            self._at_source |= read_source_columns(self._config, sorted(asked))
        return self._at_source

    def _log_table(self, cut: Cut, table: str) -> None:
        version = cut.tables[table].table_version
        statements = "; ".join(
            f"{ddl.kind.replace('_', ' ')} {ddl.decision}" for ddl in ddl_of(cut, table)
        )
        self._materialize(
            dg.AssetMaterialization(
                asset_key=self._translator.table_key(self._config.name, table),
                description=f"batch {cut.batch_number}" + (f": {statements}" if statements else ""),
                metadata={
                    **self._translator.column_metadata(
                        self._config, cut, table, self._columns_at_source(cut)
                    ),
                    **self._translator.table_event_metadata(
                        self._config, cut, table, self._count(table, version)
                    ),
                },
                tags=data_version(version),
            )
        )
        self._tell_follows(table, cut.cursor.suspended.get(table))


def tables_text(tables: tuple[str, ...]) -> str:
    if not tables:
        return "no table is known before the log is read"
    return f"known tables: {listed(tables, most=_TABLES_NAMED_MAX)}"
