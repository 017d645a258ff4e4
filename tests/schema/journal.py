"""Statements and table maps of a real server's journal, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc_pipeline.binlog.chunk import Chunk
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.seq import pack_seq
from cdc_pipeline.binlog.table_schema import TableSchema
from cdc_pipeline.binlog.tables import table_map
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.ddl.tokens import SqlModes
from cdc_pipeline.schema.history.apply_ddl import LoggedStatement, apply
from cdc_pipeline.schema.history.history import SchemaHistory
from tests.servers import Server
from tests.support.decoded_journals import read_chunk

_DELETES = (EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS_V2)


@dataclass(frozen=True)
class Said:
    sql: str
    database: str
    offset: int
    modes: SqlModes


@dataclass(frozen=True)
class Deleted:
    chunk: Chunk
    row: int
    schema: TableSchema


def read_journal(server: Server) -> Iterator[Said | TableSchema | Deleted]:
    """Everything since the last `flush_journal`, which this closes."""
    server.flush_journal()
    chunk = read_chunk(server.journals()[-2])
    is_mariadb = chunk.journal_format.is_mariadb
    schemas: dict[int, TableSchema] = {}
    history = SchemaHistory()
    for row, event in enumerate(chunk.events):
        offset = int(event["offset"])
        if event["event_type"] == EventType.QUERY:
            said = query.parse_query(chunk, row)
            modes = SqlModes.from_bits(
                said.sql_mode or 0,
                is_mariadb=is_mariadb,
                explicit_defaults_for_timestamp=True,
                time_zone="+00:00",
            )
            place = pack_seq(1, 1, offset)
            logged = LoggedStatement(
                parse_statement(said.sql, said.database, is_mariadb=is_mariadb, modes=modes), place
            )
            apply(history, logged, lambda _database, _table: True)
            yield Said(said.sql, said.database, offset, modes)
        elif event["event_type"] == EventType.TABLE_MAP:
            name = table_map.table_name(chunk.body(row))
            version = history.at(name.database, name.table, pack_seq(1, 1, offset))
            schema = table_map.parse(
                chunk.body(row),
                journal=chunk.journal,
                offset=offset,
                is_mariadb=is_mariadb,
                known=None if version is None else version.schema,
            )
            schemas[int(event["table_id"])] = schema
            yield schema
        elif event["event_type"] in _DELETES:
            yield Deleted(chunk, row, schemas[int(event["table_id"])])
