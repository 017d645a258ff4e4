"""The Spark session of the tests of the whole way."""

from tests.pipeline.conftest import spark

__all__ = ["spark"]
