"""One Spark session, and a lake of its own for each test, with the fast settings of the pipeline's tests."""

from __future__ import annotations

from tests.pipeline.conftest import make_config, spark

__all__ = ["make_config", "spark"]
