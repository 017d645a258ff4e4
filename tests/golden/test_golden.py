"""Golden journals: what servers once wrote decodes to what those servers once said, without any
server.

Each journal lies beside the SQL that made it and the server's own SELECT at its end;
``make record NAME=golden`` makes all of them again. The changes of a journal, applied in order to
empty tables, must give the SELECT's rows.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cdc_pipeline.binlog.event_types import PACKED_TYPES, ROWS_TYPES, EventType
from cdc_pipeline.binlog.transactions.grouping import TransactionPass
from cdc_pipeline.operations.inspect.annotations import StatementReader
from cdc_pipeline.source.archive.files import read_journal
from tests.support.shown_journals import changes
from tools.record_golden import GOLDEN, statements_of

JOURNALS = sorted(GOLDEN.glob("*.000001"))
KEYS = {
    "typed": ["id"],
    "pair": ["a", "b"],
    "isam": ["n"],
    "docs": ["id"],
    "packed": ["id"],
    "plain": None,
}
# Columns that DDL adds: what rows from before it hold.
ADDED = {
    "pair": {"d": "2020-01-01 00:00:00.500", "e": 9},
    "plain": {"more": "a default that is not short at all"},
}
# its rows are undone by ROLLBACK TO, which a reader of single changes does not know
UNDONE = "undone"
INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"}


def _expected(journal: Path) -> dict[str, Any]:
    return json.loads(journal.with_suffix(".expected.json").read_text(encoding="utf-8"))


def _typed(kind: str, text: str | None) -> Any:
    """The value that a line of JSON holds where the server prints `text`."""
    if text is None:
        return None
    if kind in INTEGERS:
        return int(text)
    if kind in ("float", "double"):
        return float(text)
    return json.loads(text) if kind == "json" else text


def _replayed(
    lines: list[dict[str, Any]], columns: dict[str, dict[str, str]]
) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in columns}
    for number, line in enumerate(lines):
        table = line["table"]
        if table not in tables or table == UNDONE:
            continue
        key, rows = KEYS[table], tables[table]
        old = {}
        if line["before"] is not None:
            assert key is not None
            old = rows.pop(tuple(line["before"][name] for name in key))
        if line["after"] is not None:
            new = old | line["after"]
            rows[number if key is None else tuple(new[name] for name in key)] = new
    for table, rows in tables.items():
        for row in rows.values():
            for name, value in ADDED.get(table, {}).items():
                if name in columns[table]:
                    row.setdefault(name, value)
            for name, kind in columns[table].items():
                if kind == "json" and row[name] is not None:
                    row[name] = json.loads(row[name])
    return {table: list(rows.values()) for table, rows in tables.items()}


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_golden_journals_decode_to_the_servers_rows(journal: Path) -> None:
    lines = [json.loads(line) for line in changes([journal])]
    expected = _expected(journal)["tables"]
    replayed = _replayed(lines, {table: said["columns"] for table, said in expected.items()})
    for table, said in expected.items():
        rows = [
            {
                name: _typed(kind, text)
                for (name, kind), text in zip(said["columns"].items(), row, strict=True)
            }
            for row in said["rows"]
        ]
        as_text = [json.dumps(row, sort_keys=True) for row in rows]
        assert sorted(json.dumps(row, sort_keys=True) for row in replayed[table]) == sorted(
            as_text
        ), table
    if any(line["table"] == UNDONE for line in lines):
        assert expected[UNDONE]["rows"] == []


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_golden_journals_hold_their_events(journal: Path) -> None:
    """Framed are the events that stand in the file, the compressed ones as what they are rewritten
    to."""
    expected: Counter[int] = Counter()
    for event_type, count in _expected(journal)["event_types"].items():
        expected[PACKED_TYPES.get(int(event_type), int(event_type))] += count  # type: ignore[call-overload]
    found: Counter[int] = Counter()
    for chunk in read_journal(journal):
        found.update(chunk.events["event_type"][chunk.events["parent"] < 0].tolist())
    assert found == expected


def test_golden_journals_cover_the_common_traps() -> None:
    seen = {int(number) for journal in JOURNALS for number in _expected(journal)["event_types"]}
    assert {
        EventType.GTID_TAGGED, EventType.TRANSACTION_PAYLOAD, EventType.XA_PREPARE,
        EventType.ROWS_QUERY,
        EventType.PARTIAL_UPDATE_ROWS, EventType.PREVIOUS_GTIDS, EventType.MARIADB_ANNOTATE_ROWS,
        EventType.MARIADB_QUERY_COMPRESSED, EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1,
        EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1, EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1,
        EventType.MARIADB_GTID_LIST, EventType.MARIADB_BINLOG_CHECKPOINT,
    } <= seen  # fmt: skip
    assert all(journal.stat().st_size < 64 << 10 for journal in JOURNALS)


@pytest.mark.parametrize("name", ["mysql-common", "mariadb-common"])
def test_golden_statements_are_those_of_the_sql(name: str) -> None:
    """Every statement that is named as the source of rows stands in the SQL file."""
    _, sql = statements_of(GOLDEN / f"{name}.sql")
    reader, grouping, named = StatementReader(), TransactionPass(), set()
    for chunk in read_journal(GOLDEN / f"{name}.000001"):
        grouping.apply(chunk)
        rows = np.flatnonzero(np.isin(chunk.events["event_type"], list(ROWS_TYPES)))
        named.update(reader.read(chunk).take(rows).to_pylist())
    assert named - {None} <= set(sql)
    assert len(named) > 10
