"""Compare source rows with a version of a Delta table: count and checksums first, then key by key
if they differ (K17).

Rules:
- Rows are first partitioned by a hash of the key, the same on both sides: no order and no collation
  is involved, and the parts have similar sizes. Each part has a count and two independent
  order-free checksums; only parts that differ are joined key by key.
- Keys that changed between the two cuts that bracket the views (`Changed`) are left out, and named,
  so that the caller checks them again. The batches of that time and the seq of the lake's rows
  identify them.
- Differences are written as Parquet (`ComparisonResult`), so that memory does not grow with them.
- Each row of the lake is compared once: a key that the lake has twice is a separate difference.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.config.modes import MODES, Mode
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.failures import reading_failed
from cdc_pipeline.sink.modes.mode_columns import END_COLUMN, START_COLUMN
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.read.read import old_commits_readable, table_frame
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, text_literal
from cdc_pipeline.sink.verify.sides import ComparisonSql, checksums, make_sides

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Kind = Literal["missing", "extra", "different", "duplicate", "ambiguous", "left_out"]

DIFFERENCES: Final[tuple[Kind, ...]] = ("missing", "extra", "different", "duplicate", "ambiguous")
_ROWS_PER_BUCKET: Final = 50_000
_BUCKETS_MAX: Final = 4096


@dataclass(frozen=True)
class Changed:
    """Keys that changed while the source was read: those in Parquet files (``k0 ...``), and
    those of the lake's rows with a seq after `after_seq`.
    """

    files: tuple[Path, ...] = ()
    after_seq: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self.files and self.after_seq is None


@dataclass(frozen=True)
class Wanted:
    """The keys that a comparison covers: those of some kinds in a folder of found keys."""

    folder: Path
    kinds: tuple[Kind, ...]


@dataclass(frozen=True)
class ComparisonResult:
    """The result of a comparison.

    Attributes:
        folder: Parquet of the keys in `counts`: ``_kind``, ``_columns`` (names of the columns that
            differ), ``_more`` (rows of the source less those of the lake), ``_lake_seq``, and ``c0
            ...`` the row of the source, or of the lake if the source has none; None if there is
            neither.
        buckets, buckets_differing: parts by hash of the key.
        counts: keys of each kind.
        stale: rows of the lake with a key of `unread`: they were not compared.
    """

    folder: Path | None
    rows_source: int
    rows_lake: int
    buckets: int
    buckets_differing: int
    counts: Mapping[Kind, int]
    stale: int = 0

    @property
    def differences(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind in DIFFERENCES)

    @property
    def left_out(self) -> int:
        return self.counts.get("left_out", 0)


def compare(
    spark: SparkSession,
    sides: ComparisonSql,
    *,
    source_files: Sequence[Path],
    source_rows: int,
    source_bytes: int,
    folder: Path,
    changed: Changed,
    unread: Sequence[Path] = (),
    wanted: Wanted | None = None,
    sampled: bool = False,
    fixed: Mapping[str, str] | None = None,
) -> ComparisonResult:
    """Compare, and write what differs and what is left out to `folder`, which is new.

    Args:
        unread: Parquet files of keys (``k0 ...``) of rows of the source that cannot be compared.
        sampled: the source's rows are some of the table's: rows of the lake count only if they have
            these keys.
        fixed: settings that the configuration names, which stay as they are.

    Raises LakeStateError: files of the table are gone or damaged; MergeError: Spark failed
    otherwise; IncompleteChangelogError: images of a changelog without a key lack columns.
    """
    session = new_session(spark)
    MergeSettings(session, fixed or {}).large_batch(source_bytes)
    # The result is read without Spark: there Spark's own form of a timestamp holds no year before
    # 1678.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    buckets = min(_BUCKETS_MAX, max(1, source_rows // _ROWS_PER_BUCKET))
    try:
        make_sides(session, sides, source_files, buckets=buckets)
        stale = _without_unread(session, sides, unread) if unread else 0
        result = _compare(session, sides, folder, changed, wanted, buckets, sampled=sampled)
        return replace(result, stale=stale)
    except Exception as error:
        what = "Spark could not compare the table with its source"
        raise reading_failed(error, table=sides.target.table, what=what) from None


def _without_unread(session: SparkSession, sides: ComparisonSql, unread: Sequence[Path]) -> int:
    """Leave rows with these keys out of the lake's side; return how many they are."""
    session.sql(_exact_keys(session, sides, unread, "unread_keys")).createOrReplaceTempView(
        "unread"
    )
    rows: Any = session.sql(
        f"SELECT count(*) FROM side_lake AS s LEFT SEMI JOIN unread AS o ON {_same(sides)}"
    )
    others = session.sql(
        f"SELECT s.* FROM side_lake AS s LEFT ANTI JOIN unread AS o ON {_same(sides)}"
    )
    others.createOrReplaceTempView("side_lake")
    return int(rows.collect()[0][0])


