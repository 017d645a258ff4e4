"""The transaction ids under which a batch's DML statements commit, and running one under its id,
unless the table has it (K2).

Rules:
- The id is ``16 * batch + step``; a batch has at most 16 DML statements for a target, in the order
  of their numbers.
- For a statement of Spark the id is a setting of a separate session and is always unset afterwards:
  a second statement under the same id would be skipped silently.

Source: Delta's protocol, "Transaction Identifiers".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.schema.evolution.steps import ROW_STEPS_MAX
from cdc_pipeline.sink.delta.table_log import TableLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS_PER_BATCH: Final = ROW_STEPS_MAX + 1
MERGE_STEP: Final = 0

COMMIT_NOTE: Final = "spark.databricks.delta.commitInfo.userMetadata"
_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"


def transaction_version(batch_number: int, step: int) -> int:
    return STEPS_PER_BATCH * batch_number + step


def run_once(
    session: SparkSession, statement: str, there: TableLog, record: BatchRecord, *, step: int
) -> None:
    version = transaction_version(record.batch_number, step)
    if there.transaction_version >= version:
        return
    with transaction_id(session, there.app_id, version):
        session.sql(statement).collect()


@contextmanager
def transaction_id(session: SparkSession, app_id: str, version: int) -> Iterator[None]:
    session.conf.set(_APP_ID, app_id)
    session.conf.set(_APP_VERSION, str(version))
    try:
        yield
    finally:
        session.conf.unset(_APP_ID)
        session.conf.unset(_APP_VERSION)
