"""State that a released version wrote is read and continued: records, cuts, staged files, schema
history, cursors, tables, and Dagster's own. `record_state.py` says what an archive holds; there is
one a release.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cdc_pipeline
from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.status import status
from cdc_pipeline.orchestration.runs.execute import load_source, open_instance
from cdc_pipeline.position.cursor import StoredCursor, parse_cursor
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.campaigns.sink.verify import Lake
from tests.golden.record_state import archived, document, finish, rows_of
from tests.servers.installation import FLAVORS

_ARCHIVES = {file.name: file for file in Path(__file__).parent.glob("state-*.tar.xz")}
_TABLES = {"item", "item_soft", "item_history", "item_changelog", "line_changelog"}


@pytest.fixture(params=sorted(_ARCHIVES))
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with tarfile.open(_ARCHIVES[request.param]) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture(params=FLAVORS)
def old(recorded: Path, request: pytest.FixtureRequest) -> PipelineConfig:
    """The pipeline of the older version, with its lake and its cursor."""
    return archived(recorded, request.param)


def _cursors(config: PipelineConfig) -> DeltaCursorStore:
    """That of 0.1.0 is recorded as one JSON document."""
    folder = config.sink.lake_path.parent / "cursors"

    def before() -> StoredCursor | None:
        document = json.loads((folder / "cursor.json").read_text())
        return parse_cursor(json.dumps(document["cursor"]), where="cursor.json")

    return DeltaCursorStore(folder, source=config.name, before=before)


def _golden(config: PipelineConfig) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads((config.sink.lake_path.parent / "rows.json").read_text())
    return rows


def _check_cuts(config: PipelineConfig) -> None:
    golden = _golden(config)
    for cut in Lake(config.sink.lake_path, config.name).cuts():
        if str(cut.batch_number) in golden:
            assert rows_of(config.sink.lake_path, cut) == golden[str(cut.batch_number)]


def test_k3_the_state_of_an_older_version_is_read(old: PipelineConfig) -> None:
    now = status(old, cursors=_cursors(old))
    assert set(now.tables) == {f"shop.{name}" for name in (*_TABLES, "waits", "stops")}
    assert set(now.suspended) == {"shop.stops"}
    assert now.quarantine == {"shop.waits": 1}
    assert [operation.kind for operation in now.operations] == ["snapshot"]
    kept = cdc_pipeline.cuts(old.sink.lake_path, old.name)
    assert [cut.number for cut in kept] == list(range(1, len(kept) + 1))
    assert now.unfinished_batch == len(kept) + 1
    assert _golden(old).keys() == {*(str(cut.number) for cut in kept), "end"}
    _check_cuts(old)


@pytest.mark.spark
@pytest.mark.whole
def test_k2_k3_a_run_finishes_the_batch_of_an_older_version_and_goes_on(
    old: PipelineConfig,
) -> None:
    finish(old, _cursors(old))
    _is_whole(old)


@pytest.mark.spark
@pytest.mark.whole
def test_k3_dagster_goes_on_in_the_home_of_an_older_version(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor is read from the events of the older version's run."""
    old = archived(recorded, "mysql")
    jobs, home = recorded / "jobs", recorded / "mysql"
    jobs.mkdir()
    source = {"kind": "archive", "directory": str(home / "journals")}
    (jobs / "mysql.yaml").write_text(json.dumps(document(home, source=source)))
    monkeypatch.setenv("DAGSTER_HOME", str(recorded / "dagster_home"))
    with open_instance() as instance:
        cursor = load_source(jobs, "mysql").cursors(instance).read()
        runs = instance.get_runs_count()
    assert cursor == _cursors(old).read()
    CliRunner().invoke(cli, ["--jobs", str(jobs), "run", "mysql"])
    with open_instance() as instance:
        now = load_source(jobs, "mysql").cursors(instance).read()
        assert instance.get_runs_count() == runs + 1
    assert now is not None
    assert cursor is not None
    assert now.batch_number > cursor.batch_number
    _is_whole(old)


def _is_whole(config: PipelineConfig) -> None:
    """The older version's cuts are what they were, and the newest is what it would have been."""
    _check_cuts(config)
    cut = Lake(config.sink.lake_path, config.name).cuts()[-1]
    assert rows_of(config.sink.lake_path, cut) == _golden(config)["end"]
    assert set(cut.cursor.suspended) == {"shop.stops"}
