"""A source's job on a Dagster instance, and what its runs leave there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.orchestration.dead_runs import PROCESS_TAG, process_of
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.runs.execute import LoadedSource
from cdc_pipeline.orchestration.translator import run_tags
from tests.support.fake_capture import FakeCapture
from tests.support.project import Project


def loaded_job(
    project: Project, capture: FakeCapture, source: str = "shop", **options: Any
) -> LoadedSource:
    """The job of a file of the project that runs `capture`; `options`: of `build_definitions`."""
    definitions = build_definitions(project.jobs, capture=capture, retry_wait_s=0, **options)
    job = definitions.resolve_job_def(f"{source}_capture")
    return LoadedSource(source, job, load_config(project.jobs / f"{source}.yaml"))


def last_event(
    instance: dg.DagsterInstance, key: dg.AssetKey | Sequence[str]
) -> dg.AssetMaterialization:
    entry = instance.get_latest_materialization_event(
        key if isinstance(key, dg.AssetKey) else dg.AssetKey(key)
    )
    assert entry is not None
    assert entry.asset_materialization is not None
    return entry.asset_materialization


def stored_run(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def gone_process_of(run_id: str) -> str:
    """The tag of a run whose process is gone."""
    return process_of(run_id).rpartition(" ")[0] + " 1"


def killed_run(instance: dg.DagsterInstance, job: dg.JobDefinition) -> dg.DagsterRun:
    """Of the source shop, as a killed command leaves it."""
    started, tags = dg.DagsterRunStatus.STARTED, run_tags("shop", "capture")
    run = instance.create_run_for_job(job, status=started, tags=tags)
    instance.add_run_tags(run.run_id, {PROCESS_TAG: gone_process_of(run.run_id)})
    return run
