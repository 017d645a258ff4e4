"""Write pieces of a log as JSON lines: changes in compiled code, statements one by one.

Rules:
- Lines come in the order of the log. `binlog.text_jsonl` defines the form of a change. A statement
  (DDL, statement-format DML, SAVEPOINT, XA ..., the ROLLBACK of a transaction that changed tables
  without transactions) is an object of its own: schema (its default database), op "statement",
  kind, sql, journal, offset, gtid, ts. Text that could not be decoded without loss has "sql_hex"
  beside it.
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
from cdc_pipeline.binlog.rows.text_jsonl import (
    EventTexts,
    LineBuffer,
    Lines,
    iso_time,
    jsonl_blocks,
)
from cdc_pipeline.errors import CdcError
from cdc_pipeline.pipeline.inspect.change_log import LogPiece, TableRows
from cdc_pipeline.pipeline.inspect.selection import Selection
from cdc_pipeline.schema.ddl.ddl import classify
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind
from cdc_pipeline.schema.ddl.tokens import SqlModes

REPEATED_BYTES_MAX: Final = 64 << 20

Decoded = tuple[TableRows, DecodedRows]


class LineWriter:
    """Writer of pieces of a log, with reused memory."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._buffer = LineBuffer()

    def lines_of(self, piece: LogPiece, *, journal: str) -> Iterator[NDArray[np.uint8]]:
        """Yield the piece's lines as bytes with line ends, valid until the next ones.

        Raises CdcError as the decoder, after the lines of everything before the event that it
        names.
        """
        try:
            tables = list(piece.decoded())
        except CdcError as error:
            earlier = piece.before(error)
            if earlier is not None:
                yield from self.lines_of(earlier, journal=journal)
            raise
        if len(piece.events) > 1 and _repeated_bytes(piece, tables) > REPEATED_BYTES_MAX:
            del tables
            middle = len(piece.events) // 2
            yield from self.lines_of(piece.between(0, middle), journal=journal)
            yield from self.lines_of(piece.between(middle, len(piece.events)), journal=journal)
            return
        yield from self._lines(piece, tables, journal)

    def _lines(
        self, piece: LogPiece, tables: list[Decoded], journal: str
    ) -> Iterator[NDArray[np.uint8]]:
        buffer, events = self._buffer, piece.chunk.events
        buffer.clear()
        parts: list[Lines] = []
        keys: list[NDArray[np.int64]] = []
        texts, rows_of_texts = self._statements(piece, journal)
        if texts:
            parts.append(buffer.append(texts))
            keys.append(np.array(rows_of_texts, np.int64))
        is_single = len(tables) == 1 and not texts
        for table, rows in tables:
            done = 0
            offsets, gtids = events["offset"][table.rows], piece.gtids_of(table.rows)
            statements = _annotations(piece, table)
            for block in jsonl_blocks(
                rows,
                journal=journal,
                offsets=offsets,
                gtids=gtids,
                buffer=buffer,
                statements=statements,
            ):
                if is_single:
                    yield buffer.bytes_of(block)
                    buffer.clear()
                    continue
                parts.append(block)
                keys.append(table.rows[rows.event_row[done : done + len(block.ends)]])
                done += len(block.ends)
        if parts:
            yield buffer.in_order(parts, keys)

    def _statements(self, piece: LogPiece, journal: str) -> tuple[list[bytes], list[int]]:
        texts, rows = [], []
        for row in piece.statements.tolist():
            text = _statement_line(piece, row, self._selection, journal)
            if text is not None:
                texts.append(text.encode() + b"\n")
                rows.append(row)
        return texts, rows


def _annotations(piece: LogPiece, table: TableRows) -> EventTexts | None:
    found = piece.annotations
    return (
        None if found is None else EventTexts(found.texts, found.of_event[table.rows - found.first])
    )


def _repeated_bytes(piece: LogPiece, tables: list[Decoded]) -> int:
    total = 0
    for table, rows in tables:
        statements = _annotations(piece, table)
        if statements is not None:
            total += int(statements.lengths_bytes()[rows.event_row].sum())
    return total


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
        statement = classify(
            sql,
            database,
            is_mariadb=chunk.journal_format.is_mariadb,
            modes=SqlModes(names=selection.names),
        )
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
