"""The Delta types of columns (docs/reference/types.md), and names and keys of targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.lake import records
from cdc_pipeline.schema.types import TargetColumn, delta_type, keyless, target_columns
from tests.schema.spark_names import spark_name


def column(kind: Kind, **parts: Any) -> Column:
    return replace(Column("c", kind, 0, 0, True), **parts)


# docs/reference/types.md, row by row
TABLE = [
    (column(Kind.INT8), "tinyint"),
    (column(Kind.INT8, unsigned=True), "smallint"),
    (column(Kind.INT16), "smallint"),
    (column(Kind.INT16, unsigned=True), "int"),
    (column(Kind.INT24), "int"),
    (column(Kind.INT24, unsigned=True), "int"),
    (column(Kind.INT32), "int"),
    (column(Kind.INT32, unsigned=True), "bigint"),
    (column(Kind.INT64), "bigint"),
    (column(Kind.INT64, unsigned=True), "decimal(20,0)"),
    (column(Kind.BIT, bits=1), "boolean"),
    (column(Kind.BIT, bits=2), "bigint"),
    (column(Kind.BIT, bits=63), "bigint"),
    (column(Kind.BIT, bits=64), "decimal(20,0)"),
    (column(Kind.DECIMAL, precision=10, scale=2), "decimal(10,2)"),
    (column(Kind.DECIMAL, precision=38, scale=30), "decimal(38,30)"),
    (column(Kind.DECIMAL, precision=39, scale=0), "string"),
    (column(Kind.DECIMAL, precision=65, scale=30), "string"),
    (column(Kind.FLOAT), "float"),
    (column(Kind.DOUBLE), "double"),
    (column(Kind.YEAR), "smallint"),
    (column(Kind.DATE), "date"),
    (column(Kind.DATETIME, fraction_digits=6), "timestamp_ntz"),
    (column(Kind.TIMESTAMP), "timestamp"),
    (column(Kind.TIME), "string"),
    (column(Kind.TEXT, charset="latin1"), "string"),
    (column(Kind.BINARY, pad_bytes=16), "binary"),
    (column(Kind.ENUM, labels=("a",)), "string"),
    (column(Kind.SET, labels=("a",)), "string"),
    (column(Kind.JSON), "string"),
    (column(Kind.GEOMETRY), "struct<srid:int,wkb:binary>"),
    (column(Kind.VECTOR), "array<float>"),
    (column(Kind.UUID, pad_bytes=16), "string"),
    (column(Kind.INET4, pad_bytes=4), "string"),
    (column(Kind.INET6, pad_bytes=16), "string"),
]


@pytest.mark.parametrize(("source", "wanted"), TABLE)
def test_every_kind_has_its_delta_type_and_the_arrow_side_agrees(
    source: Column, wanted: str
) -> None:
    assert delta_type(source) == wanted
    assert spark_name(arrow_type(source)) == wanted


def test_text_in_charset_binary_is_bytes() -> None:
    assert delta_type(column(Kind.TEXT, charset="binary")) == "binary"


@pytest.mark.parametrize(
    "source",
    [
        column(Kind.BIT, bits=0),
        column(Kind.BIT, bits=65),
        column(Kind.DECIMAL),
        column(Kind.DECIMAL, precision=66),
    ],
)
def test_impossible_sizes_stop(source: Column) -> None:
    with pytest.raises(SchemaError, match="`c`"):
        delta_type(source)


def _schema(*names: str, key: tuple[int, ...] = ()) -> TableSchema:
    return TableSchema(
        "d", "t", tuple(replace(column(Kind.INT32), name=name) for name in names), key
    )


def test_columns_and_key_are_named_in_order() -> None:
    schema = _schema("a", "b", "c", key=(2, 0))
    assert target_columns(schema)[1] == TargetColumn(name="b", delta_type="int")
    assert schema.key_names == ("c", "a")


def test_a_table_without_a_key_is_named_with_the_way_out() -> None:
    error = keyless("d.t")
    assert error.table == "d.t"
    assert "ALTER TABLE `d`.`t` ADD PRIMARY KEY" in str(error.next_step)


@pytest.mark.parametrize(
    "names",
    [
        ("a", "A"),
        ("É", "é"),
        ("_cdc_op",),
        ("_CDC_x",),
        ("",),
        ("a b",),
        ("a,b",),
        ("a=b",),
        ("a\tb",),
    ],
)
def test_names_that_delta_cannot_hold_stop_by_name(names: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError) as caught:
        target_columns(_schema(*names))
    assert caught.value.table == "d.t"
    assert "tables.exclude" in str(caught.value.next_step)


def test_the_manifest_records_these_very_classes() -> None:
    assert records.TargetColumn is TargetColumn
