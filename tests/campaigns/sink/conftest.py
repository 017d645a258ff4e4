"""Fixtures of the torture of the whole way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import PipelineConfig, SparkConfig
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.campaigns.sink.spark_settings import SPARK
from tests.servers import Server


@pytest.fixture(scope="session")
def spark() -> Any:
    """The session that captures in this process use too; it ends with the process."""
    return SparkProvider(SparkConfig(**SPARK)).session()


@pytest.fixture
def torture_config(tmp_path: Path) -> Callable[..., PipelineConfig]:
    """`torture_config(server, include=[...], start=(journal, offset), **sections)`: a pipeline
    named bank."""

    def make(
        server: Server, *, include: list[str], start: tuple[str, int], **sections: Any
    ) -> PipelineConfig:
        user, password = server.create_replication_user()
        source = {
            "kind": "live",
            "host": server.host,
            "port": server.port,
            "user": user,
            "password": password,
        }
        sink = {"lake_path": tmp_path / "lake", "spark": SPARK, **sections.pop("sink", {})}
        return PipelineConfig.model_validate(
            {
                "name": "bank",
                "source": source,
                "tables": {"include": include},
                "start": {"journal": start[0], "offset": start[1]},
                "sink": sink,
                **sections,
            }
        )

    return make
