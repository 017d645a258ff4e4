"""Write the SQL that would take a transaction's changes of one table back at the source. Nothing
here runs it.

Rules:
- The changes are taken back in reverse order and in one transaction. Each statement finds its row
  by all values that the change left there, byte by byte. One that finds none ends the script with
  an error before its COMMIT.
- No value depends on the session of the person who runs it: the script sets charset, time zone and
  sql_mode, and whatever is not printable text is hex. Generated columns are the server's own.
- What the log does not hold whole is refused: any hole of the story, partial row images, values
  that are no values of their column, statements such as TRUNCATE. So is a table with a column or
  rows that no target shows.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cdc_pipeline.binlog.table_schema import Column, TableSchema
from cdc_pipeline.errors import SchemaError
from cdc_pipeline.source.rows.key_ranges import real
from cdc_pipeline.text.table_names import quoted

_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_STRICT: Final = f"STRICT_ALL_TABLES,{_MODE}"
# An error if the statement before it changed no row. MariaDB forgives a DO its errors.
_CHECK: Final = "SELECT IF(ROW_COUNT() = 1, 0, (SELECT 1 UNION SELECT 2))"
_NUMBERS: Final = frozenset({"number", "bits"})

Image = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    """As a line of `binlog.rows.text_jsonl` has it; no image of an insert before, of a delete
    after. `generated`: columns that the server computes; `hidden`: that no target shows.
    """

    schema: TableSchema
    before: Image | None
    after: Image | None
    generated: Collection[str] = ()
    hidden: Collection[str] = ()


def undo_sql(changes: Sequence[RowChange], *, transaction: str) -> Iterator[str]:
    """Lines of the script, from changes in their order in the log. SchemaError: see the rules."""
    for change in changes:
        _check(change, transaction)
    name = " ".join(changes[0].schema.full_name.split())
    is_strict = not any(map(_has_no_label, changes))
    yield f"-- Takes back what {transaction} changed in {name}. It was written, and not run."
    yield "-- It fails, and changes nothing, if a row is no longer as that transaction left it: run"
    yield "-- it in a session that ends at the first error. Triggers and foreign keys act as ever."
    yield "SET NAMES utf8mb4;"
    yield f"SET SESSION sql_mode = '{_STRICT if is_strict else _MODE}', time_zone = '+00:00';"
    yield "START TRANSACTION;"
    for change in reversed(changes):
        if change.before != change.after:
            yield f"{_statement(change)};"
            yield f"{_CHECK};"
    yield "COMMIT;"


def _statement(change: RowChange) -> str:
    schema, before, after = change.schema, change.before, change.after
    table = f"{quoted(schema.database)}.{quoted(schema.table)}"
    own = [column for column in schema.columns if column.name not in change.generated]
    values = {} if before is None else {c.name: literal(c, before[c.name]) for c in own}
    if after is None:
        names = ", ".join(map(quoted, values))
        return f"INSERT INTO {table} ({names}) VALUES ({', '.join(values.values())})"  # noqa: S608
    is_there = " AND ".join(
        _condition(column, after[column.name], is_key=column.name in schema.key_names)
        for column in own
    )
    if before is None:
        return f"DELETE FROM {table} WHERE {is_there} LIMIT 1"  # noqa: S608
    # All of them: a column ON UPDATE CURRENT_TIMESTAMP that is not set changes too.
    settings = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
    return f"UPDATE {table} SET {settings} WHERE {is_there} LIMIT 1"  # noqa: S608


def literal(column: Column, value: Any) -> str:
    """Of a value as `Image` has it, or as a text with bytes in hex, where NAMES is utf8mb4 and no
    sql_mode changes what a quoted text is.
    """
    form = column.type.decoder
    if value is None:
        return "NULL"
    if column.type.key in _NUMBERS:
        return str(value)
    if form == "real":
        # A FLOAT is compared as the DOUBLE that it is.
        is_float = column.type.delta(column) == "float"
        return real(struct.unpack("f", struct.pack("f", value))[0] if is_float else float(value))
    if form == "geometry" or column.type.delta(column) == "binary":
        return f"x'{value}'"
    if form == "vector":
        return f"x'{struct.pack(f'<{len(value)}f', *value).hex()}'"
    text = str(value)
    if text.isprintable() and "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    return f"_utf8mb4 x'{text.encode().hex()}'"


def _condition(column: Column, value: Any, *, is_key: bool) -> str:
    """That a column has exactly this value, which its collation alone would not say."""
    name, sql, form = quoted(column.name), literal(column, value), column.type.decoder
    if value is None:
        return f"{name} IS NULL"
    if form == "year":  # where 0 to 99 would mean years of two digits
        return f"{name} + 0 = {sql}"
    if form in ("geometry", "vector"):
        return f"HEX({name}) = '{sql[2:-1].upper()}'"
    if column.type.key == "address":
        return f"CAST({name} AS CHAR) = {sql}"
    if form == "json" or (column.type.has_charset and column.charset != "binary"):
        exact = f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) = CAST({sql} AS BINARY)"
        return f"{name} = {sql} AND {exact}" if is_key else exact
    return f"{name} = {sql}"


def _has_no_label(change: RowChange) -> bool:
    """Whether an ENUM gets back the value of no label (number 0), which strict mode refuses."""
    return change.before is not None and any(
        column.type.decoder == "enum" and not change.before[column.name] and "" not in column.labels
        for column in change.schema.columns
        if change.before[column.name] is not None
    )


def _check(change: RowChange, transaction: str) -> None:
    columns = change.schema.columns
    if unseen := [c.name for c in columns if c.masked or c.name in change.hidden]:
        raise SchemaError(
            f"{transaction} cannot be taken back: it may hold values that no target shows",
            table=change.schema.full_name,
            expected="a table without masks and excluded columns",
            got=", ".join(unseen),
            next_step="write the statements by hand, at the source",
        )
    for image in (change.before, change.after):
        if image is None:
            continue
        for column in columns:
            if isinstance(image.get(column.name, {}), dict):
                raise SchemaError(
                    f"{transaction} cannot be taken back: the log does not hold all of "
                    f"column {column.name!r}",
                    table=change.schema.full_name,
                    expected="whole images of the row before and after (binlog_row_image = FULL)",
                    got="no image of it" if column.name not in image else "bytes or differences",
                    next_step="write the statements by hand, from what the story shows",
                )
