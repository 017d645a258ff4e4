"""Locked sinks on lakes of their own, with the fast settings of the pipeline's tests."""

from __future__ import annotations

from tests.modes.conftest import open_sink, spark

__all__ = ["open_sink", "spark"]