def _exact_keys(
    session: SparkSession, sides: ComparisonSql, files: Sequence[Path], view: str
) -> str:
    """The keys of some files (``k0 ...``) as they are compared."""
    schema = ", ".join(
        f"{k} {sides.type_of(at)}" for k, at in zip(sides.keys, sides.key_positions, strict=True)
    )
    session.read.schema(schema).parquet(*[str(file) for file in files]).createOrReplaceTempView(
        view
    )
    exact = [
        f"{sides.exact(k, at)} AS {k}"
        for k, at in zip(sides.keys, sides.key_positions, strict=True)
    ]
    return f"SELECT {', '.join(exact)} FROM {view}"


def _compare(
    session: SparkSession,
    sides: ComparisonSql,
    folder: Path,
    changed: Changed,
    wanted: Wanted | None,
    buckets: int,
    *,
    sampled: bool,
) -> ComparisonResult:
    sides_in = {"side_source": "side_source", "side_lake": "side_lake"}
    if wanted is not None:
        raw = [
            f"{sides.exact(f'c{at}', at)} AS {k}"
            for k, at in zip(sides.keys, sides.key_positions, strict=True)
        ]
        kinds = ", ".join(text_literal(kind) for kind in wanted.kinds)
        session.read.parquet(str(wanted.folder)).createOrReplaceTempView("wanted_rows")
        session.sql(f"SELECT DISTINCT {', '.join(raw)} FROM wanted_rows WHERE _kind IN ({kinds})"
                    ).createOrReplaceTempView("wanted")  # fmt: skip
        for side in sides_in:
            session.sql(f"SELECT s.* FROM {side} AS s LEFT SEMI JOIN wanted AS o ON {_same(sides)}"
                        ).createOrReplaceTempView(f"{side}_wanted")  # fmt: skip
            sides_in[side] = f"{side}_wanted"
    if sampled:
        session.sql(
            f"SELECT s.* FROM {sides_in['side_lake']} AS s LEFT SEMI JOIN "
            f"{sides_in['side_source']} AS o ON {_same(sides)}"
        ).createOrReplaceTempView("side_lake_sampled")
        sides_in["side_lake"] = "side_lake_sampled"
    all_sides = dict(sides_in)
    if not changed.is_empty:
        session.sql(
            _changed_sql(session, sides, changed, all_sides["side_lake"])
        ).createOrReplaceTempView("changed")
        for side, rows in all_sides.items():
            session.sql(
                f"SELECT s.* FROM {rows} AS s LEFT ANTI JOIN changed AS o ON {_same(sides)}"
            ).createOrReplaceTempView(f"{side}_still")
            sides_in[side] = f"{side}_still"
    rows_source = rows_lake = 0
    parts: list[int] = []
    differing: list[int] = []
    for row in session.sql(
        _buckets_sql(sides, sides_in["side_source"], sides_in["side_lake"])
    ).collect():
        rows_source += row["_source"]
        rows_lake += row["_lake"]
        parts.append(row["_bucket"])
        if not row["_same"]:
            differing.append(row["_bucket"])
    # A column that a changelog's image lacks cannot be in a checksum.
    if MODES[sides.target.spec.mode].rows_are_changes and not sides.is_sum:
        differing = parts
    queries = []
    if differing:
        queries.append(
            _differences_sql(sides, sides_in["side_source"], sides_in["side_lake"], differing)
        )
    if not changed.is_empty:
        queries.append(_left_out_sql(sides, all_sides))
    if not queries:
        return ComparisonResult(None, rows_source, rows_lake, buckets, 0, {})
    differences: Any = session.sql(" UNION ALL ".join(queries))
    differences.write.parquet(str(folder))
    counts: dict[Kind, int] = Counter()
    for part in _parts(folder, ["_kind"]):
        counts.update(part.column(0).to_pylist())
    return ComparisonResult(folder, rows_source, rows_lake, buckets, len(differing), counts)


