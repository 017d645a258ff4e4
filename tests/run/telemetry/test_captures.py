"""Captures of a real server that write metrics and events of lineage. Without Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, LockError, RuntimeSetupError
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.run.telemetry import lineage
from cdc_pipeline.run.wiring import build_sink
from tests.servers import Server
from tests.support.captures import here, live
from tests.support.open_metrics_grammar import Samples, parse
from tests.support.project import ROOT

pytestmark = pytest.mark.mysql


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "metrics" / "bank.prom", tmp_path / "events.jsonl"


@pytest.fixture
def config(
    mysql_server: Server,
    mysql_database: str,
    make_config: Callable[..., PipelineConfig],
    files: tuple[Path, Path],
) -> PipelineConfig:
    return make_config(
        live(mysql_server),
        include=[f"{mysql_database}.*"],
        start=here(mysql_server),
        metrics=files[0],
        openlineage={
            "namespace": "tests",
            "transport": {"type": "file", "log_file_path": str(files[1]), "append": True},
        },
    )


def _samples(file: Path) -> dict[str, float]:
    """Return samples without the label `source`, as ``name{other labels}``."""
    found: Samples = parse(file.read_text())
    assert all(dict(labels)["source"] == "bank" for _, labels in found)
    return {
        name.removeprefix("cdc_pipeline_")
        + "".join(f" {value}" for label, value in labels if label != "source"): value
        for (name, labels), value in found.items()
    }


def _events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_figures_of_runs_that_succeed_find_nothing_and_fail(
    config: PipelineConfig, files: tuple[Path, Path], mysql_server: Server, mysql_database: str
) -> None:
    cursors, table = MemoryCursorStore(), f"{mysql_database}.orders"
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, note TEXT)")
    mysql_server.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    mysql_server.execute(f"DELETE FROM {table} WHERE id = 3")
    first = capture(config, cursors=cursors)
    seen = _samples(files[0])
    assert seen["lag_seconds"] == 0
    assert seen["unread_bytes"] == 0
    assert 0 < seen["retention_headroom_seconds"] <= 30 * 86_400
    assert seen["suspended_tables"] == 0
    assert seen["last_run_succeeded"] == 1
    assert seen["last_run_seconds"] >= first.seconds
    assert seen["runs_total succeeded"] == 1
    assert seen["batches_total"] == first.batches > 0
    assert seen[f"rows_applied_total {table} inserted"] == 3
    succeeded_s = seen["last_success_timestamp_seconds"]

    capture(config, cursors=cursors)
    idle = _samples(files[0])
    assert idle["runs_total succeeded"] == 2
    assert idle["batches_total"] == first.batches
    assert idle[f"rows_applied_total {table} inserted"] == 3, "counters go on"
    assert idle["last_success_timestamp_seconds"] > succeeded_s

    mysql_server.execute(f"INSERT INTO {table} VALUES (4, 'd')")
    lost = config.model_copy(update={"source": _wrong_flavor(config)})
    with pytest.raises(CdcError):
        capture(lost, cursors=cursors)
    failed = _samples(files[0])
    assert failed["last_run_succeeded"] == 0
    assert (failed["runs_total succeeded"], failed["runs_total failed"]) == (2, 1)
    assert failed["last_success_timestamp_seconds"] == idle["last_success_timestamp_seconds"]
    assert [one.name for one in files[0].parent.iterdir()] == ["bank.prom"], "nothing is left over"


def _wrong_flavor(config: PipelineConfig) -> Any:
    return config.source.model_copy(update={"flavor": "mariadb"})


def test_events_name_the_tables_their_columns_and_what_failed(
    config: PipelineConfig, files: tuple[Path, Path], mysql_server: Server, mysql_database: str
) -> None:
    cursors, table = MemoryCursorStore(), f"{mysql_database}.orders"
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, note TEXT)")
    mysql_server.execute(f"INSERT INTO {table} VALUES (1, 'topsecret')")
    run_id = "0f3c1a52-7f0e-4f0e-8a7e-2c2f5a1b9d10"
    capture(config, cursors=cursors, run_id=run_id)
    start, complete = _events(files[1])
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    for event in (start, complete):
        assert event["run"]["runId"] == run_id
        assert (event["job"]["namespace"], event["job"]["name"]) == ("tests", "bank.capture")
        (given,) = event["inputs"]
        assert given["namespace"] == f"mysql://{mysql_server.host}:{mysql_server.port}"
        assert given["name"] == table
    (made,) = complete["outputs"]
    assert made["namespace"] == "file"
    assert made["name"] == str(config.sink.lake_path.joinpath(*table.split(".")))
    fields = made["facets"]["schema"]["fields"]
    assert [(one["name"], one["type"]) for one in fields] == [("id", "int"), ("note", "string")]
    assert made["outputFacets"]["outputStatistics"]["rowCount"] == 1

    lost = config.model_copy(update={"source": _wrong_flavor(config)})
    with pytest.raises(CdcError) as error:
        capture(lost, cursors=cursors)
    begun, failed = _events(files[1])[2:]
    assert (begun["eventType"], failed["eventType"]) == ("START", "FAIL")
    assert begun["run"]["runId"] == failed["run"]["runId"] != run_id
    assert failed["run"]["facets"]["errorMessage"]["message"] == error.value.what
    text = files[1].read_text()
    assert "topsecret" not in text
    assert config.source.password.get_secret_value() not in text  # type: ignore[union-attr]


class Heard(RunObserver):
    """Notes what it hears of a capture's batches and its end."""

    def __init__(self) -> None:
        self.merges: list[tuple[int, int]] = []
        self.ends: list[object] = []

    def merged(self, tables: int, of: int) -> None:
        self.merges.append((tables, of))

    def ended(self, report: CaptureReport) -> None:
        self.ends.append(report)

    def failed(self, error: BaseException) -> None:
        self.ends.append(error)


