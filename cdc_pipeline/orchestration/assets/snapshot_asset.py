"""Snapshots as an asset whose partitions are the source's tables.

Rules:
- A backfill of several partitions is one run: one snapshot has their tables and enter the lake
  at one cut. The same holds for *Materialize* in the launchpad.
- It takes no slot of the source's pool, so captures continue meanwhile. The lake's lock protects
  both (K16: one writer at a time); the snapshot takes it only for its captures and the swap.
- What it publishes is logged like a capture's batches: the changed tables, then the cursor, both
  without a partition. Each table is also logged as a partition of this asset, before the
  table itself, which comes from it (`recorder.py`); the figures of its snapshot are an observation.
- Only live servers have such an asset: archived journals cannot be queried for tables.
- A run that is executed again, by a person or by Dagster's retries, has the configuration of the
  one before it: it goes on with what that one has begun, also with `restart`.
- Captures of the main lake during a snapshot are shown like any capture. Progress is reported at
  most every `_OBSERVED_EVERY_S` seconds, because Dagster keeps every event forever; each number has
  its own metadata entry, so that Dagster plots it.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.lake.long_operations import Operation, Progress, operations_of
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.operations.snapshot.report import SnapshotReport, SnapshotTarget
from cdc_pipeline.orchestration.dead_runs import tag_run
from cdc_pipeline.orchestration.events.failures import failing_step, resolved
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.metadata import shown
from cdc_pipeline.orchestration.names import dagster_name, plain_name, port_name
from cdc_pipeline.orchestration.translator import (
    ROLE_TAG,
    SOURCE_TAG,
    CdcTranslator,
    RunKind,
    code_references,
    origin_text,
)
from cdc_pipeline.run.observer import OperationRun, RunObserver
from cdc_pipeline.run.report import CapturePlan
from cdc_pipeline.targets.known_tables import Known, newest_cut

_OPERATION_TAG: Final = ".dagster/cdc_operation"  # of a run: what it, or one before it, has begun


# As `cdc_pipeline.operations.snapshot.snapshot.take_snapshot`.
TakeSnapshot = Callable[..., SnapshotReport]


class SnapshotRunConfig(dg.Config):
    """What a person may set for one snapshot."""

    restart: bool = Field(
        default=False,
        description=(
            "true: start again and discard what an earlier snapshot of these tables has read. "
            "false: continue an unfinished snapshot."
        ),
    )


@dataclass(frozen=True)
class OperationStep:
    """One run of an operation's asset: `run` is what the operation takes."""

    context: dg.AssetExecutionContext
    pipeline: PipelineConfig
    key: dg.AssetKey
    recorder: MaterializationRecorder
    run: OperationRun


def operation_asset(
    pipeline: PipelineConfig,
    kind: RunKind,
    *,
    key: dg.AssetKey,
    cut: Cut | None,
    tables: Sequence[str],
    translator: CdcTranslator,
    description: str,
    partitions_def: dg.PartitionsDefinition[Any],
    config_class: type[dg.Config],
    work: Callable[[OperationStep, dict[str, Any]], None],
) -> dg.AssetsDefinition:
    """An asset over source `tables` whose step, ``<kind>_<source>``, calls `work` with its run and
    its configuration; a backfill of partitions that follow each other is one run."""
    sources = [translator.source_table_key(pipeline.name, table) for table in tables]
    inputs = {port_name("table", *source.path): source for source in sources}
    spec = dg.AssetSpec(
        key,
        deps=sources,
        description=description,
        group_name=translator.group_name(pipeline.name),
        kinds={translator.source_kind(pipeline, cut), "deltalake"},
        owners=translator.owners(pipeline, None),
        skippable=True,
        partitions_def=partitions_def,
        metadata=code_references(pipeline),
        tags={SOURCE_TAG: pipeline.name, ROLE_TAG: kind},
    )

    @dg.op(
        name=f"{kind}_{pipeline.name}",
        description=description,
        ins=dict.fromkeys(inputs, dg.In(dg.Nothing)),
        out={kind: dg.Out(dg.Nothing, is_required=False)},
        config_schema=config_class.to_fields_dict(),
    )
    def operation_step(_context: dg.OpExecutionContext) -> Iterator[Any]:
        context = dg.AssetExecutionContext.get()
        tag_run(context.op_execution_context, pipeline.name, kind)
        config = resolved(pipeline)
        recorder = MaterializationRecorder(context, config, translator=translator)
        run_id = context.run.run_id
        run = OperationRun(cursors=recorder.cursors(), observer=recorder, run_id=run_id)
        with failing_step(config.sink.lake_path):
            if not (context.has_partition_key or context.has_partition_key_range):
                raise ConfigError(
                    f"a {kind} needs partitions",
                    expected="the tables, as partitions of the run",
                    got="a run without a partition",
                    next_step=f"choose partitions of the asset {key.to_user_string()} in Dagster",
                )
            work(
                OperationStep(context, config, key, recorder, run),
                dict(config_class(**context.op_execution_context.op_config)),
            )
        yield from recorder.outputs()

    return dg.AssetsDefinition(
        node_def=operation_step,
        keys_by_input_name=inputs,
        keys_by_output_name={kind: key},
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )


