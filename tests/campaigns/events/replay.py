"""What a server has written since its last flush, through the transaction pass; and the decision
for each statement."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from cdc_pipeline.binlog.chunk import Chunk, Role
from cdc_pipeline.binlog.events.query import Query, parse_query
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.errors import CdcError
from cdc_pipeline.schema.ddl.ddl import parse_statement
from cdc_pipeline.schema.evolution.changes import decide
from cdc_pipeline.schema.evolution.statement_context import Decision, StatementContext
from tests.servers import Server
from tests.support.decoded_journals import read_chunk


def closed_journal(server: Server) -> Chunk:
    server.flush_journal()
    chunk = read_chunk(server.journals()[-2])
    grouping = TransactionPass()
    grouping.apply(chunk)
    assert not grouping.is_open
    return chunk


def statements(chunk: Chunk) -> list[tuple[int, Query]]:
    """(row, statement) of everything that the pipeline classifies by its text."""
    rows = np.flatnonzero(chunk.events["role"] == Role.STATEMENT).tolist()
    return [(row, parse_query(chunk, row)) for row in rows]


def decisions(
    chunk: Chunk,
    captured: Callable[[str, str], bool],
    reachable: Collection[tuple[str, str]] = (),
) -> list[tuple[Query, Decision | CdcError]]:
    """Each statement, and what the pipeline decides of it for tables that have no target yet, and
    those that are `reachable` by their rows."""
    found: list[tuple[Query, Decision | CdcError]] = []
    for row, said in statements(chunk):
        try:
            decision: Decision | CdcError = decide(
                StatementContext(
                    parse_statement(
                        said.sql, said.database, is_mariadb=chunk.journal_format.is_mariadb
                    ),
                    captured=captured,
                    known=lambda _database, _table: None,
                    journal=chunk.journal,
                    offset=int(chunk.events["offset"][row]),
                    databases=said.databases,
                    reachable=lambda: reachable,
                )
            )
        except CdcError as error:
            decision = error
        found.append((said, decision))
    return found
