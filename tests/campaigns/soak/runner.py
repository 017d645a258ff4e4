"""A process that runs a source, for hours or once.

``python -m tests.campaigns.soak.runner`` reads one JSON object a line from its standard input, does
what it says through the public API or the module behind a command, and answers with one line:
``{"do": "capture", "config": FILE}`` -> ``{"ok": true, ...}``. With an argument it does that alone
and ends; a fault point in it (``point``, ``occurrence``) kills the process there.

Everything that a library prints goes to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cdc_pipeline
from cdc_pipeline.config.pipeline_config import MaintenanceConfig, PipelineConfig
from cdc_pipeline.errors import CdcError
from cdc_pipeline.fault_points import listening
from cdc_pipeline.operations.snapshot.snapshot import take_snapshot
from cdc_pipeline.operations.verify.read import VerifyOptions
from cdc_pipeline.operations.verify.verify import verify
from cdc_pipeline.run.wiring import build_lake_cursors
from cdc_pipeline.sink.maintain.maintenance import maintain
from cdc_pipeline.sink.read.cuts import paths_of
from tests.campaigns.soak.measures import inside
from tests.support.kills import AtPoint, sigkill

Answer = dict[str, Any]


def _capture(config: PipelineConfig, wish: Answer) -> Answer:
    report = cdc_pipeline.capture(config, tables=wish.get("tables"))
    interval = report.interval
    return {
        "outcome": report.outcome,
        "batches": report.batches,
        "transactions": interval.transactions_applied,
        "recovered": report.recovered_batch is not None,
    }


def _load(config: PipelineConfig, wish: Answer) -> Answer:
    report = take_snapshot(config, cursors=build_lake_cursors(config), tables=wish.get("tables"))
    return {"outcome": report.outcome, "targets": sorted(report.targets), "rows": report.rows}


def _verify(config: PipelineConfig, wish: Answer) -> Answer:
    options = VerifyOptions(tables=tuple(wish.get("tables") or ()))
    report = verify(config, cursors=build_lake_cursors(config), options=options)
    return {
        "statuses": {name: table.status for name, table in report.tables.items()},
        "reasons": {
            name: f"{table.reason} {table.counts} {table.differences[:3]}"
            for name, table in report.tables.items()
            if table.status != "equal"
        },
    }


def _maintain(config: PipelineConfig, wish: Answer) -> Answer:
    report = maintain(
        paths_of(config.sink.lake_path, config.name),
        config.sink,
        config.maintenance or MaintenanceConfig(),
        tables=wish.get("tables"),
    )
    return {
        "optimized": sum(table.optimized for table in report.tables),
        "vacuumed": sum(bool(table.vacuum) for table in report.tables),
        "cuts_removed": report.cuts_removed,
        "failed": {table.table: table.skipped for table in report.tables if table.failed},
    }


def _measure(_config: PipelineConfig, _wish: Answer) -> Answer:
    return inside()


ACTIONS: dict[str, Callable[[PipelineConfig, Answer], Answer]] = {
    "capture": _capture,
    "load": _load,
    "verify": _verify,
    "maintain": _maintain,
    "measure": _measure,
}


def act(wish: Answer) -> Answer:
    """Do one thing; the answer says what came of it, an error as plain values."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    try:
        text = Path(wish["config"]).read_text(encoding="utf-8")
        config = PipelineConfig.model_validate_json(text)
        answer = {"ok": True, **ACTIONS[wish["do"]](config, wish)}
    except CdcError as error:
        answer = {"ok": False, "error": error.as_dict(), "text": str(error)}
    except Exception:
        answer = {"ok": False, "error": {"code": "raw"}, "text": traceback.format_exc()}
    answer["seconds"] = round(time.monotonic() - began_s, 3)
    answer["cpu_s"] = round(time.process_time() - began_cpu_s, 3)
    return answer


def main(arguments: list[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if arguments:
        wish = json.loads(arguments[0])
        point = wish.get("point", "")
        killing = (
            listening(AtPoint(point, sigkill, wish.get("occurrence", 1)))
            if point
            else nullcontext()
        )
        with killing:
            answers.write(json.dumps(act(wish)) + "\n")
        answers.flush()
        return 0
    for line in sys.stdin:
        answers.write(json.dumps(act(json.loads(line))) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
