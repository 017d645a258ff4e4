"""A project of the test's own: jobs, lake and an on-disk Dagster instance with the settings that
the project ships."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import Engine

from cdc_pipeline.orchestration.runs.execute import open_instance
from tests.servers import Server
from tests.support.captures import live

ROOT = Path(__file__).resolve().parents[2]

_NO_COMPUTE_LOGS: Final = """compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""


@dataclass(frozen=True)
class Project:
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


def follow_server(project: Project, server: Server, table: str, **sections: object) -> None:
    """Write the source `shop`, which follows one table of a server from now on."""
    document = {
        "source": live(server),
        "tables": {"include": [table], "allow_empty": True},
        "start": "latest",
        "sink": {"lake_path": str(project.lake)},
        **sections,
    }
    (project.jobs / "shop.yaml").write_text(json.dumps(document))


def write_settings(home: Path) -> None:
    """Those that the project ships, without the capture of a step's output, which starts two
    processes for each step."""
    home.mkdir(exist_ok=True)
    shipped = (ROOT / "dagster_home" / "dagster.yaml").read_text(encoding="utf-8")
    (home / "dagster.yaml").write_text(f"{shipped}\n{_NO_COMPUTE_LOGS}")


@pytest.fixture(scope="session", autouse=True)
def quick_databases() -> Iterator[None]:
    """Of what Dagster does for each of its databases: Alembic reads and orders ninety files once a
    process, and SQLite waits for no disk."""
    read = ScriptDirectory.from_config
    known: dict[str | None, ScriptDirectory] = {}

    def from_config(config: Config) -> ScriptDirectory:
        place = config.config_file_name
        if place not in known:
            known[place] = read(config)
        return known[place]

    def connected(connection: object, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", from_config)
        event.listen(Engine, "connect", connected)
        yield
        event.remove(Engine, "connect", connected)


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home whose databases are made already: that takes longer than most tests."""
    home = tmp_path_factory.mktemp("dagster_home")
    write_settings(home)
    with pytest.MonkeyPatch.context() as patch, open_instance_in(home, patch):
        pass
    return home


@contextmanager
def open_instance_in(home: Path, patch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    patch.setenv("DAGSTER_HOME", str(home))
    with open_instance() as opened:
        assert opened.get_runs_count() == 0
        assert opened.get_asset_keys() == []
        yield opened


@pytest.fixture
def project(tmp_path: Path, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    made.jobs.mkdir()
    shutil.copytree(empty_home, made.home)
    monkeypatch.setenv("DAGSTER_HOME", str(made.home))
    return made


@pytest.fixture
def captured_output(project: Project) -> None:
    """Dagster captures the output of steps, as it does where nothing is configured."""
    settings = project.home / "dagster.yaml"
    settings.write_text(settings.read_text(encoding="utf-8").replace(_NO_COMPUTE_LOGS, ""))


@pytest.fixture
def instance(project: Project) -> Iterator[dg.DagsterInstance]:
    with open_instance() as opened:
        yield opened
