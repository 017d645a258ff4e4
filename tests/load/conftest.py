"""The fixtures of the pipeline's tests."""

from tests.pipeline.conftest import make_config, spark

__all__ = ["make_config", "spark"]
