"""Complete the staged images of a batch and reduce it to one row per key, as Spark SQL over the
view ``staged`` (K10, K11).

Rules:
- If every image is complete, only the last row of a key, by seq, matters.
- Otherwise the target's row of a key that changes precedes the batch's rows as a special event
  (`THERE`), so that one rule fills what an image lacks from the row before it, in the batch or in
  the target.
- Staged rows that are not newer than the target's row of their key are left out: a batch that is
  applied again adds nothing.
- A key's events fall into segments: one begins with the key's first row in the batch, with an
  insert, an arrival, or after a delete or leave; the target's row belongs to the one that changes
  it. A segment that an arrival without all columns begins is the same *life* as the segment that it
  left; links are followed to their first segment (`life_roots`). Each column of a life has its last
  *present* value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.modes.expand import ARRIVE, DELETE, INSERT, LEAVE, UPDATE
from cdc_pipeline.sink.modes.mode_columns import OP_COLUMN, SEQ_COLUMN, TS_COLUMN
from cdc_pipeline.sink.spark.sql import literal_of, quoted, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THERE: Final = 5
UPSERTS: Final = f"({INSERT}, {UPDATE}, {ARRIVE}, {THERE})"
ENDS: Final = f"({DELETE}, {LEAVE})"


@dataclass(frozen=True, slots=True)
class Layout:
    target: RecordedTarget

    @property
    def keys(self) -> list[str]:
        names = [column.name for column in self.target.spec.columns]
        return [f"c{names.index(name)}" for name in self.target.spec.key]

    @property
    def same_key(self) -> str:
        """Of the target's row ``t`` and the staged one ``s``."""
        pairs = zip(self.target.spec.key, self.keys, strict=True)
        return " AND ".join(f"t.{quoted(name)} = s.{key}" for name, key in pairs)

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


class StagedFiles(NamedTuple):
    """The files of a batch for a target. `key_range`: as the function's; `appends`: no row of the
    target has one of their keys.
    """

    session: SparkSession
    path: Path
    target: RecordedTarget
    files: list[Path]
    key_range: str | None
    appends: bool = False

    @property
    def within(self) -> str:
        """Over the target as ``t``."""
        return "true" if self.key_range is None else f"t.{self.key_range}"


def key_range(target: RecordedTarget, files: list[Path]) -> str | None:
    """Satisfied by every row of the target with one of the files' keys, by their footers; None if
    nothing is known.
    """
    first = target.spec.key[0]
    position = [column.name for column in target.spec.columns].index(first)
    bounds: list[Any] = []
    for file in files:
        metadata = pq.read_metadata(storage_of(file).arrow_source(file))
        index = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(index[f"c{position}"]).statistics
            if statistics is None or not statistics.has_min_max:
                return None
            bounds += (statistics.min, statistics.max)
    kind = target.spec.columns[position].delta_type
    low, high = (literal_of(bound, kind) for bound in (min(bounds), max(bounds)))
    if low is None or high is None:
        return None
    return f"{quoted(first)} BETWEEN {low} AND {high}"


def reduced_sql(staged: StagedFiles) -> str:
    """A query for the last row of each key, in the staged columns; makes further views."""
    target, layout = staged.target, Layout(staged.target)
    if not target.all_present:
        make_events(staged, where=staged.within)
        return f"SELECT * FROM ({_last_per_key('events', layout)}) WHERE _op <> {THERE}"
    if target.keys_come_once:
        return "SELECT * FROM staged"
    return _last_per_key("staged", layout)


def merge_last_sql(staged: StagedFiles, own_values: Mapping[str, str], *, removes: bool) -> str:
    """The MERGE of the last row of each key, or the INSERT, if no row has one of the keys; makes
    views. `own_values` are SQL over the reduced row ``s``, by our own columns; `removes`: what ends
    goes. The condition holds the range of the keys, so that Delta skips files by their statistics.
    """
    path, target = staged.path, staged.target
    staged.session.sql(reduced_sql(staged)).createOrReplaceTempView("reduced")
    values = {quoted(column.name): f"s.c{at}" for at, column in enumerate(target.spec.columns)}
    values |= {SEQ_COLUMN: "s._seq", TS_COLUMN: "s._ts", **own_values}
    newer, ends = f"s._seq > t.{SEQ_COLUMN}", f"s._op IN {ENDS}"
    if staged.appends:
        return (
            f"INSERT INTO {table_at(path)} ({', '.join(values)}) SELECT "
            f"{', '.join(values.values())} FROM reduced AS s WHERE NOT {ends}"
        )
    return f"""
        MERGE INTO {table_at(path)} AS t USING reduced AS s
        ON {Layout(target).same_key} AND {staged.within}
        {f"WHEN MATCHED AND {ends} AND {newer} THEN DELETE" if removes else ""}
        WHEN MATCHED AND {newer} THEN UPDATE SET
            {", ".join(f"t.{name} = {value}" for name, value in values.items())}
        WHEN NOT MATCHED{f" AND NOT ({ends})" if removes else ""} THEN
            INSERT ({", ".join(values)}) VALUES ({", ".join(values.values())})"""


