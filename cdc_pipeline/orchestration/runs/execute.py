"""Runs a source's Dagster job in this process; Dagster's pages show it like any other run.

Rules:
- If the project has a ``jobs/definitions.py``, its translator determines the keys, so that the
  command line and Dagster read the same cursor.
- No server and no second process is started: a run that finds nothing new costs little more than
  importing Dagster.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig
from cdc_pipeline.errors import ConfigError, TargetSuspendedError
from cdc_pipeline.orchestration.assets.capture_asset import Listener, listening, step_name
from cdc_pipeline.orchestration.assets.run_config import run_config_of
from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore, cursors_of
from cdc_pipeline.orchestration.dead_runs import PROCESS_TAG, free_dead_runs, process_of
from cdc_pipeline.orchestration.definitions import build_definitions, only_source
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.targets.known_tables import known_of


@dataclass(frozen=True)
class LoadedSource:
    """A source's job and translator, as the project defines them."""

    source: str
    job: dg.JobDefinition
    config: PipelineConfig
    translator: CdcTranslator = field(default_factory=CdcTranslator)

    @property
    def cursor_key(self) -> dg.AssetKey:
        return self.translator.cursor_key(self.source)

    def require_tables(self, tables: Sequence[str]) -> None:
        """Raises ConfigError if a table (``schema.table``) is not known."""
        if not tables:
            return
        known = known_of(self.config).targets
        unknown = [table for table in tables if table not in known]
        if unknown:
            raise ConfigError(
                f"{self.source} has no such table: {', '.join(unknown)}",
                expected=f"one of: {', '.join(known) or 'no table is known before the first run'}",
                next_step="name tables as schema.table; `cdc-pipeline status` lists them",
            )

    def cursors(self, instance: dg.DagsterInstance) -> DagsterCursorStore:
        """For reading only."""
        return cursors_of(instance, self.config, self.translator)


@dataclass(frozen=True)
class CaptureRun:
    """Id in Dagster, and report or error."""

    run_id: str
    succeeded: bool
    report: CaptureReport | None
    error: BaseException | None


def open_instance(home: Path | None = None) -> dg.DagsterInstance:
    """A context manager; ConfigError: no such home, or a wrong dagster.yaml."""
    if home is not None:
        os.environ["DAGSTER_HOME"] = str(home.resolve())
    directory = os.environ.get("DAGSTER_HOME", "")
    if (
        not directory
        or not Path(directory).expanduser().is_absolute()
        or not Path(directory).expanduser().is_dir()
    ):
        raise ConfigError(
            "DAGSTER_HOME does not name Dagster's home directory"
            if directory
            else "Dagster's home directory is unknown",
            setting="DAGSTER_HOME",
            expected="the absolute path of an existing directory, or a folder dagster_home in the "
            "working directory or beside that of --jobs",
            got=directory or "not set",
            next_step='start in the project\'s folder, or: export DAGSTER_HOME="$PWD/dagster_home"',
        )
    log = logging.getLogger("dagster")
    log.addFilter(_is_no_advice)
    try:
        return dg.DagsterInstance.get()
    except dg.DagsterInvalidConfigError as error:
        raise ConfigError(
            f"Dagster's instance in {directory} cannot be opened",
            setting="dagster.yaml",
            got="; ".join(problem.message for problem in error.errors) or str(error),
            next_step="correct dagster.yaml; the one that ships with the project is a good start",
        ) from error
    finally:
        log.removeFilter(_is_no_advice)


def _is_no_advice(record: logging.LogRecord) -> bool:
    """False for its warning about a home without dagster.yaml, which is allowed."""
    return not record.getMessage().startswith("No dagster instance configuration file")


