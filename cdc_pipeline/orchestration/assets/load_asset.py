"""First loads and reloads as an asset whose partitions are the source's tables.

Rules:
- A backfill of several partitions is one run: their tables are loaded together and enter the lake
  at one cut. The same holds for *Materialize* in the launchpad.
- It takes no slot of the source's pool, so captures continue meanwhile. The lake's lock protects
  both (K16: one writer at a time); the load takes it only for its captures and the swap.
- What it publishes is logged like a capture's batches: the changed tables, then the cursor, both
  without a partition. Each loaded table is also logged as a partition of this asset, before the
  table itself, which comes from it (`recorder.py`); the figures of its load are an observation.
- Only live servers have such an asset: archived journals cannot be queried for tables.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.storage.file_failures import files_failing
from cdc_pipeline.orchestration.assets.load_observer import LoadRecorder
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
from cdc_pipeline.orchestration.dead_runs import tag_process
from cdc_pipeline.orchestration.events.failures import resolved, unexpected
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.metadata import shown
from cdc_pipeline.orchestration.names import dagster_name, plain_name
from cdc_pipeline.orchestration.translator import ROLE_TAG, SOURCE_TAG, CdcTranslator
from cdc_pipeline.pipeline.load.report import LoadedTarget, LoadReport
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.targets.known_tables import known_tables, newest_cut
from cdc_pipeline.position.cursor import CursorStore


class Load(Protocol):
    """As `cdc_pipeline.pipeline.load.load.load`, as far as it is used here."""

    def __call__(
        self,
        config: PipelineConfig,
        *,
        cursors: CursorStore,
        tables: Sequence[str] | None = None,
        restart: bool = False,
        observer: RunObserver | None = None,
        run_id: str = "",
    ) -> LoadReport: ...


class LoadRunConfig(dg.Config):
    """What a person may set for one load."""

    restart: bool = Field(
        default=False,
        description=(
            "true: start again and discard what an earlier snapshot of these tables has read. "
            "false: continue an unfinished snapshot."
        ),
    )


def _load_step_name(source: str) -> str:
    return f"snapshot_{source}"


def build_load(
    pipeline: PipelineConfig, *, translator: CdcTranslator, load: Load | None = None
) -> dg.AssetsDefinition | None:
    """None if the source is an archive or none of its tables is known yet."""
    sources = loadable(pipeline)
    if not sources:
        return None
    key = translator.snapshot_key(pipeline.name)
    spec = dg.AssetSpec(
        key,
        deps=[translator.source_table_key(pipeline.name, table) for table in sources],
        description=(
            f"Tables of {pipeline.name}, loaded completely from the server's rows: one "
            "partition per table. Materialize partitions to load or reload tables; the lake "
            "keeps the old rows until the new ones are complete."
        ),
        group_name=translator.group_name(pipeline.name),
        kinds={translator.source_kind(pipeline, newest_cut(pipeline)), "deltalake"},
        owners=translator.owners(pipeline, None),
        skippable=True,
        partitions_def=dg.StaticPartitionsDefinition([dagster_name(table) for table in sources]),
        tags={SOURCE_TAG: pipeline.name, ROLE_TAG: "snapshot"},
    )

    @dg.op(
        name=_load_step_name(pipeline.name),
        description=(
            f"Loads the tables of {pipeline.name} that the run's partitions name. `restart: "
            "true` starts again instead of continuing an unfinished run of the same tables."
        ),
        ins={f"table_{number}": dg.In(dg.Nothing) for number in range(len(sources))},
        out={"snapshot": dg.Out(dg.Nothing, is_required=False)},
    )
    def load_step(config: LoadRunConfig) -> Iterator[Any]:
        asset_context = dg.AssetExecutionContext.get()
        _run(
            asset_context,
            resolved(pipeline),
            translator=translator,
            tables=sorted(map(plain_name, asset_context.partition_keys)),
            restart=config.restart,
            load=load,
        )
        yield from ()

    return dg.AssetsDefinition(
        node_def=load_step,
        keys_by_input_name={
            f"table_{number}": translator.source_table_key(pipeline.name, table)
            for number, table in enumerate(sources)
        },
        keys_by_output_name={"snapshot": key},
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )


def load_description(source: str) -> str:
    """Shown as Markdown."""
    return (
        f"Loads or reloads tables of {source}: choose the tables as partitions. All other "
        "tables stay in sync."
    )


def loadable(pipeline: PipelineConfig) -> list[str]:
    """The known source tables that a load can read, sorted."""
    if not isinstance(pipeline.source, LiveSourceConfig):
        return []
    of_targets = known_tables(pipeline, newest_cut(pipeline)).values()
    names = {source for sources in of_targets for source in sources}
    return sorted(names)


def _run(
    context: dg.AssetExecutionContext,
    pipeline: PipelineConfig,
    *,
    translator: CdcTranslator,
    tables: list[str],
    restart: bool,
    load: Load | None,
) -> None:
    tag_process(context.instance, context.run)
    recorder = MaterializationRecorder(context, pipeline, translator=translator)
    if load is None:
        from cdc_pipeline.pipeline.load.load import load as real_load

        load = real_load
    context.log.info(f"loads {', '.join(tables)}")
    try:
        with files_failing(pipeline.sink.lake_path):
            report = load(
                pipeline,
                cursors=DagsterCursorStore(
                    context.instance,
                    asset_key=translator.cursor_key(pipeline.name),
                    source=pipeline.name,
                    writer=recorder.write_cursor,
                ),
                tables=tables,
                restart=restart,
                observer=LoadRecorder(
                    context, recorder, asset_key=translator.snapshot_key(pipeline.name)
                ),
                run_id=context.run.run_id,
            )
    except CdcError as error:
        metadata = {
            name: v if isinstance(v, int | bool) else str(v) for name, v in error.as_dict().items()
        }
        raise dg.Failure(
            description=str(error), metadata=metadata, allow_retries=error.retryable
        ) from error
    except Exception as error:
        raise unexpected(error) from None
    wanted = set(tables)
    for target, loaded in report.targets.items():
        for table in sorted(wanted.intersection(loaded.sources)):
            context.log_event(
                dg.AssetObservation(
                    translator.snapshot_key(pipeline.name),
                    partition=dagster_name(table),
                    description=f"cut {loaded.cut}: {loaded.rows:,} rows of {target}",
                    metadata=_metadata(target, loaded),
                )
            )
    context.log.info(report.reason)


def _metadata(target: str, loaded: LoadedTarget) -> dict[str, Any]:
    figures = loaded.model_dump(exclude={"sources", "low", "high"})
    return {
        "target": target,
        **{name: shown(name, value) for name, value in figures.items()},
        "rows_stand_for": str(loaded.low),
        "read_until": str(loaded.high),
    }
