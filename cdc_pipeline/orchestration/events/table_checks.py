"""The checks of each Delta table that a capture evaluates itself, without another job: `follows`,
whether it follows its source, or is suspended (K4); and `proved`, what the rolling proof knows.

Rules:
- `follows`: for each table that a run changes, for each that it finds suspended, and for each that
  follows again. A suspended table fails its own check and no other asset's.
- `proved`: for each table that a run compares, that differs, or whose last whole pass is too old;
  with it comes an observation of the table, whose metadata says how far it is proved. A difference
  fails it; a table that is not proved, or not lately, is a warning.
- A table that nothing happens to keeps its results. Executed by themselves, the checks read what
  the newest run has left, and capture nothing.
"""

from __future__ import annotations

from shlex import quote

import dagster as dg

from cdc_pipeline.clock import now_us, time_of
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import TableProof, proof_file
from cdc_pipeline.lake.suspensions import is_retryable, snapshot_command
from cdc_pipeline.orchestration.metadata import Metadata, suspended_entry
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.position.cursor import Suspension

FOLLOWS = "follows"
PROVED = "proved"


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
        description="follows" if held is None else f"suspended at {held.position}: {held.cause}",
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
        return snapshot_command(config.name, table)
    return f"cdc-pipeline backfill {config.name} --table {quote(table)} --rebuild"


def proof_metadata(proof: TableProof) -> Metadata:
    entries: Metadata = {}
    if proof.proved is not None:
        at = time_of(proof.proved.began_at_us)
        entries["proved_through"] = dg.MetadataValue.text(str(proof.proved.place))
        entries["proved_time"] = dg.MetadataValue.timestamp(at)
    if proof.current is not None:
        entries["pass_rows"] = dg.MetadataValue.int(proof.current.rows)
    return entries


def proved_evaluation(
    config: PipelineConfig, translator: CdcTranslator, table: str, proof: TableProof | None
) -> dg.AssetCheckEvaluation:
    assert config.verify is not None
    differs = proof is not None and proof.differing is not None
    is_proved = proof is not None and not (
        differs or proof.unproved or proof.is_stale(now_us(), config.verify.pass_age_max_s)
    )
    error, warn = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
    return dg.AssetCheckEvaluation(
        asset_key=translator.table_key(config.name, table),
        check_name=PROVED,
        passed=is_proved,
        severity=error if differs else warn,
        description="not begun" if proof is None else proof.summary,
        metadata={} if proof is None else proof_metadata(proof),
    )


def proved_result(
    config: PipelineConfig, translator: CdcTranslator, table: str
) -> dg.AssetCheckResult:
    proofs = proof_file(LakePaths.of(config)).read()
    return as_result(proved_evaluation(config, translator, table, proofs.tables.get(table)))
