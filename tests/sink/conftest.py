"""One Spark session for all tests of the sink, and sinks on lakes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkProvider]:
    provider = SparkProvider(SparkConfig(master="local[2]", driver_memory="1g"))
    yield provider
    provider.stop()


@pytest.fixture
def open_sink(tmp_path: Path, spark: SparkProvider) -> Iterator[Callable[..., DeltaSink]]:
    """``open_sink(lake=..., source=..., on_joint=...)``: a locked sink on a lake below the test's folder."""
    with ExitStack() as stack:

        def start(lake: str = "lake", source: str = "shop", on_joint: Callable[[str], None] | None = None) -> DeltaSink:
            config = SinkConfig(lake_path=tmp_path / lake, merge_threads=2)
            sink = DeltaSink(source=source, config=config, on_joint=on_joint, spark=spark)
            stack.enter_context(sink.lock())
            return sink

        yield start


@pytest.fixture
def sink(open_sink: Callable[..., DeltaSink]) -> DeltaSink:
    return open_sink()
