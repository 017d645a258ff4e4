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
import pyarrow as pa

from cdc_pipeline.binlog.event_types import EventType
from cdc_pipeline.binlog.events import query
from cdc_pipeline.binlog.events.xa import parse_prepare
from cdc_pipeline.binlog.rows.text_jsonl import iso_time, jsonl_blocks
from cdc_pipeline.operations.inspect.annotations import lengths_bytes
from cdc_pipeline.operations.inspect.change_log import Changes, LogPiece
from cdc_pipeline.operations.inspect.inputs import shown_name
from cdc_pipeline.operations.inspect.selection import Selection
from cdc_pipeline.schema.ddl.statement import Statement, StatementKind

REPEATED_BYTES_MAX: Final = 64 << 20


def lines_of(piece: LogPiece, changes: Changes, selection: Selection) -> Iterator[bytes]:
    if len(piece.events) > 1 and _repeated_bytes(piece, changes) > REPEATED_BYTES_MAX:
        changes.clear()
        middle = len(piece.events) // 2
        for first, stop in ((0, middle), (middle, len(piece.events))):
            for part, its in piece.between(first, stop).decoded():
                yield from lines_of(part, its, selection)
        return
    journal = shown_name(piece.chunk.journal)
    lines, statement_rows = [], []
    for row in piece.statements.tolist():
        line = _statement_line(piece, row, selection, journal)
        if line is not None:
            lines.append(line)
            statement_rows.append(row)
    event_rows = [np.array(statement_rows, np.int64)]
    is_single = len(changes) == 1 and not lines
    for table_rows, rows in changes:
        texts = None
        if piece.annotations is not None:
            of_rows = piece.annotations.indices.take(pa.array(table_rows - piece.first))
            texts = piece.annotations.dictionary.take(of_rows).to_pylist()
        for block in jsonl_blocks(
            rows,
            journal=journal,
            offsets=piece.chunk.events["offset"][table_rows],
            gtids=[*map(piece.gtids_of(table_rows).text, range(len(table_rows)))],
            statements=texts,
        ):
            if is_single:
                yield "".join(block).encode()
            else:
                lines += block
        event_rows.append(table_rows[rows.event_row])
    if not is_single:
        order = np.argsort(np.concatenate(event_rows), kind="stable")
        yield "".join([lines[index] for index in order.tolist()]).encode()


def _repeated_bytes(piece: LogPiece, changes: Changes) -> int:
    if piece.annotations is None:
        return 0
    lengths = lengths_bytes(piece.annotations)
    return sum(int(lengths[at - piece.first][rows.event_row].sum()) for at, rows in changes)


def _statement_line(piece: LogPiece, row: int, selection: Selection, journal: str) -> str | None:
    """The statement at `row` of the piece's chunk as a line; None if it is not wanted."""
    chunk, event = piece.chunk, piece.chunk.events[row]
    raw: bytes | None = None
    if int(event["event_type"]) == EventType.XA_PREPARE:
        sql, database = f"XA PREPARE {parse_prepare(chunk, row).xid}", ""
        statement = Statement(StatementKind.XA_PREPARE)
    else:
        logged = query.parse_query(chunk, row)
        sql, database = logged.sql, logged.database
        raw = None if logged.is_exact else logged.raw
        statement = selection.parse(logged, is_mariadb=chunk.journal_format.is_mariadb)
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
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
