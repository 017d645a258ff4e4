"""One capture in a process of its own: ``python -m tests.lake.storage.capture_child JOB_FILE
CURSORS [POINT]``.

With a fault point it kills itself there; else it prints, as JSON, the outcome, whether Spark was
needed, and, if something was applied, the rows of the captured tables, read through Spark.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from cdc_pipeline.config.pipeline_config import load_config
from cdc_pipeline.fault_points import listening
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from tests.support.comparison import lake_rows
from tests.support.kills import AtPoint, sigkill
from tests.support.workload import COLUMNS


def main(job: str, cursors: str, point: str = "") -> None:
    config = load_config(Path(job))
    store = DeltaCursorStore(Path(cursors), source=config.name)
    with listening(AtPoint(point, sigkill)) if point else nullcontext():
        report = capture(config, cursors=store)
    told: dict[str, object] = {
        "outcome": report.outcome,
        "spark": "pyspark" in sys.modules,
        "rows": {},
    }
    if report.outcome == "applied":
        from cdc_pipeline.lake.paths import LakePaths
        from cdc_pipeline.sink.spark.session import SparkProvider

        session = SparkProvider.from_config(config.sink).session()
        lake, database = (
            LakePaths(config.sink.lake_path, config.name).lake,
            config.tables.include[0].partition(".")[0],
        )
        told["rows"] = {
            table: repr(lake_rows(session, lake, database, table, columns))
            for table, columns in COLUMNS.items()
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
