"""The table of column types: every room answers for every type, and all answer the same, as the
servers do.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.column_types import KIND_BY_CODE, TYPES, Column, Kind, TypeSpec
from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.rows.columns import DECODERS
from cdc_pipeline.binlog.rows.columns_tiled import TILED
from cdc_pipeline.binlog.rows.result_columns import FORMS, ColumnDefinition, result_plan
from cdc_pipeline.binlog.rows.text_jsonl import json_texts
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.wire_types import WIRE_TYPES, WireType
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.operations.verify.read import leads_back
from cdc_pipeline.schema.ddl import columns as ddl
from cdc_pipeline.schema.ddl.tokens import SqlModes, TokenReader, Uncertain
from cdc_pipeline.schema.ddl.types import SYNTAXES
from cdc_pipeline.schema.evolution.backfill import DEFAULTS, backfill
from cdc_pipeline.schema.evolution.value_changes import value_change
from cdc_pipeline.schema.types import delta_type
from cdc_pipeline.sink.modes.rescue import exact
from cdc_pipeline.source.rows.key_ranges import plan_ranges
from cdc_pipeline.targets.row_policies import RowPolicy
from tests.campaigns.edges.cases import CASES, REALS
from tests.campaigns.edges.evidence import Journal
from tests.campaigns.values.domain import SAMPLES
from tests.schema.spark_names import spark_name
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[2]
MODES = SqlModes(ansi_quotes=False, explicit_defaults_for_timestamp=True, time_zone="+00:00")
EVERY_TYPE = pytest.mark.parametrize(
    ("kind", "spec"), TYPES.items(), ids=[kind.value for kind in TYPES]
)
VALUES: tuple[Any, ...] = (
    1, Decimal(1), True, "a", b"a", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
    [1.0],
    {"srid": 1, "wkb": b"a"},
)  # fmt: skip


def declared(definition: str, *, is_mariadb: bool) -> ddl.ColumnDefinition:
    tokens = TokenReader(f"c {definition}", modes=MODES, is_mariadb=is_mariadb)
    found = ddl.column_definition(tokens)
    assert tokens.at_end(), definition
    return found.in_charset("utf8mb4", is_mariadb=is_mariadb)


def examples(spec: TypeSpec) -> Iterator[tuple[str, str, bool]]:
    for is_mariadb in (False, True):
        flavor = "mariadb" if is_mariadb else "mysql"
        for example in spec.examples:
            if spec.flavor in ("", flavor) and example.flavor in ("", flavor):
                yield example.definition, example.delta, is_mariadb


def definitions(spec: TypeSpec, attributes: str = "") -> Iterator[ddl.ColumnDefinition]:
    for definition, _, is_mariadb in examples(spec):
        yield declared(f"{definition} {attributes}", is_mariadb=is_mariadb)


def table_of(column: Column) -> TableSchema:
    return TableSchema("d", "t", (column,), (0,))


# -- the table and the rooms ----------------------------------------------------------------------


def test_every_kind_has_a_row_and_every_code_a_kind() -> None:
    assert list(TYPES) == list(Kind)
    assert set(WIRE_TYPES) == set(WireType)
    codes = [code for spec in TYPES.values() for code in spec.wire]
    assert len(codes) == len(set(codes))
    assert {code for code, wire in WIRE_TYPES.items() if not wire.is_text} == set(KIND_BY_CODE)


def test_no_room_knows_a_name_that_no_type_has_nor_lacks_one() -> None:
    specs = TYPES.values()
    assert set(DECODERS) | TILED == {spec.decoder for spec in specs}
    assert not set(DECODERS) & TILED
    assert set(FORMS) == {spec.result for spec in specs}
    assert set(DEFAULTS) == {spec.default for spec in specs}
    assert set(SYNTAXES) == {name.syntax for spec in specs for name in spec.ddl}


@EVERY_TYPE
def test_ddl_delta_and_arrow_agree(kind: Kind, spec: TypeSpec) -> None:
    found = list(examples(spec))
    assert found
    for definition, delta, is_mariadb in found:
        column = declared(definition, is_mariadb=is_mariadb).column
        assert column.kind is kind, definition
        assert delta_type(column) == delta, definition
        assert spark_name(arrow_type(column)) == delta, definition
        assert exact("c", delta) in ("c", "CAST(c AS string)")


@EVERY_TYPE
def test_a_name_in_ddl_is_read(kind: Kind, spec: TypeSpec) -> None:
    """With what the examples of the type have behind their names, or nothing."""
    tails = {re.sub(r"^[A-Z0-9]+", "", example.definition, count=1) for example in spec.examples}
    for name in spec.ddl:
        flavors = {"mysql": [False], "mariadb": [True], "": [False, True]}[name.flavor]
        for is_mariadb in flavors:
            read = set()
            for tail in (*tails, " CHAR(5)"):
                text = f"c {name.name}{tail}"
                with suppress(Uncertain):
                    tokens = TokenReader(text, modes=MODES, is_mariadb=is_mariadb)
                    read.add(ddl.column_definition(tokens).column.kind)
            assert kind in read, name


@EVERY_TYPE
def test_a_value_has_a_json_text(kind: Kind, spec: TypeSpec) -> None:
    for definition in definitions(spec):
        values = sample_of(arrow_type(definition.column))
        assert json_texts(definition.column, values)[0] not in ("", "null")


def sample_of(type_: pa.DataType) -> pa.Array:
    for value in VALUES:
        try:
            return pa.array([value], type_)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
            continue
    raise AssertionError(type_)


@EVERY_TYPE
def test_a_selected_column_is_what_the_server_announces(kind: Kind, spec: TypeSpec) -> None:
    for definition in definitions(spec):
        column = definition.column
        plan = result_plan(table_of(column))
        assert arrow_type(plan.rewritten.columns[0]) == arrow_type(column)
        decimals = column.scale or column.fraction_digits
        for code in spec.announced:
            plan.checked([ColumnDefinition("c", 0, code, column.unsigned, decimals)])


@EVERY_TYPE
def test_what_delta_does_not_hold_is_rescued(kind: Kind, spec: TypeSpec) -> None:
    holds_all = bool(spec.integer_bits) or kind in (Kind.BIT, Kind.YEAR, Kind.BINARY)
    assert (spec.not_held == "") == holds_all
    column = next(definitions(spec)).column
    value = InvalidValue(0, "after", 0, spec.not_held, "00")
    policy = RowPolicy(zero_dates="null")
    assert policy.action(value, table_of(column), ()) == ("null" if spec.is_date else "rescue")


@EVERY_TYPE
def test_a_default_is_certain_or_refused_with_its_reason(kind: Kind, spec: TypeSpec) -> None:
    for attributes in ("NOT NULL", "NOT NULL DEFAULT 1", "NOT NULL DEFAULT '1'"):
        for definition in definitions(spec, attributes):
            with suppress(Uncertain):
                assert backfill(definition, modes=MODES), definition


@EVERY_TYPE
def test_the_same_definition_again_changes_no_value(kind: Kind, spec: TypeSpec) -> None:
    for definition in definitions(spec):
        column = replace(definition.column, nullable=True)
        expected = nullcontext() if spec.change != "unknown" else pytest.raises(Uncertain)
        with expected:
            modes = replace(MODES, strict=True, trims_char=True)
            assert not value_change(column, definition, modes).value, definition


@EVERY_TYPE
def test_a_type_can_be_a_key_or_is_refused_as_one(kind: Kind, spec: TypeSpec) -> None:
    for definition in definitions(spec):
        column = replace(definition.column, name="c")
        schema = replace(table_of(column), primary_key=(0,))
        assert leads_back(schema, ["c"], {"c": delta_type(definition.column)}) == (
            spec.key not in ("", "real")
        )
        if not spec.key:
            with pytest.raises(SchemaError, match="cannot be part of a key"):
                next(plan_ranges(None, schema, 1))  # type: ignore[arg-type]  # stops before it asks


# -- what is written about the types --------------------------------------------------------------


@EVERY_TYPE
def test_servers_are_asked_about_values_of_every_type(kind: Kind, spec: TypeSpec) -> None:
    """By `make campaign NAME=edges` and `make campaign NAME=values`."""
    for listed in ([*CASES, *REALS], SAMPLES):
        flavors = [
            is_mariadb
            for is_mariadb in (False, True)
            if spec.flavor in ("", ("mysql", "mariadb")[is_mariadb])
        ]
        for is_mariadb in flavors:
            of_server = [
                one for one in listed if one.flavor in ("", ("mysql", "mariadb")[is_mariadb])
            ]
            kinds = {
                declared(one.declared, is_mariadb=is_mariadb).column.kind
                for one in of_server
                if one.values
            }
            assert kind in kinds, is_mariadb


# What a new type touches at most, besides docs/reference/types.md, which `make docs` writes.
# Without a code and a decoder of its own it is the first and the last.
FILES_OF_A_TYPE = (
    "cdc_pipeline/binlog/column_types.py",  # its row
    "cdc_pipeline/binlog/wire_types.py",  # a code of its own in table maps
    "cdc_pipeline/binlog/rows/columns.py",  # a decoder of its own
    "cdc_pipeline/binlog/kernels/addresses.py",  # or any other kernel that the decoder calls
    "tests/binlog/kernels/test_mariadb_kernels.py",  # the kernel's slow twin
    "tests/campaigns/edges/cases.py",  # its values at their edges
)
# Files that name types, because these have a rule of their own there.
RULES_OF_ONE_TYPE = {
    "binlog/column_types.py", "binlog/rows/columns.py", "binlog/rows/result_columns.py",
    "binlog/rows/text_jsonl.py", "binlog/tables/server_columns.py", "binlog/tables/table_map.py",
    "binlog/tables/table_map_completion.py",
    "run/decode/schemas.py", "operations/inspect/bare_table_maps.py",
    "targets/confirmed.py", "targets/shape.py", "schema/ddl/create.py", "schema/ddl/types.py",
    "schema/evolution/alterations.py",
    "schema/evolution/backfill.py", "schema/evolution/value_changes.py", "schema/generated.py",
    "sink/modes/rescue.py",
}  # fmt: skip


def test_a_type_touches_six_files() -> None:
    assert len(FILES_OF_A_TYPE) <= 6
    assert all((ROOT / file).is_file() for file in FILES_OF_A_TYPE)
    product = ROOT / "cdc_pipeline"
    naming: dict[str, set[str]] = {}
    for file in sorted(product.rglob("*.py")):
        found = set(
            re.findall(r"(?<!Token)(?<!\w)Kind\.([A-Z0-9]+)\b", file.read_text(encoding="utf-8"))
        )
        if found & set(Kind.__members__):
            naming[str(file.relative_to(product))] = found & set(Kind.__members__)
    assert set(naming) <= RULES_OF_ONE_TYPE
    for kind in (Kind.JSON, Kind.GEOMETRY, Kind.VECTOR, Kind.UUID, Kind.INET4, Kind.INET6):
        assert [file for file, kinds in naming.items() if kind.name in kinds] == [
            "binlog/column_types.py"
        ]


def test_the_sink_names_no_nested_type() -> None:
    files = sorted((ROOT / "cdc_pipeline" / "sink").rglob("*.py"))
    assert not [file.name for file in files if "array<float>" in file.read_text(encoding="utf-8")]


# -- the servers ----------------------------------------------------------------------------------


def test_table_maps_agree_with_the_table(server: Server, fresh_database: str) -> None:
    """One table with every definition: its table map, and the kinds that the DDL text gives."""
    is_mariadb = server.flavor == "mariadb"
    wanted = [
        (definition, delta, spec)
        for spec in TYPES.values()
        for definition, delta, on_mariadb in examples(spec)
        if on_mariadb == is_mariadb
    ]
    columns = ", ".join(f"c{index} {definition}" for index, (definition, _, _) in enumerate(wanted))
    with (
        closing(server.root_connection(database=fresh_database)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, {columns})")
        cursor.execute("INSERT INTO t (id) VALUES (1)")
    schema = Journal(server, fresh_database).rows("t").schema
    for (definition, delta, spec), column in zip(wanted, schema.columns[1:], strict=True):
        told = declared(definition, is_mariadb=is_mariadb).column
        if spec.fixed_bytes:
            assert (column.kind, column.pad_bytes) == (Kind.BINARY, told.pad_bytes), definition
        else:
            assert column.kind is told.kind, definition
            assert delta_type(column) == delta, definition
