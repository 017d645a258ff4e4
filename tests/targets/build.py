"""Routes and rows for the tests of shaping."""

from __future__ import annotations

from typing import Any

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.targets.routes import Routes
from tests.support.sink_values import column, table_schema

SALT = "a salt that is long enough"
HASH = {"hash": {"salt": SALT}}

PERSON = table_schema(
    "shop.person",
    [
        column("id", Kind.INT32),
        column("Email", Kind.TEXT, charset="utf8mb4"),
        column("amount", Kind.DECIMAL, precision=6, scale=2),
        column("raw", Kind.BINARY),
        column("born", Kind.DATETIME, fraction_digits=0),
    ],
    "id",
)


def config_of(
    *rules: dict[str, Any], lake: str = "/tmp/never-written", include: str = "shop.*"
) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "bank",
            "source": {"kind": "archive", "directory": "logs"},
            "tables": {"include": [include]},
            "targets": list(rules),
            "sink": {"lake_path": lake},
        }
    )


def routes_of(*rules: dict[str, Any]) -> Routes:
    return Routes(config_of(*rules))
