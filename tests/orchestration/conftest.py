"""A project of the test's own: jobs, lake and an on-disk Dagster instance with the settings that the project ships."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from cdc_pipeline.orchestration import open_instance

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Project:
    """Folders of a project."""

    root: Path

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def home(self) -> Path:
        return self.root / "dagster_home"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    made.jobs.mkdir()
    made.home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", made.home)
    monkeypatch.setenv("DAGSTER_HOME", str(made.home))
    return made


@pytest.fixture
def instance(project: Project) -> Iterator[dg.DagsterInstance]:
    with open_instance() as opened:
        yield opened
