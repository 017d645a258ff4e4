"""Every version of every row: SCD type 2, as Spark's AUTO CDC keeps it (K10, K11).

Table: the source's columns, ``__START_AT`` and ``__END_AT`` (`seq` of the change that began the
version and of the one that ended it; NULL in the current version), ``_cdc_end_ts`` (when it ended,
at the source), and ``_cdc_op``, ``_cdc_seq``, ``_cdc_ts`` of the last change that set the version's
values.

Rules:
- A version ends at the `seq` of the next change of its key that begins another, or of the delete.
- A change whose tracked columns are as in the current version begins none: it changes that version
  in place. If no columns are named, all are tracked.
- A key update ends the version of the old key and begins one of the new key.
- A change of a key without a current version begins one; a delete of it does nothing.
- One MERGE per batch, which reads only the target's current versions of changed keys.
- After a snapshot the old versions hold up to the snapshot's place, and the loaded ones from there
  on. A version that is open there continues if the loaded one that begins there equals it in its
  tracked columns, and ends otherwise; versions that began later come from the loaded ones. So the
  intervals of a key never overlap, and closed versions stay.
"""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.mode_columns import (
    END_COLUMN,
    END_TS_COLUMN,
    OP_COLUMN,
    RESCUED_COLUMN,
    SEQ_COLUMN,
    START_COLUMN,
    TS_COLUMN,
)
from cdc_pipeline.sink.modes.reduce import (
    ENDS,
    THERE,
    UPSERTS,
    Layout,
    StagedFiles,
    differs,
    kept_operation,
    make_events,
    operation,
)
from cdc_pipeline.sink.modes.replaced import ReplacedRows, moment
from cdc_pipeline.sink.modes.rescue import comparable
from cdc_pipeline.sink.modes.sink_mode import SinkMode
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, table_at


class History(SinkMode):
    def batch_sql(self, staged: StagedFiles) -> str:
        return _merge_sql(staged)

    def truncate_sql(
        self, path: Path, target: RecordedTarget, *, seq: int, ts_us: int, transaction: str
    ) -> str:
        return (
            f"UPDATE {table_at(path)} SET {END_COLUMN} = {seq_literal(seq)}, "
            f"{END_TS_COLUMN} = timestamp_micros({ts_us}) WHERE {END_COLUMN} IS NULL"
        )

    def replaced_sql(self, rows: ReplacedRows) -> str:
        place, following = rows.place
        rows.session.sql(
            f"SELECT * FROM there WHERE {START_COLUMN} < {place} AND ({END_COLUMN} IS NULL OR "
            f"{END_COLUMN} >= {place})"
        ).createOrReplaceTempView("open")
        begins = f"s.{START_COLUMN} >= {place} AND s.{START_COLUMN} < {following}"
        tracked = _differs_from_there(rows, _tracked(rows))
        all_values = _differs_from_there(rows, _compared(rows))
        goes_on = f"({begins} AND t.{START_COLUMN} IS NOT NULL AND NOT ({tracked}))"
        untouched = f"({goes_on} AND s.{SEQ_COLUMN} = s.{START_COLUMN} AND NOT ({all_values}))"
        taken = {
            START_COLUMN: goes_on,
            OP_COLUMN: untouched,
            SEQ_COLUMN: untouched,
            TS_COLUMN: untouched,
        }
        ended_rows = [
            f"IF({taken[name]}, t.{quoted(name)}, s.{quoted(name)}) AS {quoted(name)}"
            if name in taken
            else rows.loaded_column(name)
            for name in rows.names
        ]
        ended = {
            END_COLUMN: f"coalesce(s.{START_COLUMN}, {place})",
            END_TS_COLUMN: moment(rows.content.ts_us),
        }
        ends = [f"{ended.get(name, f't.{quoted(name)}')} AS {quoted(name)}" for name in rows.names]
        same = rows.same_key()
        return f"""
            SELECT {rows.all_columns("t")} FROM there AS t WHERE {START_COLUMN} < {place} AND
                {END_COLUMN} < {place}
            UNION ALL SELECT {", ".join(ended_rows)} FROM loaded AS s LEFT JOIN open AS t ON {same}
            UNION ALL SELECT {", ".join(ends)} FROM open AS t LEFT JOIN loaded AS s ON {same} AND
                {begins}
                WHERE s.{START_COLUMN} IS NULL OR {tracked}"""


