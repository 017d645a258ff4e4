"""Columns and rows of a target, from its rule and its source table alone."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.errors import ConfigError, IncompleteRowsError
from cdc_pipeline.schema.target_spec import ShapedTable
from cdc_pipeline.schema.types import delta_type, is_lossless, target_columns
from cdc_pipeline.sink.modes.expand import DELETE, UPDATE, expand
from cdc_pipeline.targets.masks import Masks
from cdc_pipeline.targets.shape import (
    _retyped,
    check_rows,
    column_of,
    recorded_shape,
    shape_rows,
    shape_table,
)
from tests.support.sink_values import decoded, delete, insert, update
from tests.targets.build import HASH, PERSON, routes_of
from tests.targets.test_masking import ROWS, digest, person

RULE: dict[str, Any] = {
    "name": "crm.people",
    "columns": {"exclude": ["raw"]},
    "masks": {"email": HASH},
    "types": {"AMOUNT": "string"},
    "shard_column": "shard",
    "shard_value": "{table}",
    "computed": {"year": {"expression": "year(born)", "type": "int"}},
}


def shaped(rule: dict[str, Any]) -> ShapedTable:
    (route,) = routes_of(rule).of_table("shop.person")
    return shape_table(route, target_columns(PERSON), PERSON.key_names)


def test_columns_and_key_of_a_target() -> None:
    made = shaped(RULE)
    assert [(column.name, column.delta_type) for column in made.columns] == [
        ("id", "int"),
        ("Email", "string"),
        ("amount", "string"),
        ("born", "timestamp_ntz"),
        ("shard", "string"),
        ("year", "int"),
    ]
    assert made.key == ("id", "shard")


def test_rows_have_the_targets_columns_and_can_be_staged() -> None:
    routes = routes_of(RULE)
    (route,) = routes.of_table("shop.person")
    rows = shape_rows(Masks(routes.of_table).apply(ROWS), route)
    made = shaped(RULE)
    assert [column.name for column in made.columns] == list(rows.schema.column_names)
    assert [delta_type(column) for column in rows.schema.columns] == [
        column.delta_type for column in made.columns
    ]
    assert rows.schema.key_names == made.key
    assert rows.schema.full_name == "shop.person"
    assert rows.after.slice(0, 2).to_pylist() == [
        {
            "id": 1,
            "Email": digest("1@x"),
            "amount": "1.50",
            "born": None,
            "shard": "person",
            "year": None,
        },
        {"id": 2, "Email": None, "amount": "1.50", "born": None, "shard": "person", "year": None},
    ]
    assert rows.before.column("shard").to_pylist() == [None, "person", "person"]
    staged = expand(rows, columns=rows.schema.column_names, key=made.key)
    assert not staged.partial
    assert staged.table.num_rows == 4  # the key update counts twice


def test_k10_absent_columns_stay_absent() -> None:
    routes = routes_of({**RULE, "computed": {}})
    (route,) = routes.of_table("shop.person")
    part = decoded(
        PERSON, [update({"id": 1}, {"amount": Decimal(2)}), insert(**person(3))], first_place=1
    )
    rows = shape_rows(part, route)
    bits = np.unpackbits(rows.after_present, axis=1, bitorder="little")[:, :5]
    assert bits.tolist() == [[0, 0, 1, 0, 1], [1, 1, 1, 1, 1]]
    bits = np.unpackbits(rows.before_present, axis=1, bitorder="little")[:, :5]
    assert bits.tolist() == [[1, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    staged = expand(rows, columns=rows.schema.column_names, key=("id", "shard"))
    assert staged.partial


def test_k10_f225_an_image_that_lacks_what_a_computed_column_reads_lacks_it_too() -> None:
    """So a row that is marked as deleted keeps its last value."""
    (route,) = routes_of({**RULE, "mode": "soft_delete"}).of_table("shop.person")
    born = datetime.fromisoformat("2001-02-03")
    part = decoded(
        PERSON,
        [
            delete(id=1),
            delete(**person(2)),
            update({"id": 3, "born": born}, {"amount": Decimal(2)}),
        ],
        first_place=1,
    )
    rows = shape_rows(part, route)
    staged = expand(rows, columns=rows.schema.column_names, key=("id", "shard"), before_values=True)
    year = rows.schema.column_names.index("year")
    ops = staged.table.column("_op").to_pylist()
    known = dict(zip(ops, staged.table.column(f"p{year}").to_pylist(), strict=True))
    assert known[UPDATE]  # from the image before
    gone = staged.table.filter(pc.equal(staged.table.column("_op"), DELETE))
    assert gone.column(f"p{year}").to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        ({"filter": "amount > 1"}, "Email|born"),
        ({"computed": {"y": {"expression": "year(born)", "type": "int"}}}, "born"),
        ({"computed": {"y": {"expression": "amount + 1", "type": "int"}}}, None),
        ({"columns": {"exclude": ["email"]}}, None),
    ],
)
def test_k14_expressions_need_the_columns_that_they_read(
    rule: dict[str, Any], lacks: str | None
) -> None:
    """A row that enters a filter has no old row to take absent columns from: they would become NULL
    in silence."""
    (route,) = routes_of(rule).of_table("shop.person")
    part = decoded(PERSON, [update({"id": 1}, {"amount": Decimal(2)})], first_place=1)
    if lacks is None:
        check_rows(part, route)
    else:
        with pytest.raises(IncompleteRowsError, match="binlog_row_image"):
            check_rows(part, route)
    check_rows(ROWS, route)


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        ({"masks": {"ID": {"fixed": 1}}}, "masks.id"),
        ({"masks": {"id": "drop"}}, "masks.id"),
        ({"columns": {"exclude": ["i*"]}}, "columns"),
        ({"columns": {"include": ["email"]}}, "columns"),
        ({"filter": "nothing > 1"}, "filter"),
        ({"computed": {"EMAIL": {"expression": "id", "type": "int"}}}, "computed.EMAIL"),
        ({"shard_column": "Id"}, "shard_column"),
        ({"partition_by": ["nothing"]}, "partition_by"),
        ({"partition_by": ["id"], "columns": {"include": ["id"]}}, "partition_by"),
        ({"types": {"amount": "int"}}, "types.amount"),
        ({"types": {"id": "smallint"}}, "types.id"),
    ],
)
def test_k14_rules_that_do_not_fit_the_table(rule: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as found:
        shaped(rule)
    assert found.value.setting == f"targets.0.{setting}"


def test_k12_what_keeps_a_target_from_plain_appends() -> None:
    def possible(rule: dict[str, Any]) -> bool:
        (route,) = routes_of(rule).of_table("shop.person")
        shape = recorded_shape(route.rule)
        return shape is None or shape.is_exact_possible(("id",))

    assert possible({})
    assert possible({"masks": {"email": HASH}, "columns": {"exclude": ["raw"]}})
    assert not possible({"masks": {"ID": HASH}})
    assert not possible({"filter": "id > 1"})
    assert not possible({"shard_column": "shard"})


TYPES = [
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(3,0)",
    "decimal(6,2)",
    "decimal(10,0)", "decimal(20,0)", "decimal(22,2)", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
]  # fmt: skip
EDGES = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1, 2**53 + 1],
    "float": [16777216.0, 0.1, 3.4e38],
    "double": [2.0**53, 0.1, 1e300],
    "decimal(3,0)": [Decimal(999), Decimal(-999)],
    "decimal(6,2)": [Decimal("9999.99"), Decimal("-0.01")],
    "decimal(10,0)": [Decimal(9999999999)],
    "decimal(20,0)": [Decimal(2**64 - 1)],
    "decimal(22,2)": [Decimal("18446744073709551615.99")],
}


def test_an_override_is_lossless_or_refused() -> None:
    """What is allowed holds the edges of the source's type, and they come back; by Arrow's own
    checked casts."""
    for before, after in product(EDGES, TYPES):
        if not is_lossless(before, after):
            continue
        source, target = column_of("c", before), column_of("c", after)
        values = pa.array([*EDGES[before], None], arrow_type(source))
        kept = _retyped(values, source, arrow_type(target))
        assert kept.type == arrow_type(target), (before, after)
        if before == "boolean" or after == "binary":
            assert len(set(kept.to_pylist())) == len(values), (before, after)
        else:
            is_exact = pa.types.is_decimal(kept.type) or pa.types.is_integer(kept.type)
            back = kept if is_exact else kept.cast(values.type)
            assert back.to_pylist() == values.to_pylist(), (before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("bigint", "int"), ("bigint", "double"), ("int", "float"), ("decimal(20,0)", "bigint"),
        ("double", "float"),
        ("decimal(6,2)", "int"), ("decimal(6,2)", "decimal(6,1)"), ("decimal(6,2)", "decimal(6,3)"),
        ("string", "int"),
        ("binary", "string"), ("timestamp", "timestamp_ntz"), ("timestamp_ntz", "date"),
        ("int", "decimal(9,0)"),
        ("struct<srid:int,wkb:binary>", "string"), ("bigint", "decimal(18,0)"),
        ("decimal(10,0)", "int"),
    ],
)  # fmt: skip
def test_lossy_overrides_are_refused(before: str, after: str) -> None:
    assert not is_lossless(before, after)
