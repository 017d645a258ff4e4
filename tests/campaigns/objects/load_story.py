"""A snapshot of a real server's tables into a lake in a bucket, as `story.py` has captures: a side
lake with a lease of its own, its progress, the swap, and the removal of the side lake."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.operations.snapshot.snapshot import load
from cdc_pipeline.position.cursor import CursorStore
from cdc_pipeline.run import wiring
from tests.campaigns.network.conversations import Shop
from tests.campaigns.objects.bucket_tables import bucket_lake
from tests.campaigns.objects.story import Story, row_values
from tests.support.memory_sink import memory_sink


@dataclass
class LoadStory:
    """The tables of a shop and a pipeline that loads them.

    Attributes:
        captures: of whose lakes the settings are.
    """

    shop: Shop
    captures: Story

    @property
    def lease_s(self) -> float:
        """How long a lease of its lakes lasts."""
        return self.captures.lease_s

    @property
    def folder(self) -> Path:
        """For files of the machine."""
        return self.captures.folder

    def _config(self, lake: str, endpoint: str) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": self.shop.source,
                "tables": {"include": [f"{self.shop.database}.*"]},
                "start": "latest",
                "snapshot": {"chunk_rows": 2},
                "store": self.captures.config(lake, endpoint).store,
                "sink": self.captures.config(lake, endpoint).sink,
            }
        )

    def play(self, lake: str, endpoint: str, cursors: CursorStore) -> None:
        """Load the tables. A later call goes on from what is there."""
        tables = partial(memory_sink, bucket_lake())
        with mock.patch.object(wiring, "DeltaSink", tables):
            load(self._config(lake, endpoint), cursors=cursors)

    def wrong(self, lake: str, endpoint: str, cursors: CursorStore) -> str:
        """What of a lake is not as the server has it; empty if nothing is."""
        config = self._config(lake, endpoint)
        paths, tables = LakePaths(config.sink.lake_path, config.name), bucket_lake()
        for name, rows in self.shop.rows.items():
            if paths.table(name) not in tables.tables:
                return f"{name} is not there"
            if sorted(map(row_values, tables.rows(paths.table(name))), key=repr) != rows:
                return f"{name} has other rows than the server"
        cursor = cursors.read()
        return "" if cursor is not None else "there is no cursor"
