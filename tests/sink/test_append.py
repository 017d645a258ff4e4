"""Batches that reach a target without MERGE: appended (K12), or marked and added (K10, K11, pitfall 14)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.sink.deletion_vectors import bitmap_bytes
from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.sink.delta_commit import TableCommit
from cdc_pipeline.sink.delta_log import read_commit
from cdc_pipeline.sink.manifest import Cut
from cdc_pipeline.sink.sql import table_at
from tests.sink.build import (
    Change,
    column,
    cursor_at,
    decoded,
    delete,
    insert,
    interval_of,
    plan_of,
    table_schema,
    update,
)
from tests.torture_sink.delta_reader import newest_rows

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
LOG = "Manual Update"  # Delta's name of a commit that no command of its own made


def batch(sink: DeltaSink, number: int, changes: Sequence[Change], *, place: int, exact: bool = True) -> Cut:
    staged = sink.begin(number)
    plan = replace(plan_of(ORDERS), exact=exact)
    if number == 1:
        staged.create(plan)
    staged.add(decoded(ORDERS, changes, first_place=place), plan)
    return sink.finish(staged.record(interval=interval_of(number), cursor_after=cursor_at(number)))


def rows(sink: DeltaSink) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in newest_rows(sink.paths.table("shop.orders"), "id", "total"))


def actions(sink: DeltaSink, version: int) -> dict[str, list[Any]]:
    file = sink.paths.table("shop.orders") / "_delta_log" / f"{version:020d}.json"
    found: dict[str, list[Any]] = {}
    for line in file.read_text().splitlines():
        ((kind, value),) = json.loads(line).items()
        found.setdefault(kind, []).append(value)
    return found


@pytest.mark.spark
def test_k12_inserts_are_appended_once_and_only_where_the_target_is_exact(open_sink: Callable[..., DeltaSink]) -> None:
    crash = [False]

    def on_joint(name: str) -> None:
        if name == "before_cut" and crash[0]:
            raise KeyboardInterrupt

    sink = open_sink(on_joint=on_joint)
    batch(sink, 1, [insert(id=n, total=n) for n in range(5)], place=10)
    crash[0] = True
    with pytest.raises(KeyboardInterrupt):
        batch(sink, 2, [insert(id=n, total=n) for n in range(5, 8)], place=20)
    crash[0] = False
    pending = sink.pending_record()
    assert pending is not None
    sink.finish(pending)
    sink.paths.cut(2).unlink()
    cut = sink.finish(pending)
    assert rows(sink) == [(n, n) for n in range(8)]
    assert cut.tables["shop.orders"].delta_version == 2
    assert [transaction["version"] for transaction in actions(sink, 2)["txn"]] == [32]
    assert "remove" not in actions(sink, 2)

    # The same rows once more, and one that is there: a replay, an overlap. Not exact: keys are looked up.
    batch(sink, 3, [insert(id=7, total=70), insert(id=8, total=8)], place=30, exact=False)
    assert rows(sink) == [*((n, n) for n in range(7)), (7, 70), (8, 8)]
    # Older than the row that is there, or inserted and gone: nothing.
    batch(sink, 4, [insert(id=7, total=71), insert(id=9, total=9), delete(id=9, total=9)], place=25, exact=False)
    assert rows(sink) == [*((n, n) for n in range(7)), (7, 70), (8, 8)]
    # Updates are never appended, exact or not; a key that moves leaves no ghost; a file without rows goes.
    changes = [update({"id": n, "total": n}, {"id": n + 100, "total": n}) for n in range(5)]
    batch(sink, 5, [*changes, delete(id=5, total=5)], place=40)
    assert rows(sink) == [(6, 6), (7, 70), (8, 8), *((n + 100, n) for n in range(5))]
    commit = read_commit(sink.paths.table("shop.orders"), 5)
    assert commit is not None
    assert commit.operation == LOG
    assert commit.user_metadata["cdc_batch"] == 5
    marked = [add for add in actions(sink, 5)["add"] if "deletionVector" in add]
    assert [json.loads(add["stats"])["tightBounds"] for add in marked] == [False]
    assert len(actions(sink, 5)["remove"]) == 2
    # Columns may have other names in the files than in the table.
    table = table_at(sink.paths.table("shop.orders"))
    sink.spark.session().sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").collect()
    batch(sink, 6, [update({"id": 6, "total": 6}, {"id": 6, "total": 60}), insert(id=9, total=9)], place=50)
    assert rows(sink) == [(6, 60), (7, 70), (8, 8), (9, 9), *((n + 100, n) for n in range(5))]


@pytest.mark.spark
def test_k16_another_writer_is_met_with_another_try(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote stays; the batch is applied to that, once."""
    batch(sink, 1, [insert(id=n, total=n) for n in range(5)], place=10)
    commit = TableCommit.commit
    others = ["DELETE FROM {} WHERE id = 0"]

    def late(self: TableCommit, **named: Any) -> int:
        if others:
            sink.spark.session().sql(others.pop().format(table_at(sink.paths.table("shop.orders")))).collect()
        return commit(self, **named)

    monkeypatch.setattr(TableCommit, "commit", late)
    batch(sink, 2, [update({"id": 1, "total": 1}, {"id": 1, "total": 10}), insert(id=6, total=6)], place=20)
    assert rows(sink) == [(1, 10), *((n, n) for n in (2, 3, 4, 6))]
    assert [version["version"] for version in actions(sink, 3)["txn"]] == [32]


@pytest.mark.spark
def test_bitmaps_hold_the_rows_that_they_are_made_of(spark: Any) -> None:
    rng = np.random.default_rng(5)
    delta = spark.session()._jvm.org.apache.spark.sql.delta
    for values in ([0], [2**31, 5, 5, 2**33 + 1], rng.choice(300_000, 40_000), np.arange(65_530, 131_080)):
        made = delta.deletionvectors.RoaringBitmapArray.readFrom(bytearray(bitmap_bytes(np.array(values, np.int64))))
        expected = np.unique(values)
        assert made.cardinality() == len(expected)
        assert list(made.toArray())[:50] == expected[:50].tolist()
        assert made.last().get() == expected[-1]
