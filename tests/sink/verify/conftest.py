"""The Spark session with the fast settings of whole captures."""

from tests.support.captures import spark

__all__ = ["spark"]
