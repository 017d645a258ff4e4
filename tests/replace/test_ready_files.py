"""Rows staged as data files are for Spark what it would have written: rows, types, statistics (K2, K12)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.table_schema import Kind
from cdc_pipeline.sink.delta import DeltaSink
from cdc_pipeline.sink.delta_commit import TableCommit
from tests.replace.lake import Lakes, finish, plan
from tests.sink.build import column, decoded, insert, table_schema

COLUMNS = [
    column("id", Kind.INT32),
    column("tiny", Kind.INT8),
    column("utiny", Kind.INT8, unsigned=True),
    column("small", Kind.INT16),
    column("big", Kind.INT64),
    column("ubig", Kind.INT64, unsigned=True),
    column("f", Kind.FLOAT),
    column("d", Kind.DOUBLE),
    column("dec", Kind.DECIMAL, precision=10, scale=2),
    column("wide", Kind.DECIMAL, precision=30, scale=5),
    column("year", Kind.YEAR),
    column("day", Kind.DATE),
    column("local", Kind.DATETIME),
    column("moment", Kind.TIMESTAMP),
    column("text", Kind.TEXT),
    column("bytes", Kind.BINARY),
    column("none", Kind.TEXT),
]
LONG = "é" * 40


def values(n: int) -> dict[str, Any]:
    at = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC) + timedelta(days=n)
    return {
        "id": n,
        "tiny": n - 100,
        "utiny": 100 + n,
        "small": -n,
        "big": n * 10**15,
        "ubig": Decimal(2**64 - 1 - n),
        "f": n / 4,
        "d": n / 3 if n else None,
        "dec": Decimal(n) + Decimal("0.50"),
        "wide": Decimal(n) * 10**20 + Decimal("0.00001"),
        "year": 2000 + n,
        "day": date(2024, 1, 1) + timedelta(days=n),
        "local": at.replace(tzinfo=None),
        "moment": at,
        "text": f"{LONG}{n:03d}" if n % 2 else "",
        "bytes": bytes([n, 0]),
        "none": None,
    }


@pytest.mark.spark
def test_k2_k12_ready_files_are_what_spark_would_have_written(open_sink: Callable[[str], DeltaSink]) -> None:
    sink = Lakes(open_sink).main
    schemas = {name: table_schema(f"shop.{name}", COLUMNS, "id") for name in ("ready", "spark", "odd")}
    plans = {name: replace(plan(schema), exact=True) for name, schema in schemas.items()}
    first, second = [insert(**values(n)) for n in range(20)], [insert(**values(n)) for n in range(50, 60)]
    batch = sink.begin(1)
    for name, made in plans.items():
        batch.create(made)
        batch.add(decoded(schemas[name], first, first_place=10), made, ready=name != "spark")
    cut = finish(sink, batch, kind="load")
    assert {name: table.rows_inserted for name, table in cut.tables.items()} == dict.fromkeys(cut.tables, 20)
    session: Any = sink.spark.session()
    table = {name: f"delta.`{sink.paths.table(f'shop.{name}')}`" for name in schemas}
    session.sql(f"ALTER TABLE {table['odd']} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    batch = sink.begin(2)
    for name, made in plans.items():
        # A value that was rescued, and the column that tells of it, begin in the middle.
        made = replace(made, rescued=("d",))
        invalid = [InvalidValue(0, "after", 7, "no number", "nan")]
        batch.add(decoded(schemas[name], second, first_place=40, invalid=invalid), made, ready=name != "spark")
    record = batch.record(
        interval=cut.interval, cursor_after=cut.cursor.model_copy(update={"batch_number": 2}), kind="load"
    )
    made = {target.table: (len(target.files), len(target.ready_files)) for target in record.targets}
    assert made == {"shop.ready": (0, 1), "shop.odd": (0, 1), "shop.spark": (1, 0)}
    sink.finish(record)
    sink.paths.cut(2).unlink()
    sink.finish(record)  # nothing twice

    everything = {
        name: f"SELECT * EXCEPT (_cdc_rescued), map_entries(_cdc_rescued) AS r FROM {table[name]}" for name in table
    }
    for name in ("ready", "odd"):
        assert session.table(table[name]).schema == session.table(table["spark"]).schema
        for a, b in ((name, "spark"), ("spark", name)):
            assert session.sql(f"{everything[a]} EXCEPT ALL {everything[b]}").collect() == []
    told = {name: statistics(sink, name, 1) for name in ("ready", "spark")}
    assert told["ready"]["numRecords"] == told["spark"]["numRecords"] == 20
    assert told["ready"]["nullCount"] == told["spark"]["nullCount"]
    for name, low in told["spark"]["minValues"].items():
        assert told["ready"]["minValues"].get(name) == low, name
        high = told["spark"]["maxValues"][name]
        if name in ("local", "moment", "_cdc_ts", "text"):  # rounded up, the others are exact
            assert told["ready"]["maxValues"][name].rstrip("Z") >= high.rstrip("Z"), name
        else:
            assert told["ready"]["maxValues"][name] == high, name
    # Files are left out by what is said of them, and never where they hold a row.
    path = sink.paths.table("shop.ready")
    outside = [
        "id = 30",
        "big > 10000000000000000000",
        "day < DATE'2024-01-01'",
        "text > 'é\U0010ffff'",
        "moment > TIMESTAMP'2024-07-05T07:08:09.123457Z'",
        "ubig < CAST(5 AS decimal(20,0))",
    ]
    for predicate in outside:
        assert TableCommit(session, path).scan(predicate) is None, predicate
    for name in ("ubig", "dec", "day", "local", "moment", "text"):
        highest, lowest = (values(n)[name] for n in ((19, 0) if name != "ubig" else (0, 19)))
        for value in (highest, lowest):
            assert session.table(table["ready"]).where(session_column(name) == value).count() >= 1, name


def session_column(name: str) -> Any:
    from pyspark.sql import functions

    return functions.col(name)


def statistics(sink: DeltaSink, name: str, version: int) -> dict[str, Any]:
    file = sink.paths.table(f"shop.{name}") / "_delta_log" / f"{version:020d}.json"
    adds = [json.loads(line)["add"] for line in file.read_text().splitlines() if '"add"' in line]
    assert len(adds) == 1
    found: dict[str, Any] = json.loads(adds[0]["stats"])
    return found
