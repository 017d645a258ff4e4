"""What the tests of the table reader share: a reader on a test server, and a table's schema from
both sources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from cdc_pipeline.binlog.arrow_types import arrow_schema
from cdc_pipeline.binlog.decoded import InvalidValue
from cdc_pipeline.binlog.selected import SelectedRows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.source.live.catalog import read_catalog
from cdc_pipeline.source.live.connection import ServerConnection
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, KeyRange, TableReader
from tests.campaigns.edges.evidence import Journal
from tests.servers import Server
from tests.support.live_source import live_config


@contextmanager
def table_reader(
    server: Server, *, batch_bytes: int = 32 << 20, **changes: Any
) -> Iterator[TableReader]:
    """A reader with an account that may capture."""
    with TableReader(live_config(server, **changes), batch_bytes=batch_bytes) as reader:
        yield reader


@contextmanager
def control(server: Server) -> Iterator[ServerConnection]:
    """A control connection with an account that may capture."""
    connection = ServerConnection(live_config(server))
    try:
        yield connection
    finally:
        connection.close()


def catalog_schema(server: Server, database: str, table: str) -> TableSchema:
    """The table as information_schema tells it."""
    with control(server) as connection:
        return read_catalog(connection, lambda *name: name == (database, table)).tables[
            database, table
        ][0]


def selected(
    reader: TableReader, schema: TableSchema, bounds: KeyRange | None = ALL_ROWS, **options: Any
) -> tuple[pa.RecordBatch, list[InvalidValue]]:
    """All rows of one SELECT as one batch."""
    return joined(schema, list(reader.select(schema, bounds=bounds, **options)))


def joined(
    schema: TableSchema, parts: list[SelectedRows]
) -> tuple[pa.RecordBatch, list[InvalidValue]]:
    """Batches as one."""
    first, invalid = 0, []
    for part in parts:
        part.rows.validate(full=True)
        invalid += [value._replace(row=value.row + first) for value in part.invalid]
        first += len(part)
    nothing = pa.RecordBatch.from_pylist([], arrow_schema(schema))
    return pa.concat_batches([nothing, *(part.rows for part in parts)]), sorted(invalid)


def differences(
    server: Server, journal: Journal, table: str, *, schema: TableSchema | None = None
) -> list[str]:
    """Columns that the two ways tell differently, ``invalid`` for the lists of invalid values."""
    kinds = {column.name: vars_of(column) for column in schema.columns} if schema else None
    decoded = journal.rows(table, kinds=kinds)
    with table_reader(server) as reader:
        rows, invalid = selected(reader, schema or decoded.schema)
    assert rows.schema.equals(decoded.after.schema)
    assert rows.num_rows == decoded.after.num_rows > 0
    found = [
        name
        for name in rows.schema.names
        if not rows.column(name).equals(decoded.after.column(name))
    ]
    return found + (["invalid"] if invalid != sorted(decoded.invalid) else [])


def vars_of(column: object) -> dict[str, object]:
    """What a catalog tells of a column and the wire's own form of it does not contradict."""
    names = ("kind", "fraction_digits", "charset", "labels", "pad_bytes")
    return {name: getattr(column, name) for name in names}
