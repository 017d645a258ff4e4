"""A source's job on a Dagster instance, and what its runs leave there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.runs.execute import LoadedSource
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
