"""Dagster in memory: a run is a third of what it costs on a disk."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
import yaml

from cdc_pipeline.orchestration.runs.execute import open_instance
from tests.support.project import Project


@pytest.fixture
def instance(project: Project) -> Iterator[dg.DagsterInstance]:
    settings = yaml.safe_load((project.home / "dagster.yaml").read_text(encoding="utf-8"))
    with dg.DagsterInstance.ephemeral(str(project.home), settings=settings) as opened:
        yield opened


@pytest.fixture
def disk_instance(project: Project) -> Iterator[dg.DagsterInstance]:
    """The project's own instance, for what commands and other processes see too."""
    with open_instance() as opened:
        yield opened
