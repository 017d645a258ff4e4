"""The conversion table (docs/types.md) against everything that converts, and the page against the table."""

from __future__ import annotations

from contextlib import closing

import pytest

from cdc_pipeline.binlog.arrow_types import arrow_type
from cdc_pipeline.binlog.table_schema import Column, Kind
from cdc_pipeline.schema.conversion import CONVERSIONS, Conversion
from cdc_pipeline.schema.ddl.columns import column_definition
from cdc_pipeline.schema.ddl.tokens import SqlModes, TokenReader
from cdc_pipeline.schema.types import delta_type
from tests.campaigns.edges.evidence import Journal
from tests.schema.spark_names import spark_name
from tests.servers import Server
from tools import types_page

MODES = SqlModes(ansi_quotes=False, explicit_defaults_for_timestamp=True, time_zone="+00:00")


def flavors(row: Conversion) -> list[bool]:
    """Whether MariaDB, for each flavor that has the row's types."""
    return {"mysql": [False], "mariadb": [True], "": [False, True]}[row.flavor]


def declared(definition: str, *, is_mariadb: bool) -> Column:
    tokens = TokenReader(f"c {definition}", modes=MODES, is_mariadb=is_mariadb)
    found = column_definition(tokens)
    assert found is not None, definition
    return found.column


@pytest.mark.parametrize("row", CONVERSIONS, ids=lambda row: row.source)
def test_ddl_arrow_and_delta_agree_with_the_table(row: Conversion) -> None:
    for is_mariadb in flavors(row):
        for definition, wanted in row.examples.items():
            column = declared(definition, is_mariadb=is_mariadb)
            assert delta_type(column) == wanted, definition
            if not (column.kind is Kind.TEXT and column.charset == "binary"):
                assert spark_name(arrow_type(column)) == wanted, definition
    assert set(row.delta) >= set(row.examples.values()) or row.shown


def test_every_kind_is_in_the_table() -> None:
    found = {
        declared(definition, is_mariadb=is_mariadb).kind
        for row in CONVERSIONS
        for is_mariadb in flavors(row)
        for definition in row.examples
    }
    assert found == set(Kind)


def test_table_maps_agree_with_the_table(server: Server, fresh_database: str) -> None:
    """One table with every definition: its table map, and the kinds that the DDL text gives."""
    is_mariadb = server.flavor == "mariadb"
    rows = [row for row in CONVERSIONS if is_mariadb in flavors(row)]
    wanted = [(text, delta, row.in_table_map) for row in rows for text, delta in row.examples.items()]
    columns = ", ".join(f"c{index} {definition}" for index, (definition, _, _) in enumerate(wanted))
    with closing(server.root_connection(database=fresh_database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, {columns})")
        cursor.execute("INSERT INTO t (id) VALUES (1)")
    schema = Journal(server, fresh_database).rows("t").schema
    for (definition, delta, in_table_map), column in zip(wanted, schema.columns[1:], strict=True):
        told = declared(definition, is_mariadb=is_mariadb)
        if in_table_map:
            assert column.kind is told.kind, definition
            assert delta_type(column) == delta, definition
        else:
            assert (column.kind, column.pad_bytes) == (Kind.BINARY, told.pad_bytes), definition


def test_the_page_shows_the_table() -> None:
    """`make docs` writes it."""
    page = types_page.PAGE.read_text(encoding="utf-8")
    assert types_page.with_table(page) == page
    for row in CONVERSIONS:
        assert f"| {row.source} |" in page
