"""A mirror: exactly the rows that the source has (K10, K11).

Rules:
- With a key a batch is reduced to the last row of each key (`sink/modes/reduce.py`), and one MERGE
  applies it. It changes a row only if the change is newer than the row.
- Without a key rows are found by all of their values (`sink/modes/row_hash.py`).
- After a load the target has the loaded rows; columns that the side table lacks come from the old
  row of the same key.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes import row_hash
from cdc_pipeline.sink.modes.expand import DELETE, INSERT, LEAVE, StagedRows, expand
from cdc_pipeline.sink.modes.mode_columns import (
    CDC_COLUMNS,
    OP_COLUMN,
    ROW_NUMBER_COLUMN,
    SEQ_COLUMN,
    TS_COLUMN,
)
from cdc_pipeline.sink.modes.reduce import Layout, reduced_sql
from cdc_pipeline.sink.modes.sink_mode import SinkMode
from cdc_pipeline.sink.spark.sql import quoted, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.schema.target_spec import TargetSpec
    from cdc_pipeline.sink.modes.key_facts import KeyFacts
    from cdc_pipeline.sink.modes.replaced import ReplacedRows

_KEYLESS: Final = (TargetColumn(name=ROW_NUMBER_COLUMN, delta_type="bigint"),)


class Mirror(SinkMode):
    live_rows = ""
    is_last_image = True

    def own_columns(
        self, columns: tuple[TargetColumn, ...], key: tuple[str, ...]
    ) -> tuple[TargetColumn, ...]:
        return CDC_COLUMNS + (() if key else _KEYLESS)

    def stage(
        self, rows: DecodedRows, spec: TargetSpec, transactions: pa.Array | None
    ) -> StagedRows:
        return expand(
            rows,
            columns=tuple(column.name for column in spec.columns),
            key=spec.key,
            by_values=not spec.key,
        )

    def batch_sql(
        self,
        session: SparkSession,
        path: Path,
        target: RecordedTarget,
        files: list[Path],
        key_facts: KeyFacts | None,
    ) -> str:
        if key_facts is None:
            return row_hash.merge_sql(session, path, target, files)
        session.sql(
            reduced_sql(session, target, target_table=table_at(path))
        ).createOrReplaceTempView("reduced")
        return _merge_sql(path, target, key_facts)

    def truncate_sql(
        self, path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str
    ) -> str:
        return f"DELETE FROM {table_at(path)}"

    def replaced_sql(self, rows: ReplacedRows) -> str:
        return rows.loaded_sql()


def _merge_sql(path: Path, target: RecordedTarget, key_facts: KeyFacts) -> str:
    """NULL in a key equals NULL if the batch has one. The condition also holds the range of the
    batch's keys, so that Delta skips files by their statistics.
    """
    layout = Layout(target)
    same = zip(target.spec.key, layout.keys, strict=True)
    condition = [f"t.{quoted(name)} {key_facts.equals} s.{key}" for name, key in same]
    if key_facts.range is not None:
        condition.append(key_facts.within)
    names = [quoted(column.name) for column in (*target.spec.columns, *CDC_COLUMNS)]
    operation = f"CASE WHEN s._op = {INSERT} THEN 'insert' ELSE 'update' END"
    inserted = [*layout.values, operation, "s._seq", "s._ts"]
    inserted = [value if value.startswith(("s.", "CASE")) else f"s.{value}" for value in inserted]
    updated = []
    for position, column in enumerate(target.spec.columns):
        value = f"s.c{position}"
        if not target.all_present and position in layout.others:
            value = f"CASE WHEN s.p{position} THEN {value} ELSE t.{quoted(column.name)} END"
        updated.append(f"t.{quoted(column.name)} = {value}")
    updated += [
        f"t.{OP_COLUMN} = {operation}",
        f"t.{SEQ_COLUMN} = s._seq",
        f"t.{TS_COLUMN} = s._ts",
    ]
    is_delete = f"s._op IN ({DELETE}, {LEAVE})"
    return f"""
        MERGE INTO {table_at(path)} AS t USING reduced AS s ON {" AND ".join(condition)}
        WHEN MATCHED AND {is_delete} AND s._seq > t.{SEQ_COLUMN} THEN DELETE
        WHEN MATCHED AND s._seq > t.{SEQ_COLUMN} THEN UPDATE SET {", ".join(updated)}
        WHEN NOT MATCHED AND NOT ({is_delete}) THEN INSERT ({", ".join(names)}) VALUES
            ({", ".join(inserted)})"""
