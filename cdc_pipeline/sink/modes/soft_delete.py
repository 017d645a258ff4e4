"""A mirror that keeps deleted rows, with their last values and ``_cdc_deleted`` = true (K10, K11).

Rules:
- A delete marks the row: ``_cdc_op`` is ``delete``, ``_cdc_seq`` and ``_cdc_ts`` are those of the
  delete. An insert of the same key makes it a live row again. A key update is a delete of the old
  key and an insert of the new one.
- A delete of a key that the target does not have adds a deleted row with the values in the log: the
  table's contents do not depend on where batches end.
- After a snapshot the target has the rows of a snapshot; other rows that were marked stay as they
  are, and other live rows are marked as deleted at the place where the snapshot ends.
"""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.mode_columns import (
    DELETED_COLUMN,
    OP_COLUMN,
    SEQ_COLUMN,
    TS_COLUMN,
)
from cdc_pipeline.sink.modes.reduce import ENDS, StagedFiles, merge_last_sql, operation
from cdc_pipeline.sink.modes.replaced import ReplacedRows, moment
from cdc_pipeline.sink.modes.sink_mode import SinkMode
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, table_at


class SoftDelete(SinkMode):
    stages_deleted_values = True

    def batch_sql(self, staged: StagedFiles) -> str:
        gone = f"s._op IN {ENDS}"
        own = {
            OP_COLUMN: f"CASE WHEN {gone} THEN 'delete' ELSE {operation('s._op')} END",
            DELETED_COLUMN: gone,
        }
        return merge_last_sql(staged, own, removes=False)

    def truncate_sql(
        self, path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str
    ) -> str:
        return (
            f"UPDATE {table_at(path)} SET {DELETED_COLUMN} = true, {OP_COLUMN} = 'delete', "
            f"{SEQ_COLUMN} = {seq_literal(seq)}, {TS_COLUMN} = timestamp_micros({ts_us}) "
            f"WHERE NOT {DELETED_COLUMN}"
        )

    def replaced_sql(self, rows: ReplacedRows) -> str:
        cursor = rows.record.cursor_after
        place = cursor.seq
        marked = {
            OP_COLUMN: "'delete'",
            SEQ_COLUMN: seq_literal(place),
            TS_COLUMN: moment(rows.record.source_time_us, rows.content.ts_us),
            DELETED_COLUMN: "true",
        }
        gone = [
            f"IF(t.{DELETED_COLUMN}, t.{quoted(name)}, {marked[name]}) AS {quoted(name)}"
            if name in marked
            else f"t.{quoted(name)}"
            for name in rows.names
        ]
        return f"""
            {rows.loaded_sql()}
            UNION ALL SELECT {", ".join(gone)} FROM there AS t
                LEFT ANTI JOIN loaded AS s ON {rows.same_key()}"""
