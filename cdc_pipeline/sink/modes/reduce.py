"""Reduce a batch to one row per key, as Spark SQL over the staged rows (K10, K11).

The reduced rows have the staged columns of `expand`: the row of a key is either its delete or its
upsert.

Rules:
- If every image is complete, only the last row of a key, by seq, matters. Inserts alone need not
  even that.
- Otherwise rows are grouped into *lives*. A key's rows fall into segments: one begins with the
  key's first row in the batch, with an insert, an arrival, or after a delete or leave. A segment
  that an arrival without all columns begins is the same life as the segment that it left; links are
  followed to their first segment (`life_roots`).
- Each column of a life has its last *present* value. A column that was never present is NULL if the
  life began in this batch, the target's own value if it began with the target's row of the same
  key, and the value of the target's old row if the key changed.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.sink.modes.expand import ARRIVE, DELETE, INSERT, LEAVE, UPDATE
from cdc_pipeline.sink.spark.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UPSERTS = f"({INSERT}, {UPDATE}, {ARRIVE})"
_ENDS = f"({DELETE}, {LEAVE})"


@dataclass(frozen=True, slots=True)
class Layout:
    target: RecordedTarget

    @property
    def keys(self) -> list[str]:
        names = [column.name for column in self.target.spec.columns]
        return [f"c{names.index(name)}" for name in self.target.spec.key]

    @property
    def values(self) -> list[str]:
        return [f"c{position}" for position in range(len(self.target.spec.columns))]

    @property
    def others(self) -> list[int]:
        key = set(self.target.spec.key)
        return [
            position
            for position, column in enumerate(self.target.spec.columns)
            if column.name not in key
        ]

    def read_schema(self) -> str:
        fields = ["_op tinyint", "_seq decimal(38,0)", "_ts timestamp"]
        fields += [
            f"c{position} {column.delta_type}"
            for position, column in enumerate(self.target.spec.columns)
        ]
        if not self.target.all_present:
            fields += [f"p{position} boolean" for position in range(len(self.target.spec.columns))]
        return ", ".join(fields)


def reduced_sql(session: SparkSession, target: RecordedTarget, *, target_table: str) -> str:
    """A query for the reduced rows of the view ``staged``. Makes further views; runs one small
    job with partial key updates, which need the old rows of `target_table` (SQL text).
    """
    layout = Layout(target)
    if target.all_present:
        if not target.rows_updated and not target.rows_deleted:
            return "SELECT * FROM staged"  # a primary key is not inserted twice without a delete
        return last_per_key("staged", layout)
    session.sql(_segmented_sql(layout)).createOrReplaceTempView("segmented")
    if target.partial_key_updates:
        links = session.sql(_links_sql()).toArrow()
        roots: Any = session.createDataFrame(life_roots(links))
        roots.createOrReplaceTempView("roots")
    session.sql(_lives_sql(layout)).createOrReplaceTempView("lives")
    session.sql(_life_rows_sql(layout, target_table)).createOrReplaceTempView("life_rows")
    return last_per_key("life_rows", layout)


def last_per_key(view: str, layout: Layout) -> str:
    keys = ", ".join(layout.keys)
    return (
        f"SELECT * EXCEPT (_rank) FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY "
        f"_seq DESC) AS _rank FROM {view}) WHERE _rank = 1"
    )


def life_roots(links: pa.Table) -> pa.Table:
    """The first segment (``root``) of every linked segment (``seg``) and the one that its first
    row left (``left_seg``); no cycles.
    """
    segments = links.column("seg").combine_chunks()
    left = links.column("left_seg").combine_chunks()
    own = np.arange(len(segments))
    parent = pc.index_in(left, value_set=segments).fill_null(-1).to_numpy(zero_copy_only=False)
    # Each round doubles the length of the jump, so that a chain of n links takes log2(n) rounds.
    jump = np.where(parent >= 0, parent, own)
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    return pa.table({"seg": segments, "root": left.take(pa.array(jump))})


def _present(position: int) -> str:
    # Files of whole images have no presence columns: NULL there.
    return f"coalesce(p{position}, true)"


def _segmented_sql(layout: Layout) -> str:
    window = f"(PARTITION BY {', '.join(layout.keys)} ORDER BY _seq)"
    whole = " AND ".join(_present(position) for position in layout.others) or "true"
    return f"""
        SELECT *, max(CASE WHEN _previous IS NULL OR _op IN ({INSERT}, {ARRIVE}) OR _previous IN
            {_ENDS} THEN _seq END)
            OVER {window} AS _seg
        FROM (SELECT *, lag(_op) OVER {window} AS _previous, {whole} AS _whole FROM staged)"""


def _links_sql() -> str:
    return f"""
        SELECT new._seq AS seg, old._seg AS left_seg
        FROM segmented AS new JOIN segmented AS old ON old._seq = CAST(new._seq - 1 AS
            decimal(38,0))
        WHERE new._op = {ARRIVE} AND NOT new._whole AND old._op = {LEAVE}"""


def _lives_sql(layout: Layout) -> str:
    keys = ", ".join(layout.keys)
    linked = bool(layout.target.partial_key_updates)
    life = "coalesce(root, _seg)" if linked else "_seg"
    join = " LEFT JOIN roots ON seg = _seg" if linked else ""
    columns = []
    for position in layout.others:
        there = f"_op IN {_UPSERTS} AND {_present(position)}"
        columns.append(f", max_by(c{position}, CASE WHEN {there} THEN _seq END) AS c{position}")
        columns.append(f", bool_or({there}) AS p{position}")
    return f"""
        SELECT max_by(struct(_op, _seq, _ts, {keys}), _seq) AS last,
            min_by(struct(_op, _previous, _whole, {keys}), _seq) AS first{"".join(columns)}
        FROM segmented{join} GROUP BY {life}"""


def _life_rows_sql(layout: Layout, target_table: str) -> str:
    names = [column.name for column in layout.target.spec.columns]
    carries = bool(layout.target.partial_key_updates)
    # The life began with the target's own row: not with an insert or arrival, nor after a delete
    # in this batch.
    from_target = f"(first._previous IS NULL AND first._op NOT IN ({INSERT}, {ARRIVE}))"
    same_key = " AND ".join(f"first.{key} <=> last.{key}" for key in layout.keys)
    moved = f"({from_target} AND last._op IN {_UPSERTS} AND NOT ({same_key}))"
    life_columns, leave_columns = [], []
    for position, name in enumerate(names):
        if position in layout.others:
            value = f"lives.c{position}"
            if carries:
                value = (
                    f"CASE WHEN {moved} AND NOT lives.p{position} THEN old.{quoted(name)} "
                    f"ELSE {value} END"
                )
            life_columns.append(f"{value} AS c{position}")
            life_columns.append(
                f"(lives.p{position} OR NOT {from_target} OR {moved}) AS p{position}"
            )
            leave_columns.append(f"NULL AS c{position}, false AS p{position}")
        else:
            life_columns.append(f"last.c{position} AS c{position}, true AS p{position}")
            leave_columns.append(f"c{position}, true AS p{position}")
    join = ""
    if carries:
        on = " AND ".join(
            f"old.{quoted(name)} <=> first.{key}"
            for name, key in zip(layout.target.spec.key, layout.keys, strict=True)
        )
        join = f" LEFT JOIN {target_table} AS old ON {moved} AND {on}"
    return f"""
        SELECT last._op AS _op, last._seq AS _seq, last._ts AS _ts, {", ".join(life_columns)} FROM
            lives{join}
        UNION ALL
        SELECT _op, _seq, _ts, {", ".join(leave_columns)} FROM segmented WHERE _op = {LEAVE}"""
