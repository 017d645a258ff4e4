"""Batches that reach a target without MERGE: appended (K12), or marked and added (K10, K11)
if they are newer than their rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.sink.apply import upsert as upserting
from cdc_pipeline.sink.delta.deletion_vectors import bitmap_bytes, bitmap_rows
from cdc_pipeline.sink.delta.log import read_commit
from cdc_pipeline.sink.delta.plain_commit import PlainCommit
from cdc_pipeline.sink.delta.replay import table_state
from cdc_pipeline.sink.delta.table_log import read_table_log
from cdc_pipeline.sink.delta_sink import DeltaSink
from cdc_pipeline.sink.spark.session import SparkProvider
from cdc_pipeline.sink.spark.sql import text_literal
from tests.support.delta_reader import newest_rows
from tests.support.kills import killed_at
from tests.support.lake_log import set_property
from tests.support.sink_values import (
    Change,
    applied,
    column,
    decoded,
    delete,
    head_of,
    insert,
    lose_cut,
    record_batch,
    table_schema,
    target_of,
    update,
)
from tests.support.spark_reader import rows_by_spark

EVERY = table_schema(
    "shop.every",
    [
        column("id", Kind.INT64),
        column("tiny", Kind.INT8),
        column("big", Kind.INT64, unsigned=True),
        column("price", Kind.DECIMAL, precision=7, scale=2),
        column("amount", Kind.DECIMAL, precision=38, scale=10),
        column("single", Kind.FLOAT),
        column("ratio", Kind.DOUBLE),
        column("name", Kind.TEXT, charset="utf8mb4"),
        column("raw", Kind.BINARY),
        column("flag", Kind.BIT, bits=1),
        column("year", Kind.YEAR),
        column("day", Kind.DATE),
        column("at", Kind.TIMESTAMP),
        column("local", Kind.DATETIME),
    ],
    "name",
    "id",
)
VALUES: list[dict[str, Any]] = [
    {
        "id": -(2**63),
        "tiny": -128,
        "big": Decimal(2**64 - 1),
        "price": Decimal("-99999.99"),
        "amount": Decimal("-9999999999999999999999999999.9999999999"),
        "single": 0.1,
        "ratio": -1e300,
        "name": "ä" * 40,
        "raw": b"\xff\x00",
        "flag": True,
        "year": 1901,
        "day": date(1, 1, 1),
        "at": datetime(1970, 1, 1, 0, 0, 1, 1, UTC),
        "local": datetime.fromisoformat("1500-01-01T00:00:00.000001"),
    },
    {
        "id": 2**63 - 1,
        "tiny": 127,
        "big": Decimal(0),
        "price": Decimal("0.01"),
        "amount": Decimal("0.0000000001"),
        "single": -0.0,
        "ratio": 5.0,
        "name": "",
        "raw": b"",
        "flag": False,
        "year": 2155,
        "day": date(9999, 12, 31),
        "at": datetime(2038, 1, 19, 3, 14, 7, 999_999, UTC),
        "local": datetime.fromisoformat("9999-12-31T23:59:59.998001"),
    },
    dict.fromkeys(c.name for c in EVERY.columns) | {"id": 0, "name": "Z z"},
]
ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")


def batch(
    sink: DeltaSink, number: int, changes: Sequence[Change], *, place: int, exact: bool = True
) -> Cut:
    staged = sink.begin(number)
    plan = target_of(ORDERS).with_state(exact=exact)
    if number == 1:
        staged.create(plan)
    staged.add(decoded(ORDERS, changes, first_place=place), plan)
    return sink.finish(staged.record(head_of(number)))


def rows(sink: DeltaSink) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(row.values()) for row in newest_rows(sink.paths.table("shop.orders"), "id", "total")
    )


def actions(sink: DeltaSink, version: int) -> dict[str, list[Any]]:
    file = sink.paths.table("shop.orders") / "_delta_log" / f"{version:020d}.json"
    found: dict[str, list[Any]] = {}
    for line in file.read_text().splitlines():
        ((kind, value),) = json.loads(line).items()
        found.setdefault(kind, []).append(value)
    return found


@pytest.mark.spark
def test_k12_inserts_are_appended_once_and_only_where_the_target_is_exact(
    engine: str, sink: DeltaSink
) -> None:
    batch(sink, 1, [insert(id=n, total=n) for n in range(5)], place=10)
    with killed_at("before_cut"):
        batch(sink, 2, [insert(id=n, total=n) for n in range(5, 8)], place=20)
    pending = sink.pending_record()
    assert pending is not None
    sink.finish(pending)
    lose_cut(sink, 2)
    cut = sink.finish(pending)
    assert rows(sink) == [(n, n) for n in range(8)]
    assert cut.tables["shop.orders"].table_version == 2
    assert [transaction["version"] for transaction in actions(sink, 2)["txn"]] == [32]
    assert "remove" not in actions(sink, 2)

    # The same rows once more, and one that is there: a replay, an overlap. Not exact: keys are
    # looked up.
    batch(sink, 3, [insert(id=7, total=70), insert(id=8, total=8)], place=30, exact=False)
    assert rows(sink) == [*((n, n) for n in range(7)), (7, 70), (8, 8)]
    # Older than the row that is there, or inserted and gone: nothing.
    batch(
        sink,
        4,
        [insert(id=7, total=71), insert(id=9, total=9), delete(id=9, total=9)],
        place=25,
        exact=False,
    )
    assert rows(sink) == [*((n, n) for n in range(7)), (7, 70), (8, 8)]
    # Updates are never appended, exact or not; a key that moves leaves no ghost; a file without
    # rows goes.
    changes = [update({"id": n, "total": n}, {"id": n + 100, "total": n}) for n in range(5)]
    batch(sink, 5, [*changes, delete(id=5, total=5)], place=40)
    assert rows(sink) == [(6, 6), (7, 70), (8, 8), *((n + 100, n) for n in range(5))]
    commit = read_commit(sink.paths.table("shop.orders"), 5)
    assert commit is not None
    assert commit.operation == {"auto": "Manual Update", "spark": "MERGE"}[engine]
    assert commit.user_metadata["cdc_batch"] == 5
    marked = [add for add in actions(sink, 5)["add"] if "deletionVector" in add]
    assert [json.loads(add["stats"])["tightBounds"] for add in marked] == [False]
    assert len(actions(sink, 5)["remove"]) == 2
    # Columns may have other names in the files than in the table.
    path = sink.paths.table("shop.orders")
    set_property(sink.spark.session(), path, "delta.columnMapping.mode", "name")
    batch(
        sink,
        6,
        [update({"id": 6, "total": 6}, {"id": 6, "total": 60}), insert(id=9, total=9)],
        place=50,
    )
    assert rows(sink) == [(6, 60), (7, 70), (8, 8), (9, 9), *((n + 100, n) for n in range(5))]


@pytest.mark.spark
def test_k34_f226_of_inserts_with_one_key_the_last_counts_wherever_batches_end(
    engine: str, sink: DeltaSink
) -> None:
    """A rule's key need not be unique, and rows may be gone without an event before they come
    again."""
    batch(sink, 1, [insert(id=1, total=1), insert(id=1, total=2)], place=10, exact=False)
    assert rows(sink) == [(1, 2)]
    batch(sink, 2, [insert(id=n, total=n) for n in (2, 3)], place=20, exact=False)
    batch(sink, 3, [insert(id=4, total=t) for t in (5, 6, 7)], place=30, exact=False)
    assert rows(sink) == [(1, 2), (2, 2), (3, 3), (4, 7)]


def literal(value: Any, delta_type: str) -> str:
    text = value.isoformat() if isinstance(value, datetime) else str(value).lower()
    return (
        f"X'{value.hex()}'"
        if isinstance(value, bytes)
        else f"CAST({text_literal(text)} AS {delta_type})"
    )


@pytest.mark.whole
@pytest.mark.spark
def test_k10_what_is_written_and_found_without_spark_is_what_spark_reads(
    engine: str, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plain type: appended, found by each value and its statistics, changed by a key of two
    columns; across a checkpoint; and changed by Spark's own way in the same files."""
    session, path = sink.spark.session(), sink.paths.table("shop.every")
    held = [dict(row) for row in VALUES]
    record = record_batch(sink, 1, (EVERY, [insert(**row) for row in held], 10))
    sink.finish(record)
    codecs = {"auto": "zstd", "spark": "snappy"}  # Arrow's files, and Spark's
    assert [file.name.split(".")[1] for file in path.glob("*.parquet")] == [codecs[engine]]
    frame = session.read.format("delta").load(str(path))
    types = {c.name: c.delta_type for c in record.targets[0].spec.columns}
    for row in held[:2]:
        where = " AND ".join(
            f"{name} = {literal(value, types[name])}" for name, value in row.items()
        )
        assert frame.where(where).count() == 1, where
    assert frame.where("year IS NULL").count() == 1
    set_property(session, path, "delta.checkpointInterval", "2")
    for number in range(2, 5):
        if number == 4:
            monkeypatch.setattr(upserting, "mirror_files", lambda *_, **__: None)
        first, second, *others = held
        new = {**second, "id": number, "price": Decimal(number)}
        changed, added = {**first, "tiny": number}, {**VALUES[2], "id": -number}
        changes = [update(first, changed), update(second, new), insert(**added)]
        held = [changed, new, *others, added]
        applied(sink, number, (EVERY, changes, 100 * number))
        found = rows_by_spark(sink, "shop.every", *EVERY.column_names).to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, stored(held))), number
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    log = read_table_log(path)
    assert log is not None
    own: Any = session
    delta_log = own._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(own._jsparkSession, str(path))
    there = [
        json.loads(text)
        for text in delta_log.startTransaction().snapshot().allFiles().toJSON().collectAsList()
    ]
    state = table_state(path, log.version)
    assert state is not None
    told = list(state.adds.values())

    def facts(add: dict[str, Any]) -> Any:
        return (
            add["path"],
            add["size"],
            add["stats"],
            add.get("deletionVector"),
            add["modificationTime"],
        )

    assert sorted(map(facts, told), key=str) == sorted(map(facts, there), key=str)
    written = {add["path"].split(".")[1] for add in told}
    assert written == {codecs[engine], "snappy"}, "auto: files of both engines"