def _same(sides: ComparisonSql) -> str:
    return " AND ".join(f"s.{key} <=> o.{key}" for key in sides.keys)


def _changed_sql(session: SparkSession, sides: ComparisonSql, changed: Changed, lake: str) -> str:
    queries = []
    if changed.files:
        queries.append(_exact_keys(session, sides, changed.files, "changed_keys"))
    if changed.after_seq is not None:
        later = f"_seq > {seq_literal(changed.after_seq)}"
        queries.append(f"SELECT {', '.join(sides.keys)} FROM {lake} WHERE {later}")
    return f"SELECT DISTINCT * FROM ({' UNION ALL '.join(queries)})"


def _count(sides: ComparisonSql) -> str:
    return "sum(_weight)" if sides.is_sum else "count(*)"


def _buckets_sql(sides: ComparisonSql, source: str, lake: str) -> str:
    first, second = checksums(sides)

    def side(view: str) -> str:
        weight = " * _weight" if sides.is_sum else ""
        sums = ", ".join(
            f"sum(CAST({value} AS decimal(20,0)){weight}) AS {name}"
            for name, value in (("_a", first), ("_b", second))
        )
        return f"(SELECT _bucket, {_count(sides)} AS _rows, {sums} FROM {view} GROUP BY _bucket)"

    return f"""
        SELECT coalesce(s._bucket, l._bucket) AS _bucket, coalesce(s._rows, 0) AS _source,
            coalesce(l._rows, 0) AS _lake, s._rows <=> l._rows AND s._a <=> l._a AND s._b <=> l._b
                AS _same
        FROM {side(source)} AS s FULL OUTER JOIN {side(lake)} AS l ON s._bucket = l._bucket"""


