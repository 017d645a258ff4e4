"""What Dagster loads: every pipeline of this folder. `workspace.yaml` points here."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.orchestration.definitions import build_definitions

defs = build_definitions(Path(__file__).resolve().parent)
