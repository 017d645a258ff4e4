"""Commands on a lake, one after the other, in a process of its own:
``tests.cluster.child CONFIG CURSORS COMMANDS [POINTS [SIGNAL GROUP]]``, started by `run_child`.

COMMANDS is of snapshot, capture, verify, maintain and backfill (of table `transfer`, from the
journals in `archive` beside the configuration), with commas. At the fault points
(`kills.AtPoint`) it sends a signal to a group of processes; without one, it kills itself there.
Prints as JSON what came of each command, and whether it came to the points.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import MaintenanceConfig, PipelineConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.backfill.backfill import backfill
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.capture.segments.division import Parallel
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.maintain.maintenance import maintain
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.kills import AtPoint, sigkill


def main(
    config_file: str,
    cursor_folder: str,
    commands: str,
    points: str = "",
    signal_name: str = "",
    group: str = "",
) -> int:
    config = PipelineConfig.model_validate_json(Path(config_file).read_text(encoding="utf-8"))
    cursors = DeltaCursorStore(Path(cursor_folder) / config.name, source=config.name)
    told: dict[str, Any] = {"reached": False}

    def act() -> None:
        if not group:
            sigkill()
        told["reached"] = True
        os.killpg(int(group), signal.Signals[signal_name])

    with listening(AtPoint(points, act)) if points else nullcontext():
        for command in commands.split(","):
            told[command] = _run(command, config, cursors, Path(config_file).with_name("archive"))
    print(json.dumps(told))
    return 0


def _run(command: str, config: PipelineConfig, cursors: DeltaCursorStore, archive: Path) -> Any:
    match command:
        case "snapshot":
            return take_snapshot(config, cursors=cursors).outcome
        case "capture":
            return capture(config, cursors=cursors).outcome
        case "verify":
            checked = verify(config, cursors=cursors, options=VerifyOptions())
            return [checked.status, sorted(checked.tables)]
        case "maintain":
            kept = maintain(
                LakePaths(config.sink.lake_path, config.name),
                config.sink,
                MaintenanceConfig(small_files=2),
                spark=SparkProvider.from_config(config.sink),
            )
            return [kept.failed, [table.table for table in kept.tables if table.optimized]]
        case _:
            assert command == "backfill"
            filled = backfill(
                config,
                tables=[table for table in config.tables.include if table.endswith(".transfer")],
                into=f"{str(config.sink.lake_path).rpartition('/')[0]}/side",
                archive=archive,
                parallel=Parallel(stretch_bytes_min=0),
            )
            return [filled.outcome, filled.parallel is not None and filled.parallel.tasks]