def _differences_sql(sides: ComparisonSql, source: str, lake: str, buckets: Collection[int]) -> str:
    keys, values = ", ".join(sides.keys), sides.value_positions
    row = ", ".join(f"'c{at}', c{at}" for at in sides.positions)
    compared = ", ".join(f"'v{at}', v{at}" for at in values) or "'nothing', true"

    def side(view: str) -> str:
        listed = ", ".join(map(str, buckets))
        return (
            f"(SELECT {keys}, {_count(sides)} AS _n, max(_seq) AS _seq, first(_absent) AS _absent, "
            f"first(named_struct({row})) AS _row, first(named_struct({compared})) AS _values "
            f"FROM {view} WHERE _bucket IN ({listed}) GROUP BY {keys})"
        )

    differing = []
    for at in values:
        name = text_literal(sides.target.spec.columns[at].name)
        test = f"NOT (s._values.v{at} <=> o._values.v{at})"
        if MODES[sides.target.spec.mode].rows_are_changes:
            test = f"({test} AND NOT coalesce(array_contains(o._absent, {name}), false))"
        differing.append(f"IF({test}, {name}, NULL)")
    columns = (
        f"array_compact(array({', '.join(differing)}))"
        if differing
        else "CAST(array() AS array<string>)"
    )
    more = "coalesce(s._n, 0) - coalesce(o._n, 0)"
    if sides.key:
        kind = (
            "CASE WHEN o._n IS NULL THEN 'missing' WHEN s._n IS NULL THEN 'extra' WHEN s._n > 1 "
            "THEN 'ambiguous' WHEN o._n > 1 THEN 'duplicate' WHEN size(_columns) > 0 "
            "THEN 'different' END"
        )
    else:
        kind = f"CASE WHEN {more} > 0 THEN 'missing' WHEN {more} < 0 THEN 'extra' END"
    both = f"IF(s._n IS NULL OR o._n IS NULL, CAST(array() AS array<string>), {columns})"
    chosen = ", ".join(
        f"IF(_in_source, _source_row.c{at}, _lake_row.c{at}) AS c{at}" for at in sides.positions
    )
    joined = f"""
        SELECT *, {kind.replace("o._n", "_on").replace("s._n", "_sn")} AS _kind FROM (
            SELECT s._n AS _sn, o._n AS _on, s._n IS NOT NULL AS _in_source, s._row AS _source_row,
                o._row AS _lake_row, {both} AS _columns, CAST({more} AS bigint) AS _more, o._seq AS
                    _lake_seq
            FROM {side(source)} AS s FULL OUTER JOIN {side(lake)} AS o ON {_same(sides)})"""
    joined = joined.replace("coalesce(_sn, 0) - coalesce(_on, 0)", "_more")
    return (
        f"SELECT _kind, _columns, _more, _lake_seq, {chosen} FROM ({joined}) WHERE "
        "_kind IS NOT NULL"
    )


def _left_out_sql(sides: ComparisonSql, views: Mapping[str, str]) -> str:
    positions = sides.key_positions
    listed = ", ".join([*sides.keys, *(f"c{at}" for at in positions)])
    union = " UNION ALL ".join(
        f"SELECT {', '.join(f's.{name}' for name in listed.split(', '))} FROM {view} AS s "
        f"LEFT SEMI JOIN changed AS o ON {_same(sides)}"
        for view in views.values()
    )
    values = ", ".join(
        f"first(c{at}) AS c{at}"
        if at in positions
        else f"CAST(NULL AS {sides.type_of(at)}) AS c{at}"
        for at in sides.positions
    )
    return (
        "SELECT 'left_out' AS _kind, CAST(array() AS array<string>) AS _columns, CAST(0 AS bigint) "
        f"AS _more, CAST(NULL AS decimal(38,0)) AS _lake_seq, {values} FROM ({union}) GROUP BY "
        f"{', '.join(sides.keys)}"
    )


def read_differences(
    sides: ComparisonSql,
    found: ComparisonResult,
    kinds: Collection[Kind],
    *,
    limit: int,
    columns: Sequence[int] | None = None,
) -> pa.Table:
    """At most `limit` keys of some kinds: ``_kind``, ``_columns``, ``_more``, ``_lake_seq``, and
    ``c0 ...`` at `columns` (all compared ones by default). Needs no Spark.
    """
    assert found.folder is not None
    listed = [f"c{at}" for at in (sides.positions if columns is None else columns)]
    parts: list[pa.Table] = []
    room = limit
    for part in _parts(found.folder, ["_kind", "_columns", "_more", "_lake_seq", *listed]):
        wanted = part.filter(
            pc.is_in(part.column("_kind"), value_set=pa.array(sorted(kinds)))
        ).slice(0, room)
        parts.append(wanted)
        room -= len(wanted)
        if not room:
            break
    rows = pa.concat_tables(parts)
    order = [
        name
        for name in ("_kind", *(f"c{at}" for at in sides.key_positions))
        if name in rows.column_names
    ]
    kinds_of = {name: rows.schema.field(name).type for name in order}
    sortable = [
        n
        for n, kind in kinds_of.items()
        if not (pa.types.is_nested(kind) or pa.types.is_boolean(kind))
    ]
    return rows.sort_by([(name, "ascending") for name in sortable])


