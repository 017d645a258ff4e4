"""The check `follows` of each Delta table: whether it follows its source, or is suspended (K4).

Rules:
- The run that captures evaluates it, without another job: for each table that it changes, for each
  that it finds suspended, and for each that follows again. A table that nothing happens to keeps
  its result.
- Executed by itself, it reads the newest cut and captures nothing.
- A suspended table fails its own check and no other asset's.
"""

from __future__ import annotations

from shlex import quote

import dagster as dg

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.lake.suspensions import is_retryable
from cdc_pipeline.orchestration.metadata import suspended_entry
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.position.cursor import Suspension

FOLLOWS = "follows"


def follows_key(config: PipelineConfig, translator: CdcTranslator, table: str) -> dg.AssetCheckKey:
    return dg.AssetCheckKey(translator.table_key(config.name, table), FOLLOWS)


def follows_evaluation(
    config: PipelineConfig, translator: CdcTranslator, table: str, held: Suspension | None
) -> dg.AssetCheckEvaluation:
    """As a run logs it."""
    return dg.AssetCheckEvaluation(
        asset_key=translator.table_key(config.name, table),
        check_name=FOLLOWS,
        passed=held is None,
        severity=dg.AssetCheckSeverity.ERROR,
        description="follows" if held is None else f"suspended at {held.position}: {held.what}",
        metadata={}
        if held is None
        else suspended_entry(table, held, source=config.name)
        | {"command": command_of(config, table, held)},
    )


def as_result(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """As a check that is executed by itself returns it."""
    return dg.AssetCheckResult(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata=evaluation.metadata,
    )


def command_of(config: PipelineConfig, table: str, held: Suspension) -> str:
    """A catch-up if the cause can pass by itself, else a snapshot, or of an archive a rebuild."""
    if is_retryable(held):
        return f"cdc-pipeline run {config.name} --table {quote(table)}"
    if isinstance(config.source, LiveSourceConfig):
        return f"cdc-pipeline snapshot {config.name} --table {quote(table)}"
    return f"cdc-pipeline backfill {config.name} --table {quote(table)} --rebuild"
