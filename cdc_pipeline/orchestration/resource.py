"""The resource that an asset's body captures with: ``yield from cdc.run(context)``.

Rules:
- It holds names of variables and no value, so that Dagster's pages, run configurations and events
  cannot have one. `EnvVar` becomes a reference such as ``${NAME}``, as in a pipeline's file.
- Variables are looked up when a run resolves its pipeline.
"""

# No postponed annotations in this module: Dagster looks at the annotations of a body, which `run`
# is by default, and refuses them as text.
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.references import VARIABLE, Variables
from cdc_pipeline.errors import ConfigError
from cdc_pipeline.orchestration.assets.capture_asset import current_step


class CdcResource(dg.ConfigurableResource[Any]):
    """Captures a source inside the body of `cdc_assets`."""

    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Variable of the pipelines' YAML -> the process's variable that has its value, "
        "as EnvVar or ${NAME}. They come before the process's variables of the same name.",
    )

    def __init__(self, *, environment: Mapping[str, str] | None = None, **more: Any) -> None:
        # Not a validator: Dagster puts an EnvVar back after validation.
        named = {name: _reference(name, given) for name, given in (environment or {}).items()}
        super().__init__(environment=named, **more)

    def run(self, context: dg.AssetExecutionContext) -> Iterator[Any]:  # noqa: ARG002
        """Capture what the run selects; events are logged as they happen, and what other steps of
        the run wait for is yielded."""
        step = current_step()
        if step is None:
            raise ConfigError(
                "cdc.run(context) was called outside the assets of a pipeline",
                expected="the body of a function that is decorated with @cdc_assets",
                next_step="decorate the function with @cdc_assets(config=...)",
            )
        yield from step.run(dg.AssetExecutionContext.get(), self.variables())

    def variables(self) -> Variables:
        """Return the variables, each looked up when it is asked for."""
        names = {
            name: match[1]
            for name, given in self.environment.items()
            if (match := VARIABLE.fullmatch(given))
        }
        lookups = {name: partial(os.environ.get, of) for name, of in names.items()}
        return Variables(lookups, names=names)


def _reference(name: str, given: object) -> str:
    """Raises ConfigError if it is no variable, but perhaps the value itself."""
    text = f"${{{given.env_var_name}}}" if isinstance(given, dg.EnvVar) else given
    if not isinstance(text, str) or not VARIABLE.fullmatch(text):
        raise ConfigError(
            f"CdcResource cannot take a value for {name}: Dagster would store and show it",
            expected="the name of the process's variable that has it",
            got="something else",
            next_step=f'write environment={{"{name}": EnvVar("NAME")}}',
        )
    return text
