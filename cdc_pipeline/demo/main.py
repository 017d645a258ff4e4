"""The demo: the main job on the recorded shop, twice, and the proof that the lake is right.

Rules:
- It is the product's own job in a Dagster run: it does nothing that a user's pipeline would not do.
- A second demo resumes, finds nothing to do and starts no JVM: tables are compared once per cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig, load_config
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo.verify import Comparison, compare, read_expected
from cdc_pipeline.errors import CdcError, ConfigError, SinkError
from cdc_pipeline.orchestration.execute import execute_capture, load_source, open_instance
from cdc_pipeline.pipeline.observer import RunObserver
from cdc_pipeline.pipeline.operate.status import SourceStatus, status
from cdc_pipeline.pipeline.report import CaptureReport
from cdc_pipeline.pipeline.wiring import build_sink

SOURCE = "shop"


class TableCheck(BaseModel):
    """Comparison of a table with the server's SELECT."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    table: str
    rows: int
    delta_version: int
    differences: tuple[str, ...]


class DemoReport(BaseModel):
    """What the demo did.

    Attributes:
        runs: the Dagster runs, in order: two the first time, then one that finds nothing.
        checks: every table against the expected rows; () if this cut was compared before.
        verified: whether the tables of the present cut are known to be equal.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    runs: tuple[CaptureReport, ...]
    checks: tuple[TableCheck, ...]
    verified: bool
    status: SourceStatus
    next_step: str


def run(
    jobs_directory: Path, *, observer_of: Callable[[str], RunObserver] | None = None
) -> DemoReport:
    """Run the demo on the project whose jobs are in `jobs_directory`; DAGSTER_HOME names the
    instance.

    Args:
        jobs_directory: holds shop.yaml.
        observer_of: makes an observer for each run, given the run's title.

    Raises:
        CdcError: a run failed, or a table differs from the server's SELECT.
    """
    config = _config(jobs_directory)
    recording = json.loads((SHOP_DIRECTORY / "recording.json").read_text(encoding="utf-8"))
    reports = []
    with open_instance() as instance:
        loaded = load_source(jobs_directory, SOURCE)
        cursors = loaded.cursors(instance)
        for title, bound in _runs(status(config, cursors=cursors), recording):
            observer = observer_of(title) if observer_of is not None else None
            done = execute_capture(loaded, instance=instance, bound=bound, observer=observer)
            if done.error is not None:
                raise done.error
            if done.report is None:
                raise CdcError("the run gave no report", next_step="open the run in `make dev`")
            reports.append(done.report)
        now = status(config, cursors=cursors)
    checks = _checks(config, now)
    differing = [
        f"{check.table}: {'; '.join(check.differences)}" for check in checks if check.differences
    ]
    if differing:
        raise SinkError(
            "tables differ from the server's SELECT:\n  " + "\n  ".join(differing),
            next_step="this is a defect: please report it with this output",
        )
    return DemoReport(
        runs=tuple(reports),
        checks=tuple(checks),
        verified=_marker(config).exists(),
        status=now,
        next_step="`make dev` opens Dagster's UI on this lake; `cdc-pipeline status "
        "shop` shows its state",
    )


def _config(jobs_directory: Path) -> PipelineConfig:
    file = jobs_directory / f"{SOURCE}.yaml"
    if not file.is_file():
        raise ConfigError(
            f"the demo's pipeline {file} does not exist",
            next_step="run the demo in the project's folder, or name its jobs "
            "directory with --jobs",
        )
    return load_config(file)


def _runs(now: SourceStatus, recording: dict[str, Any]) -> list[tuple[str, Bound | None]]:
    """Return titles and bounds of the runs that are due."""
    middle = PositionConfig(
        journal=recording["middle"]["journal"], offset=recording["middle"]["offset"]
    )
    if now.state == "never_run":
        return [
            (f"first run, up to {middle.journal}:{middle.offset}", middle),
            ("second run, to the end", None),
        ]
    return [("run from the cursor to the end", None)]


def _marker(config: PipelineConfig) -> Path:
    return config.sink.lake_path / "_cdc" / config.name / "demo-verified.json"


def _checks(config: PipelineConfig, now: SourceStatus) -> list[TableCheck]:
    """Compare all tables, unless the tables of this cut were compared before."""
    versions = {name: table.delta_version for name, table in now.tables.items()}
    marker = _marker(config)
    if marker.exists() and json.loads(marker.read_text(encoding="utf-8")) == versions:
        return []
    marker.unlink(missing_ok=True)
    sink = build_sink(config)
    checks = []
    for file in sorted((SHOP_DIRECTORY / "expected").glob("*.jsonl.gz")):
        header, expected = read_expected(file)
        table = f"shop.{header['table']}"
        found = _compare(sink, table, header, expected)
        checks.append(
            TableCheck(
                table=table,
                rows=found.rows,
                delta_version=versions.get(table, -1),
                differences=found.differences,
            )
        )
    if not any(check.differences for check in checks):
        marker.write_text(json.dumps(versions), encoding="utf-8")
    return checks


def _compare(sink: Any, table: str, header: dict[str, Any], expected: Any) -> Comparison:
    columns = [column["name"] for column in header["columns"]]
    return compare(table, sink.read_rows(table, *columns), header, expected)
