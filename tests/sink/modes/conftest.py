"""Sinks with the fast settings of whole captures."""

from __future__ import annotations

import pytest

from cdc_pipeline.config.pipeline_config import SparkConfig
from cdc_pipeline.sink.spark.session import SparkProvider
from tests.support.captures import SPARK


@pytest.fixture(scope="session")
def sink_settings() -> SparkConfig:
    return SparkConfig(**SPARK)


@pytest.fixture(scope="session")
def sink_provider(provider: SparkProvider) -> SparkProvider:
    return provider
