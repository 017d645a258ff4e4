"""Erasing rows, and applying masks that came later, as jobs of the launchpad.

Rules:
- Dagster keeps a run's configuration: keys are no part of it, but the name of a file that the run
  reads. What the run keeps is the certificate, which has none.
- An erasure takes the slot of the source's pool, as every change of a moment does; new masks take
  none, as snapshots do.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.orchestration.dead_runs import tag_run
from cdc_pipeline.orchestration.events.failures import failing_step, resolved
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.translator import CdcTranslator, RunKind, job_of, pool_name
from cdc_pipeline.run.observer import OperationRun

if TYPE_CHECKING:
    from cdc_pipeline.lake.erasures import Searched


class _RunConfig(dg.Config):
    table: str = Field(description="The source table, by its present name: schema.table.")
    at_once: bool = Field(default=False, description="Keep no older version and no older cut.")
    reason: str = Field(default="", description="The reason, for the record.")


class EraseRunConfig(_RunConfig):
    """What a person sets for one erasure."""

    keys_file: str = Field(
        description='A file that the code location can read, with one key a line: {"id": "7"}.'
    )
    formerly: list[str] = Field(
        default=[], description="Names that the table had and the schema history has forgotten."
    )
    even_if_present: bool = Field(
        default=False, description="The rows may still be at the source, or it cannot be asked."
    )


class RemaskRunConfig(_RunConfig):
    """What a person sets for new masks of one table."""

    rebuild: bool = Field(
        default=False, description="Read the log from its begin, which keeps the past."
    )
    without_past: bool = Field(default=False, description="Give up what only the lake has.")


def build_erase_jobs(
    pipeline: PipelineConfig, *, translator: CdcTranslator
) -> list[dg.JobDefinition]:
    """That of new masks only if a rule has some."""
    erasing = f"Erases rows of a table of {pipeline.name} for good; its result is the certificate."
    jobs = [_job(pipeline, "erase", erasing, EraseRunConfig, _erase, translator=translator)]
    if any(rule.masks for rule in pipeline.targets):
        masking = f"Applies masks that changed to a table of {pipeline.name}, with a certificate."
        jobs.append(
            _job(pipeline, "remask", masking, RemaskRunConfig, _remask, translator=translator)
        )
    return jobs


def _job(
    pipeline: PipelineConfig,
    kind: RunKind,
    description: str,
    config_class: type[dg.Config],
    work: Callable[[PipelineConfig, dict[str, object], OperationRun], "Searched"],
    *,
    translator: CdcTranslator,
) -> dg.JobDefinition:
    @dg.op(
        name=f"{kind}_{pipeline.name}",
        description=description,
        config_schema=config_class.to_fields_dict(),
        pool=pool_name(pipeline.name) if kind == "erase" else None,
    )
    def step(context: dg.OpExecutionContext) -> None:
        tag_run(context, pipeline.name, kind)
        config = resolved(pipeline)
        recorder = MaterializationRecorder(context, config, translator=translator)
        run_id = context.run_id
        run = OperationRun(cursors=recorder.cursors(), observer=recorder, run_id=run_id)
        with failing_step(config.sink.lake_path):
            asked = {**context.op_config, "who": f"Dagster run {run_id}"}
            asked["why"] = asked.pop("reason")
            done = work(config, asked, run)
        certificate = dg.JsonMetadataValue(done.model_dump(mode="json"))
        context.add_output_metadata({"is_absent": done.is_absent, "certificate": certificate})

    return job_of(step, name=f"{pipeline.name}_{kind}", source=pipeline.name, kind=kind)


# Imported late: definitions are loaded often and need none of this.


def _erase(config: PipelineConfig, asked: dict[str, object], run: OperationRun) -> "Searched":
    from cdc_pipeline.operations.erase import erase as erasing
    from cdc_pipeline.operations.erase.keys import read_keys

    keys = read_keys(Path(str(asked.pop("keys_file"))))
    given = {"keys": keys, "is_known": asked.pop("even_if_present"), **asked}
    return erasing.erase(config, erasing.EraseRequest.model_validate(given), **run)


def _remask(config: PipelineConfig, asked: dict[str, object], run: OperationRun) -> "Searched":
    from cdc_pipeline.operations.erase import remask as remasking

    given = {"from_log": asked.pop("rebuild"), **asked}
    return remasking.remask(config, remasking.RemaskRequest.model_validate(given), **run)
