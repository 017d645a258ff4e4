"""The Dagster door: definitions, the capture asset and the cursor as a materialization.

Rules:
- Loading definitions reads YAML files and one small JSON file of each lake. It opens no database,
  starts no JVM and imports neither pyspark nor numba: the asset's body imports the capture.
- Table events are logged after a batch's cut, and the cursor's event last (K2: publication order).
  So an event that Dagster shows is true even if the step fails right after it.
- Nothing is logged twice: a retry resumes at the cursor, so it publishes only new batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_pipeline.orchestration.cursor_store import DagsterCursorStore
    from cdc_pipeline.orchestration.definitions import build_definitions
    from cdc_pipeline.orchestration.runs.execute import (
        CaptureRun,
        execute_capture,
        load_source,
        open_instance,
    )
    from cdc_pipeline.orchestration.translator import CdcTranslator

_MODULES = {
    "CaptureRun": "runs.execute",
    "CdcTranslator": "translator",
    "DagsterCursorStore": "cursor_store",
    "build_definitions": "definitions",
    "execute_capture": "runs.execute",
    "load_source": "runs.execute",
    "open_instance": "runs.execute",
}

__all__ = [
    "CaptureRun",
    "CdcTranslator",
    "DagsterCursorStore",
    "build_definitions",
    "execute_capture",
    "load_source",
    "open_instance",
]


def __getattr__(name: str) -> Any:
    # Imported late, so that importing the package does not load Dagster.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
