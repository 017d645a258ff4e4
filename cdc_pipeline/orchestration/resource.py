"""The resource that an asset's body captures with: ``yield from cdc.run(context)``.

Rules:
- Variables are looked up when a run resolves its pipeline, and `EnvVar` with them. A value is in no
  representation of the resource, and Dagster's pages mask it.
"""

# No postponed annotations in this module: Dagster looks at the annotations of a body, which `run`
# is by default, and refuses them as text.
from collections.abc import Iterator
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.references import Variables
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.orchestration.capture_asset import current_step


class CdcResource(dg.ConfigurableResource[Any]):
    """Captures a source inside the body of `cdc_assets`."""

    environment: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        json_schema_extra={"dagster__is_secret": True},
        description="Variables of the pipelines' YAML, such as passwords; they come before those "
        "of the process. Give a secret as EnvVar: Dagster stores what is given as a text.",
    )

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
        step.run(dg.AssetExecutionContext.get(), self.variables())
        yield from ()

    def variables(self) -> Variables:
        """Return the variables, each looked up when it is asked for."""
        given = self.environment
        return Variables(
            {name: partial(_value, value) for name, value in given.items()},
            names={
                name: value.env_var_name
                for name, value in given.items()
                if isinstance(value, dg.EnvVar)
            },
        )


def _value(value: str) -> str | None:
    return value.get_value() if isinstance(value, dg.EnvVar) else value
