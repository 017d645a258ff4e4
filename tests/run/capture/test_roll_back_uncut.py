"""Real Delta tables that keep every change hold each once, although a batch left them behind after
its commit (K2, K4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.errors import CdcError, MergeError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.state import last_cut
from cdc_pipeline.position.cursor import MemoryCursorStore
from cdc_pipeline.run.capture.capture import capture
from cdc_pipeline.sink.delta_sink import DeltaSink, _DeltaTables
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.captures import SPARK
from tests.support.delta_reader import newest_rows
from tests.support.memory_modes import comparable
from tests.support.memory_shop import MemoryShop, archive_at

pytestmark = pytest.mark.spark

MODES = {
    "shop.pair_changelog": {"tables": ["shop.pair"], "mode": "changelog"},
    "shop.pair_history": {"tables": ["shop.pair"], "mode": "history"},
    "shop.plain": {"tables": ["shop.plain"], "keyless": "row_hash"},
}


class Lake:
    """A pipeline over a recorded journal, into real Delta tables."""

    def __init__(self, folder: Path, provider: SparkProvider) -> None:
        self.provider = provider
        self.cursors = MemoryCursorStore()
        self.config = PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"kind": "archive", "directory": archive_at(folder / "journals")},
                "tables": {"include": ["shop.pair", "shop.plain"]},
                "targets": [*MODES.values(), {"tables": ["shop.pair"]}],
                "batch": {"merge_staged_bytes": 1},
                "sink": {"lake_path": folder / "lake", "spark": SPARK},
            }
        )
        self.paths = LakePaths(self.config.sink.lake_path, "shop")

    def run(self) -> None:
        capture(
            self.config,
            cursors=self.cursors,
            sink=DeltaSink(source="shop", config=self.config.sink, spark=self.provider),
        )

    @property
    def suspended(self) -> set[str]:
        cut = last_cut(self.paths)
        return set() if cut is None else set(cut.cursor.suspended)


def failing(after: dict[str, int]) -> Callable[..., dict[str, CdcError]]:
    """`make_durable` of a disk that refuses a table's files from its `after`-th batch on."""
    seen: dict[str, set[int]] = {table: set() for table in after}
    whole = _DeltaTables.make_durable

    def refuse(self: Any, record: Any, previous: Any, there: Any) -> dict[str, CdcError]:
        failures = whole(self, record, previous, there)
        for table in seen.keys() & set(there):
            seen[table].add(record.batch_number)
            if len(seen[table]) > after[table]:
                failures[table] = MergeError("the files of a table are refused", table=table)
        return failures

    return refuse


@pytest.mark.parametrize(
    ("after", "runs"),
    [
        pytest.param((0, 1, 0), 4, marks=pytest.mark.whole),
        pytest.param((1, 0, 1), 5, marks=pytest.mark.nightly),
    ],
)
def test_k4_a_table_that_was_left_behind_after_its_commit_has_each_change_once(
    tmp_path: Path, provider: SparkProvider, after: tuple[int, ...], runs: int
) -> None:
    """In the batch that creates it, which no cut names, and in a later one; and so again while it
    is caught up. Delta's rows are those of a sound run in memory."""
    lake = Lake(tmp_path, provider)
    with mock.patch.object(
        _DeltaTables, "make_durable", failing(dict(zip(MODES, after, strict=True)))
    ):
        for _ in range(runs):
            with pytest.raises(CdcError):
                lake.run()
    assert lake.suspended == set(MODES)
    lake.run()
    assert lake.suspended == set()
    sink = lake.config.sink.model_copy(update={"lake_path": tmp_path / "sound"})
    sound = MemoryShop(lake.config.model_copy(update={"sink": sink}))
    sound.run()
    for table in MODES:
        found = newest_rows(lake.paths.table(table))
        assert comparable(found) == comparable(sound.rows(table)) != [], table