def _merge_sql(staged: StagedFiles) -> str:
    target, layout = staged.target, Layout(staged.target)
    current = f"t.{END_COLUMN} IS NULL AND {staged.within}"
    make_events(staged, where=current, extra={"_start": START_COLUMN})
    staged.session.sql(_versions_sql(layout)).createOrReplaceTempView("versions")
    values = {
        **{quoted(column.name): f"s.c{at}" for at, column in enumerate(target.spec.columns)},
        START_COLUMN: "s._start_at",
        END_COLUMN: "s._end_at",
        END_TS_COLUMN: "s._end_ts",
        OP_COLUMN: operation("s._op"),
        SEQ_COLUMN: "s._seq",
        TS_COLUMN: "s._ts",
    }
    changed = {**values, OP_COLUMN: kept_operation("s._op")}
    return f"""
        MERGE INTO {table_at(staged.path)} AS t USING versions AS s ON s._is_there AND
            {layout.same_key} AND {current}
        WHEN MATCHED THEN UPDATE SET
            {", ".join(f"t.{name} = {value}" for name, value in changed.items())}
        WHEN NOT MATCHED AND NOT s._is_there THEN
            INSERT ({", ".join(values)}) VALUES ({", ".join(values.values())})"""


def _versions_sql(layout: Layout) -> str:
    """Those that the batch begins, and those of the target that it changes (`_is_there`)."""
    window = f"(PARTITION BY {', '.join(layout.keys)} ORDER BY _seq)"
    so_far = f"{window[:-1]} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    names = [column.name for column in layout.target.spec.columns]
    named = layout.target.spec.track
    positions = [names.index(name) for name in named] or layout.others
    if named and RESCUED_COLUMN in names:  # a tracked column's rescued text is a value of it
        positions = [*positions, names.index(RESCUED_COLUMN)]
    tracked = [
        comparable(f"c{position}", layout.target.spec.columns[position].delta_type, names=named)
        for position in positions
    ]
    image = f"struct({', '.join(tracked)})" if tracked else "NULL"
    return f"""
        SELECT * FROM (
            SELECT *, last(CASE WHEN _begins THEN coalesce(_start, _seq) END, true) OVER {so_far} AS
                _start_at,
                last(CASE WHEN _begins THEN _op = {THERE} END, true) OVER {so_far} AS _is_there,
                lead(_seq) OVER {window} AS _end_at, lead(_ts) OVER {window} AS _end_ts,
                lead(_op) OVER {window} AS _next, lead(_begins) OVER {window} AS _next_begins
            FROM (
                SELECT *, _op IN {UPSERTS} AND (_previous IS NULL OR _previous IN {ENDS} OR
                    {differs(tracked, image, "_image_before")}) AS _begins
                FROM (SELECT *, lag(_op) OVER {window} AS _previous, lag({image}) OVER {window} AS
                    _image_before
                    FROM events)))
        WHERE _op IN {UPSERTS} AND (_next IS NULL OR _next IN {ENDS} OR _next_begins)
            AND NOT (_op = {THERE} AND _next IS NULL)"""


# -- which loaded version continues an old one -----------------------------------------------------


def _compared(rows: ReplacedRows) -> list[str]:
    left_out = {*rows.target.spec.key, *rows.content.carried}
    return [column.name for column in rows.target.spec.columns if column.name not in left_out]


def _tracked(rows: ReplacedRows) -> list[str]:
    named = [name for name in _compared(rows) if name in rows.target.spec.track]
    if not named:
        return _compared(rows)
    return [*named, RESCUED_COLUMN] if RESCUED_COLUMN in rows.types else named


def _differs_from_there(rows: ReplacedRows, names: list[str]) -> str:
    entries = [name for name in names if name != RESCUED_COLUMN] if rows.target.spec.track else []
    pairs = [
        [comparable(f"{alias}.{quoted(name)}", rows.types[name], names=entries) for alias in "st"]
        for name in names
    ]
    return " OR ".join(f"NOT ({loaded} <=> {there})" for loaded, there in pairs) or "false"
