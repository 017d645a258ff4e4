"""Sinks with the product's own settings of Spark."""

from __future__ import annotations

import pytest

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.sink.spark.session import SparkProvider


@pytest.fixture(scope="session")
def sink_settings() -> SparkConfig:
    return SparkConfig(master="local[2]", driver_memory="1g")


@pytest.fixture(scope="session")
def sink_provider(sink_settings: SparkConfig) -> SparkProvider:
    return SparkProvider(sink_settings)
