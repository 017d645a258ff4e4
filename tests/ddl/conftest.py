"""The fast Spark session and configurations of tests/pipeline."""

from tests.pipeline.conftest import make_config, spark

__all__ = ["make_config", "spark"]
