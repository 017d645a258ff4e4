"""What a mode makes of a table's changes: how they are staged, and the one statement that applies a batch (K2, K10).

Mirrors with a key are `expand`, `reduce` and `merge`. Every statement here is run once, under the batch's id.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.evolution.steps import FillColumns
from cdc_pipeline.sink.modes import changelog, history, row_hash, soft_delete
from cdc_pipeline.sink.modes.expand import StagedRows, expand
from cdc_pipeline.sink.modes.mode_columns import BEFORE_COLUMN, is_keyless_mirror, live_rows
from cdc_pipeline.sink.modes.reduce import Layout
from cdc_pipeline.sink.modes.shape import shaped_view
from cdc_pipeline.sink.spark.sql import quoted, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.sink.modes.key_facts import KeyFacts
    from cdc_pipeline.sink.modes.target_plan import TargetPlan


def staged_rows(rows: DecodedRows, plan: TargetPlan, transactions: pa.Array | None) -> StagedRows:
    """n changes of one table as a target of the plan's mode stages them.

    Args:
        transactions: strings (n,), the transaction of each change; a changelog needs them.

    Raises:
        StagingError: the rows do not fit the target.
    """
    columns = tuple(column.name for column in plan.columns)
    if plan.mode == "changelog":
        assert transactions is not None
        return changelog.expand_changes(rows, columns=columns, transactions=transactions)
    return expand(
        rows,
        columns=columns,
        key=plan.key,
        before_values=plan.mode == "soft_delete",
        by_values=is_keyless_mirror(plan.mode, plan.key),
    )


def is_plain_mirror(target: RecordedTarget) -> bool:
    """Whether `merge` applies the target's rows by itself."""
    return target.mode == "mirror" and bool(target.key)


def statement(
    session: SparkSession, path: Path, target: RecordedTarget, files: list[Path], key_facts: KeyFacts | None
) -> str:
    """The statement that applies staged files to a target that is no plain mirror; makes views in `session`."""
    schema = changelog.read_schema(target) if target.mode == "changelog" else Layout(target).read_schema()
    frame = session.read.schema(schema).parquet(*[str(file) for file in files])
    shaped_view(session, target, frame, "staged")
    if target.mode == "changelog":
        return changelog.append_sql(path, target)
    if key_facts is None:
        return row_hash.merge_sql(session, path, target, files)
    within = "true"
    if key_facts.range is not None:
        within = f"t.{quoted(target.key[0])} BETWEEN {key_facts.range[0]} AND {key_facts.range[1]}"
    equals = "<=>" if key_facts.has_null else "="
    merge_sql = history.merge_sql if target.mode == "history" else soft_delete.merge_sql
    return merge_sql(session, path, target, equals=equals, within=within)


def fill_sql(path: Path, target: RecordedTarget, step: FillColumns) -> str:
    """The UPDATE of a DDL that gives columns new values.

    A default is what the rows have that the source has now; rows that tell of the past keep what they have. What is
    made of other columns holds for all rows, and in a changelog for the rows before a change too.
    """
    live = live_rows(target.mode)
    settings = []
    for name, kind, value in step.values:
        made = f"CAST({value} AS {kind})"
        if live and name in step.defaults:
            made = f"CASE WHEN {live} THEN {made} ELSE {quoted(name)} END"
        settings.append(f"{quoted(name)} = {made}")
    if target.mode == "changelog":
        settings.append(f"{BEFORE_COLUMN} = {changelog.filled_before(target, step)}")
    where = f" WHERE {live}" if live and {name for name, _, _ in step.values} <= set(step.defaults) else ""
    return f"UPDATE {table_at(path)} SET {', '.join(settings)}{where}"  # noqa: S608 - names are quoted


def truncate_sql(path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str) -> str:
    """The statement for a TRUNCATE, or a DROP whose target stays: a mirror's rows go, soft-deleted ones are marked,
    current versions end, a changelog gets a row.

    Args:
        seq: place of the statement in the order of all changes.
        ts_us: its time at the source.
        transaction: its GTID, or ``journal:offset``.
    """
    if target.mode == "changelog":
        return changelog.truncate_sql(path, seq=seq, ts_us=ts_us, transaction=transaction)
    if target.mode == "history":
        return history.truncate_sql(path, seq=seq, ts_us=ts_us)
    if target.mode == "soft_delete":
        return soft_delete.truncate_sql(path, seq=seq, ts_us=ts_us)
    return f"DELETE FROM {table_at(path)}"  # noqa: S608 - the path is quoted
