"""The comparison itself, on Delta tables made by hand: every kind of difference, and what counts as
equal."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.lake.records import RecordedTarget
from cdc_pipeline.schema.target_spec import TargetSpec
from cdc_pipeline.schema.types import TargetColumn
from cdc_pipeline.sink.modes.expand import INSERT, TS_TYPE, StagedRows
from cdc_pipeline.sink.verify.compare import (
    DIFFERENCES,
    Changed,
    ComparisonResult,
    Wanted,
    compare,
    duplicate_keys,
    highest_seq,
    history_intervals,
    read_differences,
)
from cdc_pipeline.sink.verify.scratch import Scratch
from cdc_pipeline.sink.verify.sides import ComparisonSql

pytestmark = pytest.mark.spark

COLUMNS = (("id", "int"), ("a", "int"), ("b", "int"))
Row = tuple[int | None, int | None, int | None]


def source(scratch: Scratch, target: RecordedTarget, rows: list[Row]) -> list[Path]:
    made = scratch.rows("source", target)
    count = len(rows)
    arrays: dict[str, Any] = {
        "_op": pa.array([INSERT] * count, pa.int8()),
        "_seq": pa.array([Decimal(0)] * count, pa.decimal128(38, 0)),
        "_ts": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * count, TS_TYPE),
    }
    arrays |= {f"c{at}": pa.array([row[at] for row in rows], pa.int32()) for at in range(3)}
    made.write(StagedRows(pa.table(arrays), False, 0, count, 0, 0))
    made.close()
    return scratch.files("source")


def told(sides: ComparisonSql, found: ComparisonResult) -> list[tuple[Any, ...]]:
    if found.folder is None:
        return []
    kinds = (*DIFFERENCES, "left_out")
    keys = [f"c{at}" for at in sides.key_positions]
    rows = read_differences(sides, found, kinds, limit=100).to_pylist()
    return [
        (row["_kind"], tuple(row[key] for key in keys), tuple(row["_columns"]), row["_more"])
        for row in rows
    ]


@pytest.mark.whole
def test_k17_each_kind_is_told_and_keys_that_changed_are_left_out(
    spark: Any, tmp_path: Path
) -> None:
    lake, scratch = tmp_path / "t", Scratch(tmp_path / "scratch", tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{lake}` (id int, a int, b int, _cdc_seq decimal(38,0)) USING delta"
    )
    # 1 and 2 hold the same values in other columns: a hash that passes over NULL cannot tell them.
    spark.sql(
        f"INSERT INTO delta.`{lake}` VALUES "
        "(1,NULL,1,5),(2,1,NULL,5),(3,3,3,5),(5,5,5,5),(6,6,6,5),(6,6,6,6),(7,7,7,99),(NULL,8,8,5)"
    )
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in COLUMNS)
    target = RecordedTarget(table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=("id",)))
    by_key = ComparisonSql(
        target=target, columns=("id", "a", "b"), key=("id",), path=lake, version=1
    )
    rows: list[Row] = [
        (1, 1, None),
        (2, 1, None),
        (3, 3, 3),
        (4, 4, 4),
        (6, 6, 6),
        (7, 70, 7),
        (None, 8, 8),
        (9, 9, 9),
    ]
    files = source(scratch, target, rows)

    def compared(sides: ComparisonSql, changed: Changed, **more: Any) -> ComparisonResult:
        return compare(
            spark, sides, source_files=files, source_rows=len(rows), source_bytes=1000,
            folder=scratch.new_folder(),
            changed=changed, **more,
        )  # fmt: skip

    scratch.add_table("changed", pa.table({"k0": pa.array([9, None], pa.int32())}))
    first = compared(by_key, Changed(tuple(scratch.files("changed")), after_seq=98))
    assert told(by_key, first) == [
        ("different", (1,), ("a", "b"), 0), ("duplicate", (6,), (), -1), ("extra", (5,), (), -1),
        ("left_out", (7,), (), 0), ("left_out", (9,), (), 0), ("left_out", (None,), (), 0),
        ("missing", (4,), (), 1),
    ]  # fmt: skip
    assert (first.rows_source, first.rows_lake, first.differences, first.left_out) == (5, 6, 4, 3)

    assert first.folder is not None
    again = compared(by_key, Changed(), wanted=Wanted(first.folder, ("left_out",)))
    assert told(by_key, again) == [("different", (7,), ("a",), 0), ("missing", (9,), (), 1)]
    scratch.add_table("unread", pa.table({"k0": pa.array([5, 8], pa.int32())}))
    without = compared(by_key, Changed(), unread=scratch.files("unread"))
    assert without.stale == 1
    assert "extra" not in without.counts
    assert highest_seq(spark, by_key, low=5, high=98) == 6
    assert highest_seq(spark, by_key, low=100, high=200) is None

    by_values = ComparisonSql(target=target, columns=("id", "a"), key=(), path=lake, version=1)
    assert told(by_values, compared(by_values, Changed())) == [
        ("extra", (1, None), (), -1), ("extra", (5, 5), (), -1), ("extra", (6, 6), (), -1),
        ("extra", (7, 7), (), -1),
        ("missing", (1, 1), (), 1), ("missing", (4, 4), (), 1), ("missing", (7, 70), (), 1),
        ("missing", (9, 9), (), 1),
    ]  # fmt: skip


@pytest.mark.whole
def test_a_changelog_is_its_last_images_and_what_they_do_not_hold_does_not_differ(
    spark: Any, tmp_path: Path
) -> None:
    lake, scratch = tmp_path / "t", Scratch(tmp_path / "scratch", tmp_path)
    before = "struct<id: int, a: int, b: int>"
    spark.sql(
        f"CREATE TABLE delta.`{lake}` (id int, a int, b int, _cdc_op string, _cdc_seq "
        f"decimal(38,0), _cdc_before {before}, _cdc_absent array<string>) USING delta"
    )
    old = f"CAST(named_struct('id', {{}}, 'a', 0, 'b', 0) AS {before})"
    spark.sql(f"""
        INSERT INTO delta.`{lake}` VALUES (9,9,9,'insert',1,NULL,NULL),
            (NULL,NULL,NULL,'truncate',2,NULL,NULL),
            (1,1,1,'insert',3,NULL,NULL), (2,2,2,'insert',5,NULL,NULL),
                (3,3,3,'insert',7,NULL,NULL),
            (1,1,NULL,'update',11,{old.format(1)},array('b')),
                (4,2,2,'update',13,{old.format(2)},NULL),
            (3,3,3,'delete',14,{old.format(3)},NULL)""")
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in COLUMNS)
    target = RecordedTarget(
        table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=(), mode="changelog")
    )
    sides = ComparisonSql(
        target=target, columns=("id", "a", "b"), key=("id",), path=lake, version=1
    )
    files = source(scratch, target, [(1, 1, 77), (4, 2, 3)])
    found = compare(
        spark,
        sides,
        source_files=files,
        source_rows=2,
        source_bytes=100,
        folder=scratch.new_folder(),
        changed=Changed(),
    )
    assert told(sides, found) == [("different", (4,), ("b",), 0)]
    assert (found.rows_source, found.rows_lake) == (2, 2)


def test_versions_that_overlap_or_do_not_end_are_counted_and_two_current_ones_are_a_duplicate(
    spark: Any, tmp_path: Path
) -> None:
    lake, scratch = tmp_path / "t", Scratch(tmp_path / "scratch", tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{lake}` (id int, a int, b int, _cdc_seq decimal(38,0), __START_AT "
        "decimal(38,0), __END_AT decimal(38,0)) USING delta"
    )
    # One after the other; the first ends too late; the first does not end; a row that went and came
    # back.
    spark.sql(f"""
        INSERT INTO delta.`{lake}` VALUES (1,0,0,1,1,5),(1,1,1,5,5,NULL),
            (2,0,0,1,1,6),(2,2,2,4,4,NULL),
            (3,3,3,1,1,NULL),(3,3,3,3,3,NULL), (4,0,0,1,1,2),(4,9,4,5,5,NULL)""")
    assert history_intervals(spark, lake, 1, key=("id",)) == {
        "versions": 8, "keys": 4, "overlaps": 1, "not_ended": 1, "gaps": 1
    }  # fmt: skip
    assert duplicate_keys(spark, lake, 1, mode="history", key=("id",)) == 1
    columns = tuple(TargetColumn(name=name, delta_type=kind) for name, kind in COLUMNS)
    target = RecordedTarget(
        table="d.t", app_id="x", spec=TargetSpec(columns=columns, key=("id",), mode="history")
    )
    sides = ComparisonSql(
        target=target, columns=("id", "a", "b"), key=("id",), path=lake, version=1
    )
    rows: list[Row] = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4)]
    found = compare(
        spark, sides, source_files=source(scratch, target, rows), source_rows=4, source_bytes=100,
        folder=scratch.new_folder(), changed=Changed(),
    )  # fmt: skip
    assert told(sides, found) == [("different", (4,), ("a",), 0), ("duplicate", (3,), (), -1)]