def build_snapshot(
    pipeline: PipelineConfig,
    known: Known,
    *,
    translator: CdcTranslator,
    take_snapshot: TakeSnapshot | None = None,
) -> dg.AssetsDefinition | None:
    """None if the source is an archive or none of its tables is known yet."""
    sources = known.sources
    if not sources or not isinstance(pipeline.source, LiveSourceConfig):
        return None
    return operation_asset(
        pipeline,
        "snapshot",
        key=translator.snapshot_key(pipeline.name),
        cut=known.cut,
        tables=sources,
        translator=translator,
        description=(
            f"Tables of {pipeline.name}, read completely from {origin_text(pipeline)}: one "
            "partition per table. Materialize partitions to take or retake their snapshots; the "
            "lake keeps the old rows until the new ones are complete."
        ),
        partitions_def=dg.StaticPartitionsDefinition([dagster_name(table) for table in sources]),
        config_class=SnapshotRunConfig,
        work=partial(_run, take_snapshot=take_snapshot),
    )


def _run(step: OperationStep, asked: dict[str, Any], *, take_snapshot: TakeSnapshot | None) -> None:
    context = step.context
    tables = sorted(map(plain_name, context.partition_keys))
    if take_snapshot is None:
        from cdc_pipeline.operations.snapshot.snapshot import take_snapshot as product_snapshot

        take_snapshot = product_snapshot
    context.log.info(f"takes the snapshot of {', '.join(tables)}")
    unfinished = {
        one.operation_id for one in operations_of(step.pipeline, newest_cut(step.pipeline))
    }
    goes_on = context.run.parent_run_id and context.run.tags.get(_OPERATION_TAG) in unfinished
    report = take_snapshot(
        step.pipeline,
        cursors=step.run["cursors"],
        tables=tables,
        restart=asked["restart"] and not goes_on,
        observer=SnapshotRecorder(context, step.recorder, asset_key=step.key),
        run_id=step.run["run_id"],
    )
    wanted = set(tables)
    for target, taken in report.targets.items():
        for table in sorted(wanted.intersection(taken.sources)):
            context.log_event(
                dg.AssetObservation(
                    step.key,
                    partition=dagster_name(table),
                    description=f"cut {taken.cut}: {taken.rows:,} rows of {target}",
                    metadata=_metadata(target, taken),
                )
            )
    context.log.info(report.reason)


def _metadata(target: str, taken: SnapshotTarget) -> dict[str, Any]:
    figures = taken.model_dump(exclude={"sources", "low", "high"})
    return {
        "target": target,
        **{name: shown(name, value) for name, value in figures.items()},
        "rows_stand_for": str(taken.low),
        "read_until": str(taken.high),
    }


_OBSERVED_EVERY_S: Final = 20.0


class SnapshotRecorder(RunObserver):
    """Writes to the run of `context`; forwards captures to `recorder`."""

    def __init__(
        self,
        context: dg.AssetExecutionContext | dg.OpExecutionContext,
        recorder: MaterializationRecorder,
        *,
        asset_key: dg.AssetKey,
    ) -> None:
        self._context = context
        self._recorder = recorder
        self._asset_key = asset_key
        self._began_s = time.monotonic()
        self._rows_before = 0
        self._observed_s = float("-inf")

    def planned(self, plan: CapturePlan) -> None:
        self._recorder.planned(plan)

    def published(self, cut: Cut) -> None:
        self._recorder.published(cut)

    def operation_began(self, state: Operation, *, resumed: bool) -> None:
        self._began_s, self._rows_before = time.monotonic(), -1
        what = "continues" if resumed else "begins"
        tags = {_OPERATION_TAG: state.operation_id}
        self._context.instance.add_run_tags(self._context.run.run_id, tags)
        self._context.log.info(
            f"{state.kind} {state.operation_id} {what}: {', '.join(state.sources)} from "
            f"{state.cursor.position}"
        )

    def step(self, text: str) -> None:
        self._context.log.info(text)

    def operation_progressed(self, state: Operation, progress: Progress) -> None:
        now_s = time.monotonic()
        rows = sum(table.rows for table in progress.tables.values())
        if self._rows_before < 0:
            self._rows_before, self._began_s = rows, now_s
        is_done = all(
            name in progress.tables and progress.tables[name].is_done for name in state.sources
        )
        if not is_done and now_s - self._observed_s < _OBSERVED_EVERY_S:
            return
        self._observed_s = now_s
        seconds = now_s - self._began_s
        for name, table in progress.tables.items():
            estimated = state.rows_estimated.get(name, 0)
            self._context.log_event(
                dg.AssetObservation(
                    self._asset_key,
                    partition=dagster_name(name),
                    description=f"{name}: {table.rows:,} rows read"
                    + ("" if table.is_done else " so far"),
                    metadata={
                        "operation_id": state.operation_id,
                        "rows_read": table.rows,
                        "chunks": str(table.chunks),
                        "rows_estimated": estimated,
                        "percent": 100.0
                        if table.is_done
                        else min(99.0, 100 * table.rows / max(estimated, 1)),
                        "rows_per_s": round((rows - self._rows_before) / seconds, 1)
                        if seconds > 0
                        else 0.0,
                    },
                )
            )
