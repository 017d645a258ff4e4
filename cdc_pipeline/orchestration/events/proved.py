"""The check `proved` of each Delta table: what the rolling proof knows of it.

Rules:
- A run evaluates it for each table that it compares, that differs, or whose last whole pass is too
  old; with it comes an observation of the table, whose metadata says how far it is proved.
- Executed by itself, it reads what the newest run has left.
- A difference fails it; a table that is not proved, or not lately, is a warning.
"""

from __future__ import annotations

import dagster as dg

from cdc_pipeline.clock import now_us, time_of
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import TableProof, proof_file
from cdc_pipeline.orchestration.events.follows import as_result
from cdc_pipeline.orchestration.metadata import Metadata
from cdc_pipeline.orchestration.translator import CdcTranslator

PROVED = "proved"


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
    proofs = proof_file(LakePaths(config.sink.lake_path, config.name)).read()
    return as_result(proved_evaluation(config, translator, table, proofs.tables.get(table)))
