"""Stand-in definitions for a source whose own cannot be built: they show the error (K20).

Rules:
- The asset has the cursor's key and the job has the capture's name, so a project's own schedule, or
  a person who looks for the source, finds the error. Running either fails with that error. Nothing
  else of the source is defined.
- The error is the one raised while loading: reload the definitions to try again.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from pathlib import Path

import dagster as dg

from cdc_pipeline.errors import CdcError
from cdc_pipeline.orchestration.names import identifier, markdown
from cdc_pipeline.orchestration.translator import ROLE_TAG, SOURCE_TAG, CdcTranslator, run_tags


def build_broken(
    file: Path, error: Exception, *, name: str, translator: CdcTranslator
) -> dg.Definitions:
    """Both name the error of the source in `file`, and fail with it."""
    source = identifier(name)
    text = str(error) if isinstance(error, CdcError) else f"{type(error).__name__}: {error}"
    description = (
        f"**The definitions of {markdown(str(file))} cannot be loaded:**\n\n{markdown(text)}"
    )
    key = translator.cursor_key(source)
    spec = dg.AssetSpec(
        key,
        description=description,
        group_name=translator.group_name(source),
        kinds={"cdc"},
        tags={SOURCE_TAG: source, ROLE_TAG: "broken"},
        skippable=True,
    )

    @dg.op(
        name=f"broken_{source}",
        description=description,
        out={"cursor": dg.Out(dg.Nothing, is_required=False)},
    )
    def broken_step() -> None:
        raise dg.Failure(
            description=f"{text}\n  then: reload the code location, so that the definitions "
            "are loaded again",
            allow_retries=False,
        )

    asset = dg.AssetsDefinition(
        node_def=broken_step, keys_by_output_name={"cursor": key}, specs=[spec]
    )
    job = dg.define_asset_job(
        translator.job_name(source),
        selection=dg.AssetSelection.assets(asset),
        description=description,
        executor_def=dg.in_process_executor,
        tags=run_tags(source, "capture"),
    )
    return dg.Definitions(assets=[asset], jobs=[job])
