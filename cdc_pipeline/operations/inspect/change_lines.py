"""Pieces of a log as JSON lines.

Rules:
- Lines come in the order of the log. `binlog.rows.text_jsonl` defines the form of a change. A
  statement (DDL, statement-format DML, SAVEPOINT, XA ..., the ROLLBACK of a transaction that
  changed tables without transactions) is an object of its own: schema (its default database), op
  "statement", kind, sql, journal, offset, gtid, ts. Text that could not be decoded without loss has
  "sql_hex" beside it.
- If the log is read with annotations, a change has its SQL text as `statement`. Lines repeat it:
  pieces whose lines would repeat more than `REPEATED_BYTES_MAX` are written in parts.
- The journal's name in a line is the file's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.events.xa import parse_prepare
from cdc_pipeline.binlog.rows.text_jsonl import iso_time, jsonl_blocks
from cdc_pipeline.errors import CdcError
from cdc_pipeline.operations.inspect.change_log import LogPiece, TableRows
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind

REPEATED_BYTES_MAX: Final = 64 << 20


def lines_of(piece: LogPiece, selection: Selection, *, journal: str) -> Iterator[bytes]:
    """As bytes with line ends. Raises as the decoder, after the lines of what comes before."""
    try:
        tables = list(piece.decoded())
    except CdcError as error:
        earlier = piece.before(error)
        if earlier is not None:
            yield from lines_of(earlier, selection, journal=journal)
        raise
    if len(piece.events) > 1 and _repeated_bytes(piece, tables) > REPEATED_BYTES_MAX:
        del tables
        middle = len(piece.events) // 2
        for first, stop in ((0, middle), (middle, len(piece.events))):
            yield from lines_of(piece.between(first, stop), selection, journal=journal)
        return
    lines, event_rows = _statements(piece, selection, journal)
    is_single = len(tables) == 1 and not lines
    for table, rows in tables:
        gtids = piece.gtids_of(table.rows)
        for block in jsonl_blocks(
            rows,
            journal=journal,
            offsets=piece.chunk.events["offset"][table.rows],
            gtids=list(map(gtids.text, range(len(table.rows)))),
            statements=_annotations(piece, table),
        ):
            if is_single:
                yield "".join(block).encode()
            else:
                lines += block
        event_rows.append(table.rows[rows.event_row])
    if not is_single:
        order = np.argsort(np.concatenate(event_rows), kind="stable")
        yield "".join([lines[index] for index in order.tolist()]).encode()


def _statements(
    piece: LogPiece, selection: Selection, journal: str
) -> tuple[list[str], list[NDArray[np.int64]]]:
    texts, rows = [], []
    for row in piece.statements.tolist():
        text = _statement_line(piece, row, selection, journal)
        if text is not None:
            texts.append(f"{text}\n")
            rows.append(row)
    return texts, [np.array(rows, np.int64)]


def _annotations(piece: LogPiece, table: TableRows) -> list[str | None] | None:
    return None if piece.annotations is None else piece.annotations.for_rows(table.rows).to_pylist()


def _repeated_bytes(piece: LogPiece, tables: list[tuple[TableRows, DecodedRows]]) -> int:
    if piece.annotations is None:
        return 0
    return sum(
        int(piece.annotations.lengths_bytes(table.rows)[rows.event_row].sum())
        for table, rows in tables
    )


def _statement_line(piece: LogPiece, row: int, selection: Selection, journal: str) -> str | None:
    """The statement at `row` of the piece's chunk as JSON; None if it is not wanted."""
    chunk, event = piece.chunk, piece.chunk.events[row]
    raw: bytes | None = None
    if int(event["event_type"]) == EventType.XA_PREPARE:
        sql, database = f"XA PREPARE {parse_prepare(chunk, row).xid}", ""
        statement = Statement(StatementKind.XA_PREPARE)
    else:
        found = query.parse_query(chunk, row)
        sql, database = found.sql, found.database
        raw = None if found.is_exact else found.raw
        statement = selection.parse(found, is_mariadb=chunk.journal_format.is_mariadb)
    if not selection.wants_statement(statement):
        return None
    commit_ts_us = int(event["commit_ts_us"])
    line: dict[str, object] = {
        "schema": database or None,
        "op": "statement",
        "kind": str(statement.kind),
        "sql": sql,
        "journal": journal,
        "offset": int(event["offset"]),
        "gtid": piece.gtids_of(np.array([row])).text(0),
        "ts": None if commit_ts_us < 0 else iso_time(commit_ts_us),
    }
    if raw is not None:
        line["sql_hex"] = raw.hex()
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
