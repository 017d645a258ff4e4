"""Staged data files that a table adopts (K2, K12), and those that it must not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.table_schema import Kind, TableSchema
from cdc_pipeline.errors import StagingError
from cdc_pipeline.lake.paths import remove_tree
from cdc_pipeline.lake.records import BatchRecord
from cdc_pipeline.sink.delta.data_file import DataLayout
from cdc_pipeline.sink.delta.log import maintenance_note
from cdc_pipeline.sink.delta.plain_commit import put_commit
from cdc_pipeline.sink.delta.replay import readable_state
from cdc_pipeline.sink.delta_sink import DeltaSink
from tests.sink.apply.test_append import EVERY, VALUES
from tests.support.delta_reader import newest_rows
from tests.support.kills import killed_at
from tests.support.sink_values import (
    Change,
    column,
    decoded,
    head_of,
    insert,
    lose_cut,
    record_batch,
    table_schema,
    target_of,
    update,
)

ORDERS = table_schema("shop.orders", [column("id", Kind.INT32), column("total", Kind.INT64)], "id")
NEW = [insert(id=n, total=n) for n in range(5)]
MORE = [insert(id=n, total=n) for n in range(5, 9)]
Part = tuple[Sequence[Change], bool]


def recorded(
    sink: DeltaSink, schema: TableSchema, *parts: Part, first: Change, exact: bool = True
) -> BatchRecord:
    """Batch 2 of a table in which batch 1 put a row; whether a part is staged as data files."""
    sink.finish(record_batch(sink, 1, (schema, [first], 10)))
    batch, target = sink.begin(2), target_of(schema).with_state(exact=exact)
    for at, (changes, is_data) in enumerate(parts, 1):
        layout: DataLayout | None = None
        if is_data:
            layout = sink.tables.data_layout(schema.full_name, target.spec)
            assert layout is not None
        batch.add(decoded(schema, changes, first_place=100 * at), target, layout=layout)
    return batch.record(head_of(2, kind="snapshot"))


def of_orders(sink: DeltaSink, *parts: Part, exact: bool = True) -> BatchRecord:
    return recorded(sink, ORDERS, *parts, first=insert(id=-1, total=0), exact=exact)


def added(sink: DeltaSink, schema: TableSchema) -> list[dict[str, Any]]:
    """By the newest commit."""
    log = sink.paths.table(schema.full_name) / "_delta_log"
    lines = max(log.glob("*.json")).read_text().splitlines()
    return [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]


def is_adopted(sink: DeltaSink, schema: TableSchema) -> bool:
    """Whether the newest commit's files are staged ones under another name."""
    path = sink.paths.table(schema.full_name)
    staged = {file.stat().st_ino for file in sink.paths.staging(2).rglob("*.parquet")}
    found = [(path / add["path"]).stat().st_ino in staged for add in added(sink, schema)]
    assert found in ([True] * len(found), [False] * len(found))
    return found[0]


def whole_rows(sink: DeltaSink, schema: TableSchema) -> list[str]:
    names = [*schema.column_names, "_cdc_op", "_cdc_seq", "_cdc_ts"]
    return sorted(map(str, newest_rows(sink.paths.table(schema.full_name), *names)))


def ids(sink: DeltaSink) -> list[int]:
    return sorted(row["id"] for row in newest_rows(sink.paths.table("shop.orders"), "id"))


def test_k2_k12_what_a_table_adopts_is_what_would_be_written(
    open_sink: Callable[..., DeltaSink],
) -> None:
    found = []
    for lake, is_data in (("adopted", True), ("written", False)):
        sink = open_sink(lake)
        part = [insert(**row) for row in VALUES], is_data
        sink.finish(recorded(sink, EVERY, part, first=insert(**VALUES[0] | {"id": 9})))
        assert is_adopted(sink, EVERY) == is_data
        statistics = [json.loads(add["stats"]) for add in added(sink, EVERY)]
        assert sum(one["numRecords"] for one in statistics) == len(VALUES)
        assert min(one["minValues"]["id"] for one in statistics) == min(row["id"] for row in VALUES)
        found.append((whole_rows(sink, EVERY), statistics))
    assert found[0] == found[1]


