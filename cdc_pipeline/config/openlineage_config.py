"""The `openlineage` section: whether captures send events of OpenLineage, and where to."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cdc_pipeline.config.target_config import Section


class OpenLineageConfig(Section):
    """Events of each capture, for data catalogs. Needs the extra `openlineage`.

    `transport` is the client's own: its `type` and settings. Without it, the client decides by its
    environment variables (OPENLINEAGE_URL) and its file openlineage.yml.
    """

    namespace: str = Field(default="cdc_pipeline", min_length=1)
    transport: dict[str, Any] | None = None
