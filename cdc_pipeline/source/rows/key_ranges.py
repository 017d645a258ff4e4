"""Split a table's whole key into ranges of a bounded number of rows, found and compared by the
server.

Rules:
- A bound is a value of every column of the key, as SQL literals that compare exactly as the column
  does: text as hex with the column's own charset and collation, numbers in full, moments in the
  session's zone (+00:00), ENUM, SET and BIT by number. So the order of keys is never computed here:
  ours would differ from the server's, and rows would be lost.
- Ranges are half open, (after, upto]: each row of the table is in exactly one of a plan's ranges,
  whatever is inserted or deleted between two of them. The number of rows per range is only a
  target.
- The walk is lazy and keeps only the last bound: a snapshot can resume from any bound that it
  recorded.
- The key is the table's own, as the catalog says (`source/live/catalog.py`): no column is nullable.

Source: MySQL manual "Character Set Introducers", "Date and Time Literals", "Range Optimization";
MariaDB the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import SchemaError, StatementError
from cdc_pipeline.source.live.answers import loose_text
from cdc_pipeline.source.live.server_errors import table_error
from cdc_pipeline.source.rows.table_reader import ALL_ROWS, KeyRange, TableReader
from cdc_pipeline.text.table_names import quoted

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_REAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEX: Final = re.compile(r"([0-9A-F]{2})*")
_MOMENT: Final = re.compile(r"[-0-9:. ]+")
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.-]+")
_NAME: Final = re.compile(r"\w+")

# The prefixes of literals of moments, by `TypeSpec.key`.
_MOMENTS: Final = {"date": "DATE", "datetime": "TIMESTAMP", "time": "TIME"}


def plan_ranges(
    reader: TableReader,
    schema: TableSchema,
    rows_per_range: int,
    *,
    after: tuple[str, ...] | None = None,
    where: str = "",
) -> Iterator[KeyRange]:
    """Yield the ranges of about `rows_per_range` rows each that cover all keys above `after`
    (the `upto` of the last range that is done), in key order; the last one is open. A table
    without a key is one range.

    Each range is found when it is needed, by one statement on `reader`'s session, in its view if
    there is one; no result may be open there at that time.

    Args:
        where: the user's own condition (see `TableReader.select`): only rows that satisfy it are
            counted.

    Raises:
        SchemaError: the server does not report the collation of a column of the key, or compares
            a bound otherwise than the column.
        TableChangedError, MissingGrantError, ConfigError (of `where`), TableReadInterruptedError,
            ServerUnreachableError, TableReadError: as the server answered.
    """
    if rows_per_range < 1:
        raise ValueError("a range has at least one row")
    names = schema.key_names
    if not names:
        yield ALL_ROWS
        return
    literals = _Literals(reader, schema, names)
    order = ", ".join(quoted(name) for name in names)
    table = f"{quoted(schema.database)}.{quoted(schema.table)}"
    while True:
        conditions = [KeyRange(after, None).condition(names)] if after is not None else []
        conditions += [f"({where}\n)"] if where else []
        sql = f"SELECT {', '.join(literals.expressions)} FROM {table}"  # noqa: S608  (quoted names, own literals)
        sql += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sql += f" ORDER BY {order} LIMIT 1 OFFSET {rows_per_range - 1:d}"
        try:
            if where:
                reader.query(f"USE {quoted(schema.database)}")  # names in the condition are its
            rows = reader.query(sql)[1]
        except StatementError as error:
            raise table_error(
                error.number,
                error.text,
                address=reader.address,
                table=schema.full_name,
                where=where,
            ) from None
        upto = literals.of_row(rows[0]) if rows else None
        if upto is not None and upto == after:  # it would be found for ever
            raise SchemaError(
                "the keys cannot be read in ranges: after a bound the server finds the "
                "same bound again",
                table=schema.full_name,
                expected=f"a key after ({', '.join(upto)})",
                got="that key: it does not compare with itself as a literal",
                next_step="read the table by another unique key, or in one range",
            )
        yield KeyRange(after, upto, names)
        if upto is None:
            return
        after = upto


def key_layout(reader: TableReader, schema: TableSchema) -> str:
    """What decides how bounds of the primary key are written and compared, as a hash: bounds of
    another one are none of this table. "" without a key.
    """
    columns = [schema.columns[index] for index in schema.primary_key]
    if not columns:
        return ""
    has_text = any(column.type.key == "text" for column in columns)
    collations = _collations(reader, schema) if has_text else {}
    named = [(repr(column), collations.get(column.name.lower(), "")) for column in columns]
    return hashlib.sha256(repr(named).encode()).hexdigest()


class _Literals:
    """The expressions that select the values of one key, and the literals made of them."""

    def __init__(self, reader: TableReader, schema: TableSchema, key: tuple[str, ...]) -> None:
        by_name = {column.name: column for column in schema.columns}
        missing = [name for name in key if name not in by_name or not by_name[name].type.key]
        if missing:
            raise SchemaError(
                f"column {missing[0]!r} cannot be part of a key",
                table=schema.full_name,
                expected="columns of the primary key or of a unique key",
                got=", ".join(key),
                next_step="name the columns of a unique key that has no NULL",
            )
        self._columns = [by_name[name] for name in key]
        self._collations = (
            _collations(reader, schema) if any(c.type.key == "text" for c in self._columns) else {}
        )
        self._table = schema.full_name
        self.expressions = [_expression(column) for column in self._columns]

    def of_row(self, row: Sequence[Any]) -> tuple[str, ...]:
        if len(row) != len(self._columns):
            raise self._unusable(self._columns[0], f"{len(row)} values for the whole key")
        return tuple(
            self._literal(column, value) for column, value in zip(self._columns, row, strict=True)
        )

    def _literal(self, column: Column, value: Any) -> str:
        form = column.type.key
        if value is None:
            raise self._unusable(column, "NULL")
        text = loose_text(value)
        if form == "real":
            return real(float(self._checked(column, _REAL, text)))
        if form in ("number", "bits", "labels"):
            return self._checked(column, _NUMBER, text)
        if form in _MOMENTS:
            return f"{_MOMENTS[form]}'{self._checked(column, _MOMENT, text)}'"
        if form == "address":
            return f"CAST('{self._checked(column, _ADDRESS, text)}' AS {column.kind.name})"
        code = f"x'{self._checked(column, _HEX, text)}'"
        if form == "bytes":
            return code
        collation = self._collations.get(column.name.lower(), "")
        if not _NAME.fullmatch(collation):
            raise self._unusable(column, f"collation {collation!r}")
        if collation == "binary":
            return code
        return f"_{collation.split('_', 1)[0]} {code} COLLATE {collation}"

    def _checked(self, column: Column, form: re.Pattern[str], text: str) -> str:
        """`text`, which goes into SQL unquoted; raises if it has not the form of its kind."""
        if not form.fullmatch(text):
            raise self._unusable(column, f"a text of {len(text)} characters in another format")
        return text

    def _unusable(self, column: Column, got: str) -> SchemaError:
        return SchemaError(
            f"a value of the key's column {column.name!r} cannot bound a range",
            table=self._table,
            expected=f"a value of {column.kind.value}",
            got=got,
            next_step="read the table by another unique key, or in one range",
        )


def real(value: float) -> str:
    """As a literal of a DOUBLE: without an exponent it would be a DECIMAL."""
    digits = repr(value)
    return digits if "e" in digits else f"{digits}e0"


def _expression(column: Column) -> str:
    """What to select for a literal of the column's value."""
    name, form = quoted(column.name), column.type.key
    if form in ("bits", "labels"):
        return f"CAST({name} AS UNSIGNED)"
    if form == "real":
        return f"{name} + 0e0"  # FLOAT alone is printed with six digits
    if form in ("text", "bytes"):
        return f"HEX({name})"
    return f"CAST({name} AS CHAR)"


def _collations(reader: TableReader, schema: TableSchema) -> dict[str, str]:
    rows = reader.rows(
        "SELECT COLUMN_NAME, COLLATION_NAME AS collation "
        "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (schema.database, schema.table),
    )
    return {
        row.text("column_name").lower(): row.text("collation")
        for row in rows
        if row["collation"] is not None
    }