def test_f156_rows_that_do_not_fit_their_data_files_are_an_error_of_the_table(
    open_sink: Callable[..., DeltaSink],
) -> None:
    sink = open_sink("lake")
    sink.finish(record_batch(sink, 1, (ORDERS, [insert(id=0, total=0)], 10)))
    target = target_of(ORDERS)
    layout = sink.tables.data_layout("shop.orders", target.spec)
    assert layout is not None
    narrow = replace(layout, schema=layout.schema.set(1, pa.field("total", pa.int8())))
    rows = decoded(ORDERS, [insert(id=1, total=300)], first_place=100)
    with pytest.raises(StagingError) as caught:
        sink.begin(2).add(rows, target, layout=narrow)
    assert caught.value.table == "shop.orders"
    assert "300" not in str(caught.value.got)


def _other_properties(sink: DeltaSink) -> None:
    """As if the table were to have other statistics from now on."""
    path = sink.paths.table("shop.orders")
    state = readable_state(path, 1)
    configuration = {
        **state.metadata["configuration"],
        "delta.dataSkippingNumIndexedCols": "1",
    }
    metadata = {"metaData": {**state.metadata, "configuration": configuration}}
    note = maintenance_note(target_of(ORDERS).state.app_id)
    put_commit(path, 2, [metadata], "SET TBLPROPERTIES", {}, note=note)


@pytest.mark.parametrize(
    ("parts", "exact", "meanwhile", "expected"),
    [
        ([(NEW, True)], True, None, True),
        ([(NEW, True), (MORE, True)], True, None, True),
        ([(NEW, True)], False, None, False),
        ([(NEW, True)], True, _other_properties, False),
        ([(NEW, True), (MORE, False)], True, None, False),
        ([(NEW, True), ([update({"id": 0, "total": 0}, {"id": 5, "total": 0})], False)],
         True, None, False),
    ],
)  # fmt: skip
def test_k2_k12_files_are_adopted_only_where_the_same_would_be_written(
    no_spark: DeltaSink,
    parts: list[Part],
    exact: bool,
    meanwhile: Callable[[DeltaSink], None] | None,
    expected: bool,
) -> None:
    sink = no_spark
    with sink.lock():
        record = of_orders(sink, *parts, exact=exact)
        if meanwhile is not None:
            meanwhile(sink)
        sink.finish(record)
        assert is_adopted(sink, ORDERS) == expected
        rows = {image["id"] for changes, _ in parts for _, _, image in changes if image}
        rows -= {image["id"] for changes, _ in parts for _, image, _ in changes if image}
        assert ids(sink) == [-1, *sorted(rows)]
        (add, *_) = added(sink, ORDERS)
        is_bounded = "total" in json.loads(add["stats"])["nullCount"]
        assert is_bounded == (meanwhile is None)


def test_k2_k12_a_batch_that_is_tried_again_finds_the_names_that_it_gave(
    no_spark: DeltaSink,
) -> None:
    sink = no_spark
    with sink.lock():
        record = of_orders(sink, (NEW, True))
        with killed_at("before_adopted"):
            sink.finish(record)
        sink.finish(record)
        lose_cut(sink, 2)
        assert sink.finish(record).tables["shop.orders"].table_version == 2
        assert is_adopted(sink, ORDERS)
        path = sink.paths.table("shop.orders")
        assert len(list(path.glob("*.parquet"))) == 2
        remove_tree(sink.paths.staging(2))
        assert ids(sink) == [-1, *range(5)]


@pytest.mark.spark
def test_k2_k12_spark_gets_staged_rows(open_sink: Callable[..., DeltaSink]) -> None:
    sink = open_sink("spark")
    record = of_orders(sink, (NEW, True))
    sink.tables._config = sink.tables._config.model_copy(update={"engine": "spark"})  # type: ignore[attr-defined]
    sink.finish(record)
    assert not is_adopted(sink, ORDERS)
    assert ids(sink) == [-1, *range(5)]


def test_k2_k12_a_staged_data_file_that_is_damaged_is_not_adopted(
    no_spark: DeltaSink, tmp_path: Path
) -> None:
    sink = no_spark
    with sink.lock():
        record = of_orders(sink, (NEW, True))
        file = tmp_path / "lake" / record.targets[0].files[0].path
        content = bytearray(file.read_bytes())
        content[10] ^= 1
        file.write_bytes(content)
        cut = sink.finish(record, recovered=True)
        assert cut.cursor.targets["shop.orders"].suspended is not None
        assert ids(sink) == [-1]