def _last_per_key(view: str, layout: Layout) -> str:
    keys = ", ".join(layout.keys)
    return (
        f"SELECT * EXCEPT (_rank) FROM (SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY "
        f"_seq DESC) AS _rank FROM {view}) WHERE _rank = 1"
    )


def life_roots(links: pa.Table) -> pa.Table:
    """The first segment (``root``) of every linked one (``seg``), and what its first row left."""
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


def make_events(
    staged: StagedFiles, *, where: str, extra: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Make the view ``events``: the staged columns with complete images and without presence
    columns, and the target's rows.

    Args:
        where: predicate over the target as ``t`` that its rows of changed keys satisfy.
        extra: further columns of the target's rows, by name in the view; NULL in staged rows.
    """
    session, layout = staged.session, Layout(staged.target)
    partial = not layout.target.all_present
    columns = ["_op", "_seq", "_ts", *layout.values]
    there = [f"CAST({THERE} AS tinyint) AS _op", f"t.{SEQ_COLUMN} AS _seq", f"t.{TS_COLUMN} AS _ts"]
    there += [
        f"t.{quoted(column.name)} AS {value}"
        for column, value in zip(layout.target.spec.columns, layout.values, strict=True)
    ]
    presence = [f"p{position}" for position in layout.others] if partial else []
    of_batch = [*columns, *(f"coalesce({name}, true) AS {name}" for name in presence)]
    there += [f"true AS {name}" for name in presence]
    there += [f"t.{expression} AS {name}" for name, expression in extra.items()]
    of_batch += [f"NULL AS {name}" for name in extra]
    keys = ", ".join(layout.keys)
    session.sql(f"""
        SELECT * EXCEPT (_there) FROM (
            SELECT *, max(CASE WHEN _op = {THERE} THEN _seq END) OVER (PARTITION BY {keys}) AS
                _there FROM (
                SELECT {", ".join(of_batch)} FROM staged
                UNION ALL
                SELECT {", ".join(there)} FROM {table_at(staged.path)} AS t
                LEFT SEMI JOIN (SELECT DISTINCT {keys} FROM staged) AS s ON {layout.same_key} WHERE
                    {where}))
        WHERE _op = {THERE} OR _there IS NULL OR _seq > _there""").createOrReplaceTempView("events")
    if partial:
        _fill(session, layout, columns=[*columns, *extra])


def differs(columns: list[str], row: str, other: str) -> str:
    return f"NOT ({row} <=> {other})" if columns else "false"


def operation(op: str) -> str:
    return f"CASE WHEN {op} = {INSERT} THEN 'insert' ELSE 'update' END"


def kept_operation(op: str) -> str:
    """As `operation`; the target's own row keeps the operation that it has."""
    return (
        f"CASE WHEN {op} = {THERE} THEN t.{OP_COLUMN} WHEN {op} = {INSERT} THEN 'insert' "
        "ELSE 'update' END"
    )


def _fill(session: SparkSession, layout: Layout, *, columns: list[str]) -> None:
    window = f"(PARTITION BY {', '.join(layout.keys)} ORDER BY _seq)"
    whole = " AND ".join(f"p{position}" for position in layout.others) or "true"
    first = (
        f"_previous IS NULL OR _previous = {THERE} OR _op IN ({INSERT}, {ARRIVE}) OR "
        f"_previous IN {ENDS}"
    )
    # The target's row belongs to the segment that changes it.
    session.sql(f"""
        SELECT *,
            CASE WHEN _op = {THERE} AND _next IN ({UPDATE}, {DELETE}, {LEAVE}) THEN _next_seq
                ELSE max(CASE WHEN {first} THEN _seq END) OVER {window} END AS _seg
        FROM (SELECT *, lag(_op) OVER {window} AS _previous, lead(_op) OVER {window} AS _next,
            lead(_seq) OVER {window} AS _next_seq, {whole} AS _whole FROM events)
        """).createOrReplaceTempView("segments")
    life, join = "_seg", ""
    if layout.target.partial_key_updates:
        links = session.sql(f"""
            SELECT new._seq AS seg, old._seg AS left_seg
            FROM segments AS new JOIN segments AS old ON old._seq = CAST(new._seq - 1 AS
                decimal(38,0))
            WHERE new._op = {ARRIVE} AND NOT new._whole AND old._op = {LEAVE}""").toArrow()
        roots: Any = session.createDataFrame(life_roots(links))
        roots.createOrReplaceTempView("roots")
        life, join = "coalesce(root, _seg)", " LEFT JOIN roots ON seg = _seg"
    over = "(PARTITION BY _life ORDER BY _seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    key = set(layout.values) - {f"c{position}" for position in layout.others}
    listed = [
        name
        if name in key or not name.startswith("c")
        else (
            f"last(CASE WHEN p{name[1:]} THEN struct({name} AS v) END, true) OVER "
            f"{over}.v AS {name}"
        )
        for name in columns
    ]
    session.sql(f"""
        SELECT {", ".join(listed)} FROM (SELECT *, {life} AS _life FROM segments{join})
        """).createOrReplaceTempView("events")