def stored(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A FLOAT is what its four bytes say."""
    arrays = {f.name: pa.array([row[f.name] for row in rows], f.type) for f in arrow_schema(EVERY)}
    found: list[dict[str, Any]] = pa.table(arrays).to_pylist()
    return found


@pytest.mark.spark
def test_k16_another_writer_is_met_with_another_try(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a maintenance wrote stays; the batch is applied to that, once."""
    batch(sink, 1, [insert(id=n, total=n) for n in range(5)], place=10)
    others = [("delta.checkpointInterval", "7")]

    def preceded(commit: Callable[..., Any]) -> Callable[..., Any]:
        def late(*args: Any, **named: Any) -> Any:
            if others:
                path = sink.paths.table("shop.orders")
                set_property(sink.spark.session(), path, *others.pop())
            return commit(*args, **named)

        return late

    monkeypatch.setattr(PlainCommit, "commit", preceded(PlainCommit.commit))
    batch(
        sink,
        2,
        [update({"id": 1, "total": 1}, {"id": 1, "total": 10}), insert(id=6, total=6)],
        place=20,
    )
    assert not others
    assert rows(sink) == [(0, 0), (1, 10), *((n, n) for n in (2, 3, 4, 6))]
    assert [version["version"] for version in actions(sink, 3)["txn"]] == [32]


@pytest.mark.spark
def test_bitmaps_hold_the_rows_that_they_are_made_of(sink_provider: SparkProvider) -> None:
    rng = np.random.default_rng(5)
    delta = sink_provider.session()._jvm.org.apache.spark.sql.delta
    formats = getattr(delta.deletionvectors, "RoaringBitmapArrayFormat$").__getattr__("MODULE$")
    for values in (
        [0],
        [2**31, 5, 5, 2**33 + 1],
        rng.choice(300_000, 40_000),
        rng.choice(70_000, 60_000),
        np.arange(65_530, 131_080),
        [*range(10), *range(70_000, 70_010), *range(140_000, 140_010), *range(2**18, 2**18 + 9)],
    ):
        content = bitmap_bytes(np.array(values, np.int64))
        made = delta.deletionvectors.RoaringBitmapArray.readFrom(bytearray(content))
        expected = np.unique(values)
        assert made.cardinality() == len(expected)
        assert list(islice(made.toArray(), 50)) == expected[:50].tolist()  # each is a call
        assert made.last().get() == expected[-1]
        assert bitmap_rows(content).tolist() == expected.tolist()
        made.runOptimize()
        compact = bytes(made.serializeAsByteArray(formats.Portable()))
        assert bitmap_rows(compact).tolist() == expected.tolist(), "as Delta's own writers leave it"
        for size in range(0, len(compact), max(1, len(compact) // 40)):
            with pytest.raises((ValueError, struct.error)):
                bitmap_rows(compact[:size])
