"""``python -m cdc_pipeline.cli`` does what the console script does."""

from __future__ import annotations

from cdc_pipeline.cli import main

main()
