"""The duration that a cut is readable for, as the tables have it."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.config.pipeline_config import SinkConfig
from cdc_pipeline.sink.durable.retention import differing_properties, retention_properties


def test_k15_the_retention_is_set_for_log_and_files() -> None:
    """The log alone would leave a cut with vacuumed files, the files alone an unknown version."""
    config = SinkConfig.model_validate({"lake_path": Path("lake"), "cut_retention": "3 days"})
    text = "interval 259200 seconds"
    wanted = {
        "delta.logRetentionDuration": text,
        "delta.deletedFileRetentionDuration": text,
        "delta.enableExpiredLogCleanup": "false",
    }
    assert retention_properties(config) == wanted
    assert differing_properties(
        config, {**wanted, "delta.logRetentionDuration": "interval 1 days"}
    ) == {"delta.logRetentionDuration": text}
