"""A mirror: exactly the rows that the source has (K10, K11).

Rules:
- With a key a batch is reduced to the last row of each key (`sink/modes/reduce.py`), and one MERGE
  applies it. It changes a row only if the change is newer than the row.
- Without a key it has as many equal rows as the source, found by all of their values (K13).
- After a snapshot the target has the rows of a snapshot; columns that the side table lacks come
  from the old row of the same key.

Without a key:
- Every change is a row that goes and a row that comes. Of a batch only the difference counts: equal
  rows that come and go cancel out, so that the order of changes does not matter.
- (``_cdc_seq``, ``_cdc_row_number``) distinguishes a row of the target from its equals: the seq of
  the change that made it, and 0; rows of a snapshot share a seq and are numbered. Nothing derived
  from values is stored, so it stays valid after DDL. Of equal rows the newest goes.
- Images must be complete: the row that goes is identified by all columns (`expand` stops
  otherwise).
- A row that goes but does not exist contradicts the lake: the MERGE fails, unless the target is
  partial (K19).
- Equal means the same bits: -0.0 is not 0.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.modes.mode_columns import (
    OP_COLUMN,
    ROW_NUMBER_COLUMN,
    SEQ_COLUMN,
    TS_COLUMN,
)
from cdc_pipeline.sink.modes.reduce import ENDS, StagedFiles, merge_last_sql, operation
from cdc_pipeline.sink.modes.rescue import exact
from cdc_pipeline.sink.modes.sink_mode import SinkMode
from cdc_pipeline.sink.spark.sql import quoted, table_at, text_literal

if TYPE_CHECKING:
    from cdc_pipeline.sink.modes.replaced import ReplacedRows


class Mirror(SinkMode):
    def batch_sql(self, staged: StagedFiles) -> str:
        if not staged.target.spec.key:
            return _merge_by_values_sql(staged)
        return merge_last_sql(staged, {OP_COLUMN: operation("s._op")}, removes=True)

    def truncate_sql(
        self, path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str
    ) -> str:
        return f"DELETE FROM {table_at(path)}"

    def replaced_sql(self, rows: ReplacedRows) -> str:
        return rows.loaded_sql()


def _merge_by_values_sql(staged: StagedFiles) -> str:
    session, path, target = staged.session, staged.path, staged.target
    schemas = (pq.read_schema(storage_of(file).arrow_source(file)) for file in staged.files)
    there = {name for schema in schemas for name in schema.names}
    if target.spec.shape is not None:
        names = [column.name for column in target.spec.columns]
        there |= {f"c{names.index(column.name)}" for column in target.spec.shape.computed}
    # Columns that the source has dropped and the target keeps do not help to identify a row.
    at = [position for position in range(len(target.spec.columns)) if f"c{position}" in there]
    columns = [target.spec.columns[position] for position in at]
    exacts = [exact(f"c{position}", target.spec.columns[position].delta_type) for position in at]
    listed = ", ".join(
        f"first(c{position}) AS c{position}, {e} AS e{position}"
        for position, e in zip(at, exacts, strict=True)
    )
    session.sql(f"""
        SELECT {listed}, count_if(_op NOT IN {ENDS}) - count_if(_op IN {ENDS}) AS _more,
            sort_array(collect_list(CASE WHEN _op NOT IN {ENDS} THEN struct(_seq, _ts, _op) END),
                false) AS _new
        FROM staged GROUP BY {", ".join(exacts)}""").createOrReplaceTempView("net")
    values = [f"c{position}" for position in at]
    same = " AND ".join(
        f"{exact(f't.{quoted(column.name)}', column.delta_type)} <=> n.e{position}"
        for position, column in zip(at, columns, strict=True)
    )
    rank = f"PARTITION BY {', '.join(f'e{position}' for position in at)}"
    lacking = text_literal(f"{target.table}: the log deletes a row that the table does not hold")
    missing = "_seq IS NOT NULL" if target.partial else f"CAST(raise_error({lacking}) AS boolean)"
    session.sql(f"""
        SELECT false AS _there, _row._seq AS _seq, 0L AS _number, _row._ts AS _ts, _row._op AS _op,
            {", ".join(values)}
        FROM (SELECT *, explode(slice(_new, 1, CAST(_more AS int))) AS _row FROM net WHERE _more >
            0)
        UNION ALL
        SELECT true, _seq, _number, NULL, NULL, {", ".join("NULL" for _ in values)} FROM (
            SELECT *, row_number() OVER ({rank} ORDER BY _seq DESC NULLS LAST, _number DESC) AS
                _rank,
                count(_seq) OVER ({rank}) AS _found
            FROM (SELECT n.*, t.{SEQ_COLUMN} AS _seq, t.{ROW_NUMBER_COLUMN} AS _number
                FROM (SELECT * FROM net WHERE _more < 0) AS n LEFT JOIN {table_at(path)} AS t ON
                    {same}))
        WHERE CASE WHEN _found < - _more THEN {missing} ELSE _rank <= - _more END
        """).createOrReplaceTempView("difference")
    values_of = {
        **{
            quoted(column.name): f"s.c{position}"
            for position, column in zip(at, columns, strict=True)
        },
        OP_COLUMN: operation("s._op"),
        SEQ_COLUMN: "s._seq",
        TS_COLUMN: "s._ts",
        ROW_NUMBER_COLUMN: "s._number",
    }
    return f"""
        MERGE INTO {table_at(path)} AS t USING difference AS s
        ON s._there AND t.{SEQ_COLUMN} = s._seq AND t.{ROW_NUMBER_COLUMN} = s._number
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED AND NOT s._there THEN
            INSERT ({", ".join(values_of)}) VALUES ({", ".join(values_of.values())})"""
