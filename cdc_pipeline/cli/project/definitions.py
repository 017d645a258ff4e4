"""What Dagster loads: every pipeline of this folder. `workspace.yaml` points here."""

from pathlib import Path

from cdc_pipeline import build_definitions

defs = build_definitions(Path(__file__).resolve().parent)
