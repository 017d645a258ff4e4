"""Compare source rows with a version of a Delta table: count and checksums first, then key by key
if they differ (K17).

Rules:
- Rows are first partitioned by a hash of the key, the same on both sides: no order and no collation
  is involved, and the parts have similar sizes. Each part has a count and two independent
  order-free checksums; only the rows of parts that differ are compared key by key.
- This process compares (`sums.py`). Spark does where it must read a side (`in_memory.py`), or where
  more rows or keys may differ than this process holds. `_in_process` decides; no verdict depends
  on it.
- Keys that changed between the two cuts that bracket the views are left out, and named, so that the
  caller checks them again. The batches of that time and the seq of the lake's rows
  identify them.
- Differences are written as Parquet (`ComparisonResult`), so that memory does not grow with them.
- Each row of the lake is compared once: a key that the lake has twice is a separate difference.
"""

# Names and literals in the SQL are quoted by `sql`; there is no other way to build statements.
# ruff: noqa: S608

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_pipeline.config.modes import Mode
from cdc_pipeline.errors import SparkNeededError
from cdc_pipeline.lake.paths import remove_tree
from cdc_pipeline.lake.staged_file import CountingFile
from cdc_pipeline.lake.storage.storage import storage_of
from cdc_pipeline.sink.delta.failures import reading_failed
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.modes.mode_columns import END_COLUMN, START_COLUMN
from cdc_pipeline.sink.modes.registry import SINK_MODES
from cdc_pipeline.sink.read.read import old_commits_readable, old_frame, table_frame
from cdc_pipeline.sink.read.rows import open_rows, small_rows
from cdc_pipeline.sink.spark.merge_settings import MergeSettings
from cdc_pipeline.sink.spark.session import new_session
from cdc_pipeline.sink.spark.sql import quoted, seq_literal, text_literal
from cdc_pipeline.sink.verify import in_memory
from cdc_pipeline.sink.verify.in_memory import KeyUse
from cdc_pipeline.sink.verify.scratch import Scratch, StoredRows
from cdc_pipeline.sink.verify.sides import ComparisonSql, checksums, make_sides
from cdc_pipeline.sink.verify.sums import unlike_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Kind = Literal["missing", "extra", "different", "duplicate", "ambiguous", "left_out"]

DIFFERENCES: Final[tuple[Kind, ...]] = ("missing", "extra", "different", "duplicate", "ambiguous")
_ROWS_PER_BUCKET: Final = 50_000
_BUCKETS_MAX: Final = 4096
_ROW_BYTES: Final = 32  # at least, of a row in a table's files
_LOW: Final = (1 << 32) - 1


