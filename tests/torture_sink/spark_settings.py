"""Spark as the tests of the whole way have it: a merge of a few rows at half the cost."""

from __future__ import annotations

from tests.pipeline.conftest import SPARK

__all__ = ["SPARK"]
