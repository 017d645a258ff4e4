"""Sinks with the fast settings of whole captures, as in `tests/sink/modes`."""

from tests.sink.modes.conftest import sink_provider, sink_settings

__all__ = ["sink_provider", "sink_settings"]
