"""The demo: the main job on the recorded shop, twice, and the proof that the lake is right.

Rules:
- It is the product's own job in a Dagster run, or a capture with the cursor in the lake: it does
  nothing that a user's pipeline would not do.
- A second demo resumes, finds nothing to do and starts no JVM: tables are compared once per cut.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo.verify import differences, read_expected
from cdc_pipeline.errors import SinkError
from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.operations.status import SourceStatus, status
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.read.rows import open_rows, reader_of

_log = logging.getLogger(__name__)

# Of the demo's source, once, up to a bound.
Capture = Callable[[Bound | None, RunObserver], CaptureReport]


class TableCheck(FrozenModel):
    table: str
    rows: int
    delta_version: int
    differences: tuple[str, ...]


class DemoReport(FrozenModel):
    """`runs`: two the first time, then one that finds nothing; `checks`: () if this cut was
    compared before; `verified`: the tables of the present cut are known to be equal.
    """

    runs: tuple[CaptureReport, ...]
    checks: tuple[TableCheck, ...]
    verified: bool
    status: SourceStatus
    next_step: str


def run(
    config: PipelineConfig,
    *,
    cursors: CursorStore,
    capture: Capture,
    next_step: str,
    observer_of: Callable[[str], RunObserver],
) -> DemoReport:
    """Run the pipeline, as a project does, and compare; raises CdcError, too, if tables differ."""
    recording = json.loads((SHOP_DIRECTORY / "recording.json").read_text(encoding="utf-8"))
    reports = [
        capture(bound, observer_of(title))
        for title, bound in _runs(status(config, cursors=cursors), recording)
    ]
    now = status(config, cursors=cursors)
    _log.info("comparing the tables with the server's SELECT")
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
        next_step=next_step,
    )


def _runs(now: SourceStatus, recording: dict[str, Any]) -> list[tuple[str, Bound | None]]:
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
        columns = [column["name"] for column in header["columns"]]
        path, version = sink.paths.table(table), versions.get(table, -1)
        opened = open_rows(path, readable_state(path, version), columns=columns)
        rows = reader_of(table, opened.schema, opened.batches()).read_all()
        checks.append(
            TableCheck(
                table=table,
                rows=rows.num_rows,
                delta_version=version,
                differences=differences(rows, header, expected),
            )
        )
    if not any(check.differences for check in checks):
        marker.write_text(json.dumps(versions), encoding="utf-8")
    return checks
