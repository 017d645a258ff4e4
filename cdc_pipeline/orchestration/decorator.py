"""Assets of one pipeline, by a decorator whose body is one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.orchestration.capture_asset import Body, build_assets
from cdc_pipeline.orchestration.translator import CdcTranslator


def cdc_assets(
    *,
    config: PipelineConfig,
    name: str | None = None,
    translator: CdcTranslator | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> Callable[[Body], dg.AssetsDefinition]:
    """Make the assets of a pipeline: its Delta tables and its cursor, captured by one step.

    Args:
        config: the pipeline.
        name: name of the step; ``capture_<source>`` by default.
        translator: keys, groups and metadata; `CdcTranslator` by default.
        op_tags: tags of the step.
    """

    def decorate(body: Body) -> dg.AssetsDefinition:
        assets, _ = build_assets(
            config,
            body=body,
            translator=translator or CdcTranslator(),
            name=name,
            op_tags=op_tags,
        )
        return assets

    return decorate
