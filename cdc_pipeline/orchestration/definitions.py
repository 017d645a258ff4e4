"""Dagster's definitions of all pipelines of a jobs directory.

Rules:
- Loading reads files only (see the package's rules).
- If one source's definitions cannot be built, the others still load: an asset and a job under its
  names show the error and fail with it (`broken.py`). The command line, which loads one source,
  raises the error.
- Each source has one in-process job: its single step needs no separate process, and an idle run
  stays cheap. The definitions have no executor and no resources, so they merge with any others.
- Dagster itself checks crons, time zones and deadlines, by being asked for what the definitions
  will contain. A mistake shows a value as the file writes it: nothing from the environment appears
  (K26).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_pipeline.collector import modules_kept
from cdc_pipeline.config.pipeline_config import (
    PipelineConfig,
    PipelineDocument,
    list_config_files,
    read_document,
)
from cdc_pipeline.errors import CdcError
from cdc_pipeline.orchestration.assets.backfill_asset import build_backfill
from cdc_pipeline.orchestration.assets.capture_asset import (
    Body,
    Capture,
    ObserverFactory,
    build_assets,
    step_name,
)
from cdc_pipeline.orchestration.assets.check_assets import build_checks
from cdc_pipeline.orchestration.assets.snapshot_asset import TakeSnapshot, build_snapshot
from cdc_pipeline.orchestration.broken import build_broken
from cdc_pipeline.orchestration.events.recorder import RowCounter
from cdc_pipeline.orchestration.jobs.erase_job import build_erase_jobs
from cdc_pipeline.orchestration.jobs.growth_sensor import build_growth_sensor
from cdc_pipeline.orchestration.jobs.maintenance_job import build_maintenance
from cdc_pipeline.orchestration.jobs.plan_job import build_plan_job
from cdc_pipeline.orchestration.jobs.schedules import build_check_job, schedule_of
from cdc_pipeline.orchestration.resource import CdcResource
from cdc_pipeline.orchestration.translator import CdcTranslator, RunKind, run_tags
from cdc_pipeline.run.bounds import bound_text
from cdc_pipeline.targets.known_tables import Known, known_of

_log = logging.getLogger(__name__)
_only_source: ContextVar[Loading | None] = ContextVar("cdc_only_source", default=None)


@dataclass
class Loading:
    """The source that `only_source` loads, and the translator that the project passed in.

    `built` holds what `build_definitions` made of the source: its cursor and the job that captures
    it, whatever else the project defines.
    """

    source: str
    translator: CdcTranslator | None = None
    config: PipelineConfig | None = None
    built: dg.Definitions | None = None


@contextmanager
def only_source(source: str) -> Iterator[Loading]:
    """Make `build_definitions` load only this source and its capture inside the block:
    mistakes in other files do not matter, and a thousand tables cost nothing."""
    loading = Loading(source)
    token = _only_source.set(loading)
    try:
        yield loading
    finally:
        _only_source.reset(token)


@modules_kept()
def build_definitions(
    jobs_directory: str | Path,
    *,
    translator: CdcTranslator | None = None,
    resource: CdcResource | None = None,
    observer_factory: ObserverFactory | None = None,
    capture: Capture | None = None,
    take_snapshot: TakeSnapshot | None = None,
    row_counter: RowCounter | None = None,
    retry_wait_s: float = 5,
) -> dg.Definitions:
    """Build assets, jobs and schedules for every YAML file in `jobs_directory`.

    Args:
        translator: keys, groups and metadata; `CdcTranslator` by default.
        resource: captures the pipelines, and may have variables of their YAML.
        observer_factory: makes another observer of each run.
        capture: runs a capture; the pipeline's own by default.
        take_snapshot: takes snapshots; the pipeline's own by default.
        row_counter: counts a table's rows without a JVM; the sink's own by default.
        retry_wait_s: pause before a retry.

    Raises:
        ConfigError: the directory is missing.
        CdcError: inside `only_source`, if that source is wrong; else its stand-in definitions
            show the error.
    """
    translator = translator or CdcTranslator()
    loading = _only_source.get()
    if loading is not None:
        loading.translator = translator
    cdc = resource or CdcResource()
    return dg.Definitions.merge(
        *(
            build_source(
                partial(outline_of, file, cdc),
                name=file.stem,
                file=file,
                translator=translator,
                cdc=cdc,
                capture=capture,
                take_snapshot=take_snapshot,
                observer_factory=observer_factory,
                row_counter=row_counter,
                retry_wait_s=retry_wait_s,
            )
            for file in list_config_files(Path(jobs_directory))
            if loading is None or file.stem == loading.source
        )
    )


def build_source(
    outline: Callable[[], PipelineConfig],
    *,
    name: str,
    file: Path,
    translator: CdcTranslator,
    cdc: CdcResource,
    take_snapshot: TakeSnapshot | None = None,
    **runtime: Any,
) -> dg.Definitions:
    """Build the definitions of one pipeline; a stand-in that shows the error if that fails.

    `outline` returns the pipeline as far as definitions need it; `runtime` is for
    `build_assets`. Inside `only_source` a CdcError is raised.
    """
    loading = _only_source.get()
    try:
        config = outline()
        known = Known() if loading is not None else known_of(config)  # a run needs no tables
        assets, upstream = build_assets(
            config,
            known,
            body=cdc.run,
            translator=translator,
            with_snapshot=True,
            **runtime,
        )
        if loading is not None:
            job = _capture_job(config, assets, translator=translator)
            loading.config = config
            loading.built = dg.Definitions(assets=[assets], jobs=[job])
            return loading.built
        return _of_source(
            config, known, assets, upstream, translator=translator, take_snapshot=take_snapshot
        )
    except Exception as error:
        if loading is not None:
            raise
        is_unexpected = not isinstance(error, CdcError)
        _log.error(
            "the definitions of %s cannot be loaded: %s", file, error, exc_info=is_unexpected
        )
        return build_broken(file, error, name=name, translator=translator)


def cdc_assets(
    *,
    config: PipelineConfig | str | Path,
    name: str | None = None,
    translator: CdcTranslator | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> Callable[[Body], dg.AssetsDefinition]:
    """Make the assets of a pipeline: its Delta tables and its cursor, captured by one step.

    A broken file gives one asset, which shows the error and fails with it.

    Args:
        config: the pipeline, or its YAML file, whose secrets are resolved when a run begins.
        name: name of the step; ``capture_<source>`` by default.
        translator: keys, groups and metadata; `CdcTranslator` by default.
        op_tags: tags of the step.
    """
    translator_used = translator or CdcTranslator()
    source = config.name if isinstance(config, PipelineConfig) else Path(config).stem

    def outline() -> PipelineConfig:
        if isinstance(config, PipelineConfig):
            return config
        return outline_checked(read_document(Path(config)))

    def decorate(body: Body) -> dg.AssetsDefinition:
        file = Path(source if isinstance(config, PipelineConfig) else config)
        if _only_source.get() is not None and is_wanted(source, translator_used):
            # The command line captures without the project's resources.
            build_source(
                outline, name=source, file=file, translator=translator_used, cdc=CdcResource()
            )
        try:
            pipeline = outline()
            assets, _ = build_assets(
                pipeline,
                known_of(pipeline),
                body=body,
                translator=translator_used,
                name=name,
                op_tags=op_tags,
            )
        except CdcError as error:
            _log.error("the assets of %s cannot be loaded: %s", file, error)
            broken = build_broken(file, error, name=source, translator=translator_used)
            (stand_in,) = broken.assets or ()
            assert isinstance(stand_in, dg.AssetsDefinition)
            return stand_in
        return assets

    return decorate


def is_wanted(source: str, translator: CdcTranslator) -> bool:
    """Inside `only_source`, one source alone, whose translator is noted."""
    loading = _only_source.get()
    if loading is None:
        return True
    if loading.source == source:
        loading.translator = translator
    return loading.source == source


def _of_source(
    config: PipelineConfig,
    known: Known,
    capture_assets: dg.AssetsDefinition,
    upstream: list[dg.AssetSpec],
    *,
    translator: CdcTranslator,
    take_snapshot: TakeSnapshot | None,
) -> dg.Definitions:
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [capture_assets, *upstream]
    jobs: list[Any] = [_capture_job(config, capture_assets, translator=translator)]
    schedules = [_schedule(config, translator=translator)]
    operations: dict[RunKind, dg.AssetsDefinition | None] = {
        "snapshot": build_snapshot(
            config, known, translator=translator, take_snapshot=take_snapshot
        ),
        "backfill": build_backfill(config, known, translator=translator),
    }
    for kind, asset in operations.items():
        if asset is None:
            continue
        assets.append(asset)
        is_snapshot = kind == "snapshot"
        job = dg.define_asset_job(
            translator.snapshot_job_name(config.name) if is_snapshot else f"{config.name}_{kind}",
            selection=dg.AssetSelection.assets(asset),
            description=next(iter(asset.specs)).description,
            executor_def=dg.in_process_executor,
            tags=run_tags(config.name, kind),
        )
        jobs.append(job)
    upkeep, upkeep_schedule = build_maintenance(config, translator=translator)
    jobs += [upkeep] if upkeep is not None else []
    schedules.append(upkeep_schedule)
    checks = build_checks(config, known, translator=translator)
    check_job, check_schedule = build_check_job(config, checks)
    jobs.append(build_plan_job(config, translator=translator))
    jobs += build_erase_jobs(config, translator=translator)
    jobs += [check_job] if check_job is not None else []
    schedules.append(check_schedule)
    sensor = build_growth_sensor(config, translator=translator)
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=jobs,
        schedules=[one for one in schedules if one is not None],
        sensors=[sensor] if sensor is not None else [],
    )


def _capture_job(
    config: PipelineConfig, capture_assets: dg.AssetsDefinition, *, translator: CdcTranslator
) -> UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        translator.job_name(config.name),
        selection=dg.AssetSelection.assets(capture_assets).without_checks(),
        description=_job_description(config),
        executor_def=dg.in_process_executor,
        tags=run_tags(config.name, "capture"),
    )


def outline_of(file: Path, cdc: CdcResource) -> PipelineConfig:
    return outline_checked(read_document(file, environment=cdc.variables()))


def outline_checked(document: PipelineDocument) -> PipelineConfig:
    """As definitions need it; ConfigMistakes: all its mistakes but for unset variables."""
    config = document.outline(accepts=accepts)
    for mistake in config.left_out:
        _log.error("%s: a section is left out of Dagster: %s", document.file, mistake)
    return config


def _job_description(config: PipelineConfig) -> str:
    return (
        f"One bounded capture of {config.name}: continues from the cursor, reads the binlog up "
        "to a bound that is fixed when the run is planned, merges each batch into the Delta "
        "tables and then moves the cursor. The next run continues where this one stopped; if "
        "there is nothing new, it changes nothing and says why.\n\n"
        f"A run stops {bound_text(config.bound)}. To stop one run elsewhere, give its step "
        f"`{step_name(config.name)}` another bound in the launchpad: `until`, "
        "`until_transactions`, `until_bytes` or `until_seconds`; `unused_examples` there shows how "
        "each is written. `only_tables` catches suspended tables up and does nothing else."
    )


def _schedule(config: PipelineConfig, *, translator: CdcTranslator) -> dg.ScheduleDefinition | None:
    if config.schedule is None:
        return None
    return schedule_of(
        config.schedule,
        job_name=translator.job_name(config.name),
        tags=run_tags(config.name, "capture"),
        description=f"Captures {config.name}.",
        # The cursor alone stands for the source (see `capture_asset`).
        asset_selection=[translator.cursor_key(config.name)],
    )


def accepts(
    *, cron: str = "@daily", timezone: str = "UTC", lower_bound: timedelta | None = None
) -> bool:
    """Whether Dagster accepts a schedule, its time zone, and a freshness policy's lower bound."""
    try:
        dg.ScheduleDefinition(job_name="check", cron_schedule=cron, execution_timezone=timezone)
        if lower_bound is not None:
            dg.FreshnessPolicy.cron(cron, lower_bound, timezone)
    except Exception:
        return False
    return True
