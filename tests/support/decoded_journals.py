"""Journals of real servers to decoded rows, in the shortest way: one file, one table at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.event_types import ROWS_TYPES, EventType
from cdc_pipeline.binlog.framing.framing import EventFramer
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from tests.servers import Server


def read_chunk(path: Path) -> Chunk:
    framer = EventFramer(path.name)
    chunk, consumed = framer.feed(np.frombuffer(path.read_bytes()[4:], np.uint8))
    framer.finish(path.stat().st_size - 4 - consumed)
    assert chunk is not None
    TransactionPass().apply(chunk)
    return chunk


def select_tables(chunk: Chunk, *, only: str = "") -> dict[str, tuple[TableSchema, np.ndarray]]:
    """Of each table, or of `only` one (one schema a table: make no DDL in between)."""
    names: dict[int, str] = {}
    schemas: dict[str, TableSchema] = {}
    rows: dict[str, list[int]] = {}
    for row, event in enumerate(chunk.events):
        if event["event_type"] == EventType.TABLE_MAP:
            name = table_map.table_name(chunk.body(row))
            full_name = f"{name.database}.{name.table}"
            names[int(event["table_id"])] = full_name
            if only and full_name != only:
                continue  # other tests' tables in the shared server's journal
            schema = table_map.parse(
                chunk.body(row), journal=chunk.journal, offset=int(event["offset"]),
                is_mariadb=chunk.journal_format.is_mariadb,
            )  # fmt: skip
            schemas[schema.full_name] = schema
        elif int(event["event_type"]) in ROWS_TYPES:
            name_of_rows = names[int(event["table_id"])]
            if not only or name_of_rows == only:
                rows.setdefault(name_of_rows, []).append(row)
    return {name: (schemas[name], np.array(found, np.int64)) for name, found in rows.items()}


def decode_journal(path: Path, table: str) -> DecodedRows:
    chunk = read_chunk(path)
    schema, rows = select_tables(chunk, only=table)[table]
    return decode_rows([RowsSelection(chunk, rows)], schema, epoch=0)


def decode_last(server: Server, table: str) -> DecodedRows:
    server.flush_journal()
    return decode_journal(server.journals()[-2], table)
