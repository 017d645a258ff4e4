"""Many cases in few tables and one journal: what the server's SELECT prints, and what we print of
its journal.

A case is a column. Cases are put side by side into tables of a few columns: a CREATE TABLE costs
more than a column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cdc_pipeline.binlog.column_types import TYPES
from cdc_pipeline.binlog.decoded import DecodedRows
from cdc_pipeline.binlog.rows.rows import RowsSelection, decode_rows
from cdc_pipeline.binlog.rows.text_jsonl import json_texts
from tests.conftest import temporary_database
from tests.servers import Server
from tests.support.decoded_journals import read_chunk, select_tables

COLUMNS_A_TABLE = 24


@dataclass(frozen=True)
class Case:
    """One column. `declared`: its type and attributes; `values`: SQL expressions, one a row;
    `shown`: SELECT's expression of it; ``{c}`` is the column. `flavor`: "mysql" or "mariadb"
    where only one has it; `name`: of the test.
    """

    declared: str
    values: Sequence[str]
    shown: str = "CAST({c} AS CHAR)"
    flavor: str = ""
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.declared


@dataclass(frozen=True)
class Told:
    """A case as both ways tell it: texts by row, and the rows whose values no Arrow type holds."""

    expected: list[str | None]
    got: list[str | None]
    invalid: list[int]


class Journal:
    def __init__(
        self,
        server: Server,
        database: str,
        *,
        catalog: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`catalog`: parts of columns that only the catalog tells, by table and column."""
        self._catalog = catalog or {}
        server.flush_journal()
        self.server = server
        self.database = database
        self.path = server.journals()[-2]
        self._chunk = read_chunk(self.path)
        self._tables = {
            name: found
            for name, found in select_tables(self._chunk).items()
            if name.startswith(f"{database}.")
        }
        self._decoded: dict[str, DecodedRows] = {}

    def rows(self, table: str, *, kinds: dict[str, Any] | None = None) -> DecodedRows:
        """All changes of a table. kinds: parts of columns that only the catalog tells, by name."""
        if table not in self._decoded or kinds:
            schema, rows = self._tables[f"{self.database}.{table}"]
            told = kinds or self._catalog.get(table, {})
            columns = tuple(
                replace(column, **told.get(column.name, {})) for column in schema.columns
            )
            schema = replace(schema, columns=columns)
            decoded = decode_rows([RowsSelection(self._chunk, rows)], schema, epoch=0)
            for batch in (decoded.before, decoded.after):
                batch.validate(full=True)
            if kinds:
                return decoded
            self._decoded[table] = decoded
        return self._decoded[table]


def told_by_catalog(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """What no table map tells of the columns c0, c1 ...: which of them are of a type that it calls
    BINARY(n)."""
    fixed = {
        name.name: kind for kind, spec in TYPES.items() if spec.fixed_bytes for name in spec.ddl
    }  # fmt: skip
    return {
        f"c{index}": {"kind": fixed[case.declared]}
        for index, case in enumerate(cases)
        if case.declared in fixed
    }


def texts_of(rows: DecodedRows, column: int) -> tuple[list[str | None], list[int]]:
    """Our texts of a column's after images, and the rows that are in the list of invalid values."""
    got = [
        json.loads(text)
        for text in json_texts(rows.schema.columns[column], rows.after.column(column))
    ]
    invalid = []
    for value in rows.invalid:
        if value.column == column and value.image == "after":
            assert got[value.row] is None
            got[value.row] = value.text
            invalid.append(value.row)
    return [None if value is None else str(value) for value in got], invalid


def printed(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


class Evidence:
    def __init__(self, server: Server, database: str, cases: Sequence[Case]) -> None:
        chosen = [case for case in cases if case.flavor in ("", server.flavor)]
        self._places = {
            str(case): (f"t{index // COLUMNS_A_TABLE}", index % COLUMNS_A_TABLE)
            for index, case in enumerate(chosen)
        }
        assert len(self._places) == len(chosen), "two cases of one name"
        self._selected: dict[str, list[tuple[Any, ...]]] = {}
        catalog = {}
        self.rows_inserted: dict[str, int] = {}
        with (
            closing(server.root_connection(database=database)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
            cursor.execute("SET NAMES utf8mb4")
            for first in range(0, len(chosen), COLUMNS_A_TABLE):
                some = chosen[first : first + COLUMNS_A_TABLE]
                self._fill(cursor, some)
                catalog[self._places[str(some[0])][0]] = told_by_catalog(some)
        self.journal = Journal(server, database, catalog=catalog)

    def _fill(self, cursor: Any, cases: Sequence[Case]) -> None:
        table = self._places[str(cases[0])][0]
        columns = ", ".join(f"c{index} {case.declared}" for index, case in enumerate(cases))
        cursor.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4"
        )
        count = max(len(case.values) for case in cases)
        values = [[*case.values, *["NULL"] * (count - len(case.values))] for case in cases]
        rows = ", ".join(
            f"({number}, {', '.join(row)})" for number, row in enumerate(zip(*values, strict=True))
        )
        cursor.execute(f"INSERT INTO {table} VALUES {rows}")
        shown = ", ".join(case.shown.format(c=f"c{index}") for index, case in enumerate(cases))
        cursor.execute(f"SELECT {shown} FROM {table} ORDER BY id")
        self._selected[table] = cursor.fetchall()
        self.rows_inserted[table] = count
        cursor.execute(f"UPDATE {table} SET id = -1 - id")
        cursor.execute(f"DELETE FROM {table}")

    def tell(self, name: str) -> Told:
        table, index = self._places[name]
        expected = [row[index] for row in self._selected[table]]
        got, invalid = texts_of(self.journal.rows(table), index + 1)
        count = self.rows_inserted[table]
        return Told(
            [printed(value) for value in expected],
            got[:count],
            [row for row in invalid if row < count],
        )

    def values(self, name: str) -> list[Any]:
        table, index = self._places[name]
        found: list[Any] = self.journal.rows(table).after.column(index + 1).to_pylist()
        return found


@contextmanager
def evidence_of(server: Server, cases: Sequence[Case]) -> Iterator[Evidence]:
    with temporary_database(server) as database:
        yield Evidence(server, database, cases)