def load_source(jobs_directory: Path, source: str) -> LoadedSource:
    """Only this source's files are read. ConfigError: no such source, or mistakes."""
    with only_source(source) as loading:
        file = jobs_directory / "definitions.py"
        if file.is_file():
            _load_definitions(file)
        else:
            build_definitions(jobs_directory)
    definitions, config = loading.built, loading.config
    if definitions is None or config is None:
        raise ConfigError(
            f"there is no source {source!r} in {jobs_directory}",
            expected=f"a file {source}.yaml in this directory",
            next_step="`cdc-pipeline validate` lists the sources",
        )
    translator = loading.translator or CdcTranslator()
    return LoadedSource(
        source=source,
        job=definitions.resolve_job_def(translator.job_name(source)),
        config=config,
        translator=translator,
    )


def execute_capture(
    loaded: LoadedSource,
    *,
    instance: dg.DagsterInstance,
    bound: Bound | None = None,
    tables: Sequence[str] = (),
    observer: RunObserver | None = None,
    log_level: str = "CRITICAL",
    on_waiting: Callable[[list[str]], None] | None = None,
) -> CaptureRun:
    """Execute the source's job as a run of `instance`, in this process and thread.

    `tables`: catch up only these (K4); without any, the whole source is captured. `on_waiting` is
    also called with the holder of the source's lock.
    """
    loaded.require_tables(tables)
    listener = Listener(observer=observer or RunObserver())
    if on_waiting is not None:
        listener.waits = lambda holder: on_waiting([holder])
    with listening(listener):
        result = execute(
            loaded.job,
            loaded.source,
            instance=instance,
            log_level=log_level,
            on_waiting=on_waiting,
            ops={step_name(loaded.source): {"config": run_config_of(bound, tables)}},
            # The cursor alone stands for the source (see `capture_asset`).
            asset_selection=[loaded.cursor_key],
        )
    error = listener.error
    if isinstance(error, dg.DagsterExecutionInterruptedError):  # its own of a signal
        raise KeyboardInterrupt from error
    if not result.success and error is None:
        error = RuntimeError(_failure_text(result))
    return CaptureRun(
        run_id=result.run_id,
        succeeded=result.success,
        report=listener.report if result.success else None,
        error=error if not result.success or isinstance(error, TargetSuspendedError) else None,
    )


def execute(
    job: dg.JobDefinition,
    source: str,
    *,
    instance: dg.DagsterInstance,
    log_level: str,
    on_waiting: Callable[[list[str]], None] | None,
    ops: Mapping[str, object] | None = None,
    asset_selection: Sequence[dg.AssetKey] | None = None,
) -> dg.ExecuteInProcessResult:
    """In this process and thread; dead runs of the same source are marked failed first, a live one
    is waited for. `log_level`: the lowest that Dagster logs to the console; `on_waiting` is called
    with the ids of the runs that hold the source.
    """
    _, alive = free_dead_runs(instance, source=source)
    if alive and on_waiting is not None:
        on_waiting(alive)
    run_id = str(uuid.uuid4())
    return job.execute_in_process(
        instance=instance,
        run_id=run_id,
        asset_selection=asset_selection,
        raise_on_error=False,
        run_config={"ops": ops or {}, "loggers": {"console": {"config": {"log_level": log_level}}}},
        tags={PROCESS_TAG: process_of(run_id)},
    )


def _load_definitions(file: Path) -> dg.Definitions:
    """Import a Python file with its parent folder on the path, as Dagster does."""
    spec = importlib.util.spec_from_file_location("cdc_pipeline_jobs_definitions", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    definitions = [value for value in vars(module).values() if isinstance(value, dg.Definitions)]
    if len(definitions) != 1:
        raise ConfigError(
            f"{file} cannot be used",
            expected="exactly one Dagster Definitions object",
            got=f"{len(definitions)} of them",
        )
    return definitions[0]


def _failure_text(result: dg.ExecuteInProcessResult) -> str:
    for event in result.all_events:
        data = event.event_specific_data
        serialized = getattr(data, "error", None)
        if event.is_failure and serialized is not None:
            return str(serialized.to_string())
    return "the run failed before the capture started; its page in Dagster shows why"