def _parts(folder: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    for name in sorted(storage_of(folder).names(folder)):
        if name.endswith(".parquet") and not name.startswith((".", "_")):
            with pq.ParquetFile(storage_of(folder).arrow_source(folder / name)) as file:
                yield file.schema_arrow.empty_table().select(columns)
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=list(columns)).select(columns)


def count_strays(
    spark: SparkSession, path: Path, version: int, column: str, values: Collection[str]
) -> int:
    """How many rows of a merged table have a shard column with none of `values`."""
    session = new_session(spark)
    with old_commits_readable(session):
        table_frame(session, path, version=version).createOrReplaceTempView("lake_rows")
    listed = ", ".join(text_literal(value) for value in sorted(values))
    name = quoted(column)
    rows = session.sql(
        f"SELECT count(*) FROM lake_rows WHERE {name} IS NULL OR {name} NOT IN ({listed})"
    ).collect()
    return int(rows[0][0])


def highest_seq(spark: SparkSession, sides: ComparisonSql, *, low: int, high: int) -> int | None:
    """The highest place within [low, high] at which a row was written, or a version ended."""
    session = new_session(spark)
    with old_commits_readable(session):
        table_frame(session, sides.path, version=sides.version).createOrReplaceTempView("lake_rows")
    ends = SINK_MODES[sides.target.spec.mode].seq_columns
    within = f"BETWEEN {seq_literal(low)} AND {seq_literal(high)}"
    listed = ", ".join(f"max({name}) FILTER (WHERE {name} {within})" for name in ends)
    highest_seqs = [
        int(value)
        for value in session.sql(f"SELECT {listed} FROM lake_rows").collect()[0]
        if value is not None
    ]
    return max(highest_seqs, default=None)


def duplicate_keys(
    spark: SparkSession, path: Path, version: int, *, mode: Mode, key: Sequence[str]
) -> int:
    """Keys in more than one row that represents a row of the source; 0 for a changelog."""
    live = SINK_MODES[mode].live_rows
    if live is None:
        return 0
    listed = ", ".join(map(quoted, key))
    rows = _session(spark, path, version).sql(
        f"SELECT count(*) FROM (SELECT 1 FROM lake_rows WHERE {live or 'true'} GROUP BY {listed} "
        "HAVING count(*) > 1)"
    )
    return int(rows.collect()[0][0])


def history_intervals(
    spark: SparkSession, path: Path, version: int, *, key: Sequence[str]
) -> dict[str, int]:
    """Counts: versions, keys, overlaps (versions that end after the next begins, or before they
    begin), not_ended (current versions that another follows), gaps (versions that end before the
    next begins).
    """
    partition = ", ".join(map(quoted, key))
    # Of two that begin at the same place the current one comes last.
    order = f"PARTITION BY {partition} ORDER BY {START_COLUMN}, {END_COLUMN} NULLS LAST"
    row = (
        _session(spark, path, version)
        .sql(f"""
        SELECT count(*) AS versions, count_if(_first = 1) AS keys,
            count_if({END_COLUMN} > _next OR {END_COLUMN} < {START_COLUMN} OR {START_COLUMN} IS NULL
                OR _next = {START_COLUMN}) AS overlaps,
            count_if({END_COLUMN} IS NULL AND _next IS NOT NULL) AS not_ended,
            count_if({END_COLUMN} < _next) AS gaps
        FROM (SELECT {START_COLUMN}, {END_COLUMN}, lead({START_COLUMN}) OVER ({order}) AS _next,
            row_number() OVER ({order}) AS _first FROM lake_rows)""")
        .collect()[0]
    )
    return {name: int(row[name]) for name in ("versions", "keys", "overlaps", "not_ended", "gaps")}


def _session(spark: SparkSession, path: Path, version: int) -> SparkSession:
    session = new_session(spark)
    with old_commits_readable(session):
        table_frame(session, path, version=version).createOrReplaceTempView("lake_rows")
    return session