class TooLargeError(SparkNeededError):
    """Rows cannot be compared without Spark, and fewer of them perhaps can."""


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
        by_spark: whether Spark compared, and not this process.
    """

    folder: Path | None
    rows_source: int
    rows_lake: int
    buckets: int
    buckets_differing: int
    counts: Mapping[Kind, int]
    stale: int = 0
    by_spark: bool = False

    @property
    def differences(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind in DIFFERENCES)

    @property
    def left_out(self) -> int:
        return self.counts.get("left_out", 0)


def compare(
    start: Callable[[], SparkSession] | None,
    sides: ComparisonSql,
    source: StoredRows,
    *,
    folder: Path,
    keys: Mapping[KeyUse, StoredRows] = MappingProxyType({}),
    after_seq: int | None = None,
    sampled: bool = False,
    fixed: Mapping[str, str] | None = None,
) -> ComparisonResult:
    """Compare, and write what differs and what is left out to `folder`, which is new.

    Args:
        start: Spark, which compares what `in_memory` does not; None if it may not start.
        keys: keys (``k0 ...``) that changed while the source was read; of `unread` rows of the
            source, which cannot be compared; and the `wanted` ones, if only these are compared.
        after_seq: rows of the lake with a later seq changed meanwhile too.
        sampled: the source's rows are some of the table's: rows of the lake count only if they have
            these keys.
        fixed: settings that the configuration names, which stay as they are.

    Raises LakeStateError: files of the table are gone or damaged; MergeError: Spark failed
    otherwise; IncompleteChangelogError: images of a changelog without a key lack columns;
    SparkNeededError, TooLargeError: Spark may not start.
    """
    result = None
    with suppress(pa.ArrowException, KeyError, OSError):  # Spark says what is wrong with the table
        result = _in_process(
            sides, source, folder, keys, after_seq, sampled=sampled, all_held=start is None
        )
    if result is not None:
        return result
    if start is None:
        open_rows(sides.path, readable_state(sides.path, sides.version))  # says what Spark reads
        is_large = in_memory.is_known(sides) and not (
            sides.layouts or sides.column_defaults  # which Spark follows, whatever the size
        )
        kind = TooLargeError if is_large else SparkNeededError
        raise kind("the comparison of the table needs Spark")
    session = new_session(start())
    files = source.files()
    # The result is read without Spark: there Spark's own form of a timestamp holds no year before
    # 1678.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # Of a key of many columns Spark would infer more predicates than memory holds.
    session.conf.set("spark.sql.constraintPropagation.enabled", "false")
    versions = [v for v in (sides.version, sides.source_version) if v is not None]
    try:
        # Of the larger side: the driver holds the rows of a bucket that differ.
        counts = [old_frame(session, sides.path, version).count() for version in versions]
        rows = max(source.rows, *counts)
        settings = MergeSettings(session, fixed or {})
        settings.large_batch(max(source.size_bytes, rows * _ROW_BYTES))
        buckets = min(_BUCKETS_MAX, max(1, rows // _ROWS_PER_BUCKET))
        make_sides(session, sides, files, buckets=buckets)
        return _by_spark(session, sides, folder, keys, after_seq, buckets, sampled=sampled)
    except Exception as error:
        what = "Spark could not compare the table with its source"
        raise reading_failed(error, table=sides.target.table, what=what) from None


def _in_process(
    sides: ComparisonSql,
    stored: StoredRows,
    folder: Path,
    keys: Mapping[KeyUse, StoredRows],
    after_seq: int | None,
    *,
    sampled: bool,
    all_held: bool,
) -> ComparisonResult | None:
    """None if Spark must compare."""
    if any(of_use.tables is None for of_use in keys.values()):
        return None
    if all_held and stored.tables is None:
        return None
    source = (
        in_memory.source_parts(sides, stored)
        if sides.source_version is None
        else in_memory.lake_parts(sides, sides.source_version)
    )
    if source is None:
        return None
    tables = {use: in_memory.keys_of(sides, of_use.tables or ()) for use, of_use in keys.items()}
    listed = [tables["wanted"]] if "wanted" in tables else []
    if not listed and sampled and stored.tables is not None:
        listed = [pa.concat_tables(source)]
    listed += [tables[use] for use in tables if listed and use == "unread"]
    lake = in_memory.lake_parts(sides, sides.version, listed, all_held=all_held)
    if lake is None:
        return None
    unlike = unlike_rows(sides, (source, lake), tables, after_seq, sampled=sampled)
    if unlike is None:
        return None
    rows, stale = in_memory.mark_keys(sides, unlike.rows, tables, after_seq, sampled=sampled)
    counts = _store(folder, 0, in_memory.differences(sides, rows))
    rows = rows.filter(pc.invert(rows.column("_changed")))
    weights, of_source = (rows.column(name).to_numpy() for name in ("_weight", "_in_source"))
    return ComparisonResult(
        folder if counts else None,
        rows_source=unlike.equal + int(weights[of_source].sum()),
        rows_lake=unlike.equal + int(weights[~of_source].sum()),
        buckets=unlike.buckets,
        buckets_differing=unlike.buckets_differing,
        counts=counts,
        stale=stale,
    )


def _store(folder: Path, number: int, rows: pa.Table) -> Counter[Kind]:
    if rows.num_rows:
        folder.mkdir(parents=True, exist_ok=True)
        file = CountingFile(folder / f"{number:06d}.parquet")
        with pq.ParquetWriter(pa.PythonFile(file, mode="w"), rows.schema) as writer:
            writer.write_table(rows)
        file.finish()
    counts = pc.value_counts(rows.column("_kind"))
    return Counter(dict(zip(*(field.to_pylist() for field in counts.flatten()), strict=True)))


def _by_spark(
    session: SparkSession,
    sides: ComparisonSql,
    folder: Path,
    stored: Mapping[KeyUse, StoredRows],
    after_seq: int | None,
    buckets: int,
    *,
    sampled: bool,
) -> ComparisonResult:
    """Spark finds the keys whose rows may differ; what their rows say is told in memory, bucket by
    bucket.
    """
    same, keys = " AND ".join(f"s.{key} <=> o.{key}" for key in sides.keys), ", ".join(sides.keys)
    others = {use: _exact_keys(session, sides, of_use, use) for use, of_use in stored.items()}
    rows, stale = "sides", 0

    def select(join: str, keys_of: str, name: str, condition: str = "true") -> str:
        session.sql(
            f"SELECT s.* FROM {rows} AS s LEFT {join} JOIN ({keys_of}) AS o ON {same} "
            f"AND {condition}"
        ).createOrReplaceTempView(name)
        return name

    if "unread" in others:
        of_lake = "NOT s._in_source"
        stale = session.table(select("SEMI", others["unread"], "rows_stale", of_lake)).count()
        rows = select("ANTI", others["unread"], "rows_read", of_lake)
    if "wanted" in others:
        rows = select("SEMI", others["wanted"], "rows_wanted")
    if sampled:
        rows = select("SEMI", f"SELECT {keys} FROM {rows} WHERE _in_source", "rows_sampled")
    cells, grouped = [*(f"c{at}" for at in sides.positions), "_absent"], ""
    shown = ", ".join([*cells, "_seq", "_weight", "_bucket", "_in_source"])
    if not sides.key:  # the driver holds a row that occurs millions of times once, with its weight
        values = ", ".join(f"any_value({cell}) AS {cell}" for cell in cells)
        shown = f"{values}, max(_seq) AS _seq, sum(_weight) AS _weight, _bucket, _in_source"
        grouped = f" GROUP BY {keys}, _bucket, _in_source"
    queries = []
    changed = [others["changed"]] if "changed" in others else []
    if after_seq is not None:
        changed.append(f"SELECT {keys} FROM {rows} WHERE _seq > {seq_literal(after_seq)}")
    if changed:
        moved = select("SEMI", " UNION ALL ".join(changed), "rows_moved")
        queries.append(f"SELECT {shown}, true AS _changed FROM {moved}{grouped}")
        rows = select("ANTI", " UNION ALL ".join(changed), "rows_still")
    # Halves of a hash add up in 64 bits without a wrap; Spark is slow with decimals.
    halves = (half for one in checksums(sides) for half in (f"{one} >> 32", f"{one} & {_LOW}"))
    sums = (f"sum(({value}) * _weight * IF(_in_source, 1, -1)) <> 0" for value in ("1L", *halves))
    unlike = " OR ".join(sums)
    found = session.sql(
        "SELECT _bucket, sum(IF(_in_source, _weight, 0)) AS _source, sum(IF(_in_source, 0, "
        f"_weight)) AS _lake, {unlike} AS _unlike FROM {rows} GROUP BY _bucket"
    ).collect()
    differing = [row["_bucket"] for row in found if row["_unlike"]]
    if differing:
        listed = ", ".join(map(str, differing))
        differs = f"WHERE _bucket IN ({listed}) GROUP BY {keys} HAVING {unlike}"
        rows = select("SEMI", f"SELECT {keys} FROM {rows} {differs}", "rows_unlike")
        queries.append(f"SELECT {shown}, false AS _changed FROM {rows}{grouped}")
    counts: Counter[Kind] = Counter()
    if queries:
        written = folder.with_name(f"{folder.name}-rows")
        frame: Any = session.sql(" UNION ALL ".join(queries))
        frame.write.partitionBy("_bucket").parquet(str(written))
        for number, name in enumerate(storage_of(written).names(written)):
            if name.startswith("_bucket="):
                of_bucket = pa.concat_tables(_parts(written / name))
                counts += _store(folder, number, in_memory.differences(sides, of_bucket))
        remove_tree(written)
    return ComparisonResult(
        folder if counts else None,
        rows_source=sum(row["_source"] for row in found),
        rows_lake=sum(row["_lake"] for row in found),
        buckets=buckets,
        buckets_differing=len(differing),
        counts=counts,
        stale=stale,
        by_spark=True,
    )


def _exact_keys(session: SparkSession, sides: ComparisonSql, stored: StoredRows, view: str) -> str:
    """Stored keys as they are compared."""
    keys = list(zip(sides.keys, sides.key_positions, strict=True))
    schema = ", ".join(f"{key} {sides.type_of(at)}" for key, at in keys)
    files = [str(file) for file in stored.files()]
    frame: Any = (
        session.read.schema(schema).parquet(*files)
        if files
        else session.createDataFrame([], schema)
    )
    frame.createOrReplaceTempView(view)
    return f"SELECT {', '.join(f'{sides.exact(key, at)} AS {key}' for key, at in keys)} FROM {view}"


def keys_found(
    scratch: Scratch, sides: ComparisonSql, found: ComparisonResult, kinds: Collection[Kind]
) -> StoredRows:
    """The keys of some kinds (``k0 ...``)."""
    assert found.folder is not None
    keys, columns = scratch.rows(), [f"c{at}" for at in sides.key_positions]
    for part in _of_kinds(found.folder, kinds, columns):
        keys.add(part.select(columns).rename_columns(sides.keys))
    return keys


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
    for part in _of_kinds(found.folder, kinds, ["_columns", "_more", "_lake_seq", *listed]):
        parts.append(part.slice(0, room))
        room -= len(parts[-1])
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


def _of_kinds(folder: Path, kinds: Collection[Kind], columns: Sequence[str]) -> Iterator[pa.Table]:
    """With ``_kind`` as their first column."""
    for part in _parts(folder, ["_kind", *columns]):
        yield part.filter(pc.is_in(part.column("_kind"), value_set=pa.array(sorted(kinds))))


def _parts(folder: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    for name in sorted(storage_of(folder).names(folder)):
        if name.endswith(".parquet") and not name.startswith((".", "_")):
            with pq.ParquetFile(storage_of(folder).arrow_source(folder / name)) as file:
                listed = list(columns or file.schema_arrow.names)
                yield file.schema_arrow.empty_table().select(listed)
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=listed).select(listed)


def count_strays(
    start: Callable[[], SparkSession],
    path: Path,
    version: int,
    column: str,
    values: Collection[str],
) -> int:
    """How many rows of a merged table have a shard column with none of `values`."""
    rows = small_rows(path, version, columns=[column])
    if rows is not None:
        is_known = pc.is_in(rows.column(column), value_set=pa.array(sorted(values), pa.string()))
        return len(rows) - int(np.count_nonzero(is_known.to_numpy()))
    listed = ", ".join(text_literal(value) for value in sorted(values))
    name = quoted(column)
    of_others = f"{name} IS NULL OR {name} NOT IN ({listed})"
    return _session(start(), path, version).table("lake_rows").where(of_others).count()


def highest_seq(spark: SparkSession, sides: ComparisonSql, *, low: int, high: int) -> int | None:
    """The highest place within [low, high] at which a row was written, or a version ended."""
    session = _session(spark, sides.path, sides.version)
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
    start: Callable[[], SparkSession], path: Path, version: int, *, key: Sequence[str]
) -> dict[str, int]:
    """Counts: versions, keys, overlaps (versions that end after the next begins, or before they
    begin), not_ended (current versions that another follows), gaps (versions that end before the
    next begins).
    """
    rows = small_rows(path, version, columns=[*key, START_COLUMN, END_COLUMN])
    if rows is not None:
        return in_memory.history_intervals(rows, key)
    partition = ", ".join(map(quoted, key))
    # Of two that begin at the same place the current one comes last.
    order = f"PARTITION BY {partition} ORDER BY {START_COLUMN}, {END_COLUMN} NULLS LAST"
    row = (
        _session(start(), path, version)
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
