"""Locked sinks on lakes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc_pipeline.config.pipeline_config import SinkConfig, SparkConfig
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.captures import SPARK


@pytest.fixture(scope="session")
def sink_settings() -> SparkConfig:
    """The fast ones of whole captures. A folder that takes others replaces `sink_provider` too."""
    return SparkConfig(**SPARK)


@pytest.fixture(scope="session")
def sink_provider(provider: SparkProvider) -> SparkProvider:
    """A session in the Spark that other tests of this process use too; it ends with the process."""
    return provider


@pytest.fixture
def open_sink(
    tmp_path: Path, sink_provider: SparkProvider, sink_settings: SparkConfig
) -> Iterator[Callable[..., DeltaSink]]:
    """``open_sink(lake=..., source=...)``: a locked sink on a lake below the test's folder."""
    with ExitStack() as stack:

        def start(lake: str = "lake", source: str = "shop", **settings: Any) -> DeltaSink:
            config = SinkConfig(
                lake_path=tmp_path / lake, merge_threads=2, spark=sink_settings, **settings
            )
            sink = DeltaSink(source=source, config=config, spark=sink_provider)
            stack.enter_context(sink.lock())
            return sink

        yield start


@pytest.fixture
def no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaSink:
    """A sink whose session cannot start."""
    config = SinkConfig(lake_path=tmp_path / "lake", spark=SparkConfig())
    sink = DeltaSink(source="shop", config=config)

    def start() -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(sink.spark, "session", start)
    return sink


@pytest.fixture(params=["auto", pytest.param("spark", marks=pytest.mark.whole)])
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines, for `sink`."""
    return str(request.param)


@pytest.fixture
def sink(open_sink: Callable[..., DeltaSink], request: pytest.FixtureRequest) -> DeltaSink:
    uses_engine = "engine" in request.fixturenames
    return open_sink(engine=request.getfixturevalue("engine") if uses_engine else "auto")