def test_an_observer_hears_each_merged_table_and_the_end(
    config: PipelineConfig, mysql_server: Server, mysql_database: str
) -> None:
    for table in ("a", "b"):
        mysql_server.execute(f"CREATE TABLE {mysql_database}.{table} (id INT PRIMARY KEY)")
        mysql_server.execute(f"INSERT INTO {mysql_database}.{table} VALUES (1)")
    cursors, heard = MemoryCursorStore(), Heard()
    report = capture(config, cursors=cursors, observer=heard)
    assert (2, 2) in heard.merges
    assert heard.ends == [report]
    lost = config.model_copy(update={"source": _wrong_flavor(config)})
    with pytest.raises(CdcError) as error:
        capture(lost, cursors=cursors, observer=heard)
    assert heard.ends[1:] == [error.value]


def test_a_capture_that_has_to_wait_writes_nothing(
    config: PipelineConfig, files: tuple[Path, Path]
) -> None:
    with build_sink(config).lock(), pytest.raises(LockError):
        capture(config, cursors=MemoryCursorStore())
    assert not files[0].exists()
    assert not files[1].exists()


def test_what_cannot_be_written_or_sent_fails_no_run(
    config: PipelineConfig, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    files[0].parent.write_text("a file where the folder should be")
    files[1].mkdir()
    with caplog.at_level(logging.WARNING, "cdc_pipeline"):
        assert capture(config, cursors=MemoryCursorStore()).outcome == "nothing_new"
    text = caplog.text
    assert "the metrics of bank are not written" in text
    assert "the START event of bank is not sent" in text


def test_a_client_that_is_missing_or_misconfigured_is_refused_before_the_run(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = config.openlineage.model_copy(update={"transport": {"type": "pigeon"}})  # type: ignore[union-attr]
    with pytest.raises(RuntimeSetupError, match="refuses its transport"):
        capture(config.model_copy(update={"openlineage": wrong}), cursors=MemoryCursorStore())
    monkeypatch.setattr(lineage, "find_spec", lambda _name: None)
    with pytest.raises(RuntimeSetupError, match="not installed") as missing:
        capture(config, cursors=MemoryCursorStore())
    assert "cdc-pipeline[openlineage]" in str(missing.value.next_step)


def test_an_archive_has_no_lag_and_is_one_input(
    make_config: Callable[..., PipelineConfig], files: tuple[Path, Path]
) -> None:
    folder = ROOT / "cdc_pipeline" / "demo" / "shop" / "journals"
    config = make_config(
        {"kind": "archive", "directory": str(folder)},
        include=["nowhere.*"],
        metrics=files[0],
        openlineage={"transport": {"type": "file", "log_file_path": str(files[1]), "append": True}},
    )
    capture(config, cursors=MemoryCursorStore())
    seen = _samples(files[0])
    assert "lag_seconds" not in seen
    assert "retention_headroom_seconds" not in seen
    assert seen["unread_bytes"] == 0
    for event in _events(files[1]):
        assert event["job"]["namespace"] == "cdc_pipeline"
        assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [
            ("file", str(folder))
        ]
