"""The resource that an asset's body captures with: ``yield from cdc.run(context)``."""

# No postponed annotations in this module: Dagster looks at the annotations of a body, which `run`
# is by default, and refuses them as text.
from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_pipeline.errors import ConfigError
from cdc_pipeline.orchestration.capture_asset import current_step


class CdcResource(dg.ConfigurableResource[Any]):
    """Captures a source inside the body of `cdc_assets`."""

    def run(self, context: dg.AssetExecutionContext) -> Iterator[Any]:  # noqa: ARG002
        """Capture what the run selects. Events are logged as they happen; nothing is yielded.

        Raises:
            ConfigError: called outside the body of `cdc_assets`.
        """
        step = current_step()
        if step is None:
            raise ConfigError(
                "cdc.run(context) was called outside the assets of a pipeline",
                expected="the body of a function that is decorated with @cdc_assets",
                next_step="decorate the function with @cdc_assets(config=...)",
            )
        step.run(dg.AssetExecutionContext.get())
        yield from ()
