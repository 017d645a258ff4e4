"""Locked sinks on lakes of their own, with the fast settings of the pipeline's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.captures import SPARK


@pytest.fixture
def open_sink(tmp_path: Path) -> Iterator[Callable[[str], DeltaSink]]:
    """``open_sink(lake)``: a locked sink on a lake below the test's folder."""
    provider = SparkProvider(SparkConfig(**SPARK))
    with ExitStack() as stack:

        def start(lake: str) -> DeltaSink:
            sink = DeltaSink(source="shop", config=SinkConfig(lake_path=tmp_path / lake), spark=provider)
            stack.enter_context(sink.lock())
            return sink

        yield start
