"""Whole captures of a recorded journal into tables in memory: runs, kills, and faults of one
target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.fault_points import listening
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run import wiring
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.run.report import CaptureReport
from cdc_pipeline.sink.modes.mode_columns import SEQ_COLUMN
from tests.support.kills import AtPoint, Killed, end_run, killed_at
from tests.support.memory_modes import Row
from tests.support.memory_sink import MemoryLake, memory_sink

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@dataclass
class MemoryShop:
    """A pipeline over an archive, and the lake that its runs share. `failing` has the tables
    that fail at the step of `fails_at`.
    """

    config: PipelineConfig
    lake: MemoryLake = field(default_factory=MemoryLake)
    cursors: MemoryCursorStore = field(default_factory=MemoryCursorStore)
    failing: set[str] = field(default_factory=set)

    @property
    def paths(self) -> LakePaths:
        return LakePaths(self.config.sink.lake_path, self.config.name)

    def run(self, transactions: int | None = None, **rest: Any) -> CaptureReport:
        document = self.config.model_dump(exclude_none=True)  # None is a setting of its own in YAML
        if transactions is not None:
            document["bound"] = {"transactions": transactions}
        config = PipelineConfig.model_validate(document)
        sink = memory_sink(self.lake, source=config.name, config=config.sink)
        return capture(config, cursors=self.cursors, sink=sink, **rest)

    def stop_at(self, point: str) -> None:
        """A run that a kill ends at a fault point."""
        with killed_at(point):
            self.run()

    def may_stop_at(self, point: str, transactions: int) -> None:
        """If the run comes to the point."""
        with suppress(Killed), listening(AtPoint(point, end_run)):
            self.run(transactions)

    def fails_at(self, step: str, table: str, error: Callable[[], Exception]) -> None:
        self.failing = {table}

        def fault(name: str, at: str) -> None:
            if name in self.failing and at == step:
                raise error()

        self.lake.fault = fault

    def heal(self) -> None:
        self.failing = set()

    def rows(self, table: str, version: int | None = None) -> list[Row]:
        return self.lake.rows(self.paths.table(table), version)

    def changes(self, table: str) -> list[int]:
        folder = self.paths.table(table)
        return (
            sorted(int(row[SEQ_COLUMN]) for row in self.lake.rows(folder))
            if folder in self.lake.tables
            else []
        )

    def all_changes(self) -> dict[str, list[int]]:
        """Those of every table of the last cut, none of which is suspended."""
        cut = self.last_cut()
        assert cut.cursor.suspended == {}
        return {name: self.changes(name) for name in cut.tables}

    def last_cut(self) -> Cut:
        cut = last_cut(self.paths)
        assert cut is not None
        return cut

    def suspended(self) -> dict[str, str]:
        """The error of each suspended target, by the cursor."""
        assert self.cursors.cursor is not None
        return {name: held.error for name, held in self.cursors.cursor.suspended.items()}

    def take_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Commands, which make their own sinks, use this lake's tables too."""
        monkeypatch.setattr(wiring, "DeltaSink", partial(memory_sink, self.lake))


def archive_at(directory: Path, journal: str = "mysql-common") -> Path:
    directory.mkdir(parents=True)
    (directory / "binlog.000001").write_bytes((GOLDEN / f"{journal}.000001").read_bytes())
    return directory


def memory_shop(
    folder: Path, *, include: list[str], journal: str = "mysql-common", **sections: Any
) -> MemoryShop:
    """A pipeline over a golden journal, with a lake of its own and nothing applied."""
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kind": "archive", "directory": archive_at(folder / "journals", journal)},
            "tables": {"include": include},
            "start": "earliest",
            "sink": {"lake_path": folder / "lake", **sections.pop("sink", {})},
            **sections,
        }
    )
    return MemoryShop(config)
