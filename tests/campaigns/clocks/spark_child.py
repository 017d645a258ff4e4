"""A lake on disk, with Spark, whose clock jumps between runs: one line for each step, an exit code.

``python -m tests.campaigns.clocks.spark_child CLOCK_FILE``, started by `sets.play_spark`.

The recorded shop is captured up to its middle, then the clock is 400 days ahead, then 400 days
behind; at each time its tables are also vacuumed. At the end every table must be the
shop's, and what the newest cut names must be readable.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from cdc_pipeline.config.pipeline_config import Bound, PipelineConfig, PositionConfig
from cdc_pipeline.demo import SHOP_DIRECTORY
from cdc_pipeline.demo.verify import differences, read_expected
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.wiring import build_sink
from cdc_pipeline.sink.cursor_table import DeltaCursorStore
from cdc_pipeline.sink.maintain.maintenance import maintain
from tests.servers.preload import MovedClock
from tests.support.captures import SPARK
from tests.support.spark_reader import rows_by_spark

_DAY_S: Final = 86_400
_EAGER: Final = {"vacuum_hours": 0.001, "full_vacuum_days": 0.001}


def main(arguments: list[str]) -> int:
    clock = MovedClock(Path(arguments[0]))
    middle = json.loads((SHOP_DIRECTORY / "recording.json").read_text())["middle"]
    with tempfile.TemporaryDirectory(prefix="cdc-clocks-") as home:
        config = PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": SHOP_DIRECTORY / "journals"},
                "start": "earliest",
                "sink": {"lake_path": Path(home) / "lake", "spark": SPARK},
                "maintenance": _EAGER,
            }
        )
        cursors = DeltaCursorStore(Path(home) / "cursors", source="shop")
        half = PositionConfig(journal=middle["journal"], offset=middle["offset"])
        bounds: tuple[tuple[int, Bound | None], ...] = ((0, half), (400, None), (-400, None))
        for days, bound in bounds:
            clock.move(days * _DAY_S)
            report = capture(config.model_copy(update={"bound": bound}), cursors=cursors)
            assert config.maintenance is not None
            done = maintain(
                LakePaths(config.sink.lake_path, "shop"), config.sink, config.maintenance
            )
            assert not done.failed, done
            told = f"{report.outcome}, {sum(bool(table.vacuum) for table in done.tables)} vacuums"
            print(f"{days:+d} days: {told}", flush=True)
        sink = build_sink(config)
        for file in sorted((SHOP_DIRECTORY / "expected").glob("*.jsonl.gz")):
            header, expected = read_expected(file)
            table = f"shop.{header['table']}"
            columns = [column["name"] for column in header["columns"]]
            found = differences(rows_by_spark(sink, table, *columns), header, expected)
            assert not found, (table, found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
