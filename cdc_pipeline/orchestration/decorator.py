"""Assets of one pipeline by a decorator: the body is ``yield from cdc.run(context)``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_pipeline.config.pipeline_config import PipelineConfig, read_document
from cdc_pipeline.errors import CdcError
from cdc_pipeline.orchestration.assets.capture_asset import Body, build_assets
from cdc_pipeline.orchestration.broken import build_broken
from cdc_pipeline.orchestration.definitions import (
    build_source,
    is_wanted,
    loads_one_source,
    outline_checked,
)
from cdc_pipeline.orchestration.resource import CdcResource
from cdc_pipeline.orchestration.translator import CdcTranslator

_log = logging.getLogger(__name__)


def cdc_assets(
    *,
    config: PipelineConfig | str | Path,
    name: str | None = None,
    translator: CdcTranslator | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> Callable[[Body], dg.AssetsDefinition]:
    """Make the assets of a pipeline: its Delta tables and its cursor, captured by one step.

    A broken file gives one asset, which shows the error and fails with it.

    Args:
        config: the pipeline, or its YAML file, whose secrets are resolved when a run begins.
        name: name of the step; ``capture_<source>`` by default.
        translator: keys, groups and metadata; `CdcTranslator` by default.
        op_tags: tags of the step.
    """
    translator_used = translator or CdcTranslator()
    source = config.name if isinstance(config, PipelineConfig) else Path(config).stem

    def outline() -> PipelineConfig:
        if isinstance(config, PipelineConfig):
            return config
        return outline_checked(read_document(Path(config)))

    def decorate(body: Body) -> dg.AssetsDefinition:
        file = Path(source if isinstance(config, PipelineConfig) else config)
        if loads_one_source() and is_wanted(source, translator_used):
            # The command line captures without the project's resources.
            build_source(
                outline, name=source, file=file, translator=translator_used, cdc=CdcResource()
            )
        try:
            assets, _ = build_assets(
                outline(), body=body, translator=translator_used, name=name, op_tags=op_tags
            )
        except CdcError as error:
            _log.error("the assets of %s cannot be loaded: %s", file, error)
            broken = build_broken(file, error, name=source, translator=translator_used)
            (stand_in,) = broken.assets or ()
            assert isinstance(stand_in, dg.AssetsDefinition)
            return stand_in
        return assets

    return decorate
