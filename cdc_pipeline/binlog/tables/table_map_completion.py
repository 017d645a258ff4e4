"""Complete a table map with row metadata MINIMAL or NO_LOG from a known schema.

Rules:
- The event wins: types, metadata words and null bits always, signs and charsets if it has them.
  With full metadata the known schema supplies only what no table map has (UUID, INET4, INET6,
  fractions of MariaDB's old temporal format), and only for a column of the same name.
- If a column count, type, size or sign contradicts the known schema, the table stops with both
  lists of columns: values under wrong names would be silently wrong.

Source: MySQL manual, binlog_row_metadata (MINIMAL: signs, charsets of character columns, geometry
types); MariaDB's NO_LOG has nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.column_types import number_bytes
from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.collations import BINARY_COLLATION, CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.server_columns import logged_columns
from cdc_pipeline.binlog.tables.table_map_metadata import TableMapMetadata
from cdc_pipeline.binlog.wire_types import OLD_TEMPORAL
from cdc_pipeline.errors import MetadataMissingError, SchemaError

START_AFTER: Final = (
    "SET GLOBAL binlog_row_metadata = 'FULL' and start after the events written before it"
)

_COLLATION_OF: Final = {
    charset: number for number, charset in sorted(CHARSET_BY_COLLATION.items(), reverse=True)
}
_LABEL_COLLATION: Final = _COLLATION_OF["utf8mb4"]


@dataclass(frozen=True, slots=True)
class Listed:
    """Indexes of the columns in each list of the optional metadata, in order."""

    numeric: tuple[int, ...]
    text: tuple[int, ...]
    enums: tuple[int, ...]
    sets: tuple[int, ...]


def completed(
    metadata: TableMapMetadata, listed: Listed, *, count: int, known: TableSchema
) -> TableMapMetadata:
    """The metadata of an event without names as if the server had written all of it. Raises
    SchemaError: the number of columns differs from the known schema's; MetadataMissingError: the
    charset of a text column is unknown.
    """
    columns = logged_columns(known, count)
    if columns is None:
        raise contradiction(
            known,
            f"{count} columns",
            f"{len(known.logged.columns)} columns are known, the table map has {count}",
        )
    charsets = metadata.charsets
    if charsets is None:
        charsets = [_collation(columns[index]) for index in listed.text]
    unsigned = metadata.unsigned
    if unsigned is None:
        unsigned = [columns[index].unsigned for index in listed.numeric]
    return TableMapMetadata(
        unsigned=unsigned,
        charsets=charsets,
        label_charsets=[_LABEL_COLLATION] * (len(listed.enums) + len(listed.sets)),
        names=[column.name.encode() for column in columns],
        set_labels=[[label.encode() for label in columns[index].labels] for index in listed.sets],
        enum_labels=[[label.encode() for label in columns[index].labels] for index in listed.enums],
        primary_key=list(known.primary_key),
        visible=[column.visible for column in columns],
        vector_dimensions=metadata.vector_dimensions,
    )


def finished(schema: TableSchema, *, known: TableSchema, is_full: bool) -> TableSchema:
    """The schema of a table map, completed from the known one. `is_full`: whether the event has
    names itself; then it is right if both differ. Raises SchemaError: (not `is_full`) a column
    has another type than the known one.
    """
    if is_full and schema.column_names != known.column_names:
        return schema
    if not is_full:
        for column, known_column in zip(schema.logged.columns, known.logged.columns, strict=False):
            difference = _difference(column, known_column)
            if difference:
                raise contradiction(known, _listing(schema.logged.columns), difference)
    own, hidden = (
        tuple(
            _finished(column, known_column, is_full=is_full)
            for column, known_column in zip(columns, known_columns, strict=False)
        )
        for columns, known_columns in (
            (schema.columns, known.columns),
            # of a map with names, `server_columns.split` has described them
            (schema.hidden, schema.hidden if is_full else known.hidden),
        )
    )
    return replace(schema, columns=own, hidden=hidden)


def contradiction(known: TableSchema, got: str, difference: str) -> SchemaError:
    """The error for a table map that contradicts the known columns."""
    return SchemaError(
        f"the table map contradicts the schema history: {difference}",
        table=known.full_name,
        expected=_listing(known.columns),
        got=got,
        next_step="a change of this table is not in the log (sql_log_bin = 0, or a start in "
        "the middle of its history): SET GLOBAL binlog_row_metadata = 'FULL' and "
        "take a new snapshot of the table, or add it to tables.exclude",
    )


def _collation(column: Column) -> int:
    if column.kind is not Kind.TEXT:
        return BINARY_COLLATION
    collation = _COLLATION_OF.get(column.charset)
    if collation is None:
        raise MetadataMissingError(
            "neither the table map nor the schema history has the charset of column "
            f"{column.name!r}",
            setting="binlog_row_metadata",
            expected="MINIMAL or FULL, or a charset in the table's definition",
            got=f"charset {column.charset!r}",
            next_step=START_AFTER,
        )
    return collation


def _difference(column: Column, known_column: Column) -> str:
    """How the wire's column contradicts the known one; "" if it does not."""
    name = known_column.name
    if known_column.type.fixed_bytes:
        if column.kind is not Kind.BINARY or column.pad_bytes != known_column.type.fixed_bytes:
            return (
                f"`{name}` is known as {known_column.kind}, the table map has {_described(column)}"
            )
        return ""
    if column.kind is not known_column.kind:
        return f"`{name}` is known as {known_column.kind}, the table map has {column.kind}"
    same = (column.precision, column.scale, column.bits) == (
        known_column.precision,
        known_column.scale,
        known_column.bits,
    )
    is_old = column.wire_type in OLD_TEMPORAL  # the wire lacks its digits
    same &= (
        is_old
        or not column.type.has_fraction
        or column.fraction_digits == known_column.fraction_digits
    )
    same &= column.unsigned == known_column.unsigned or not column.type.has_sign
    if column.kind is Kind.BINARY:
        same &= column.pad_bytes == known_column.pad_bytes
    elif column.kind is Kind.TEXT and column.char_length_max and known_column.char_length_max:
        same &= column.char_length_max == known_column.char_length_max
    elif column.type.has_labels:
        same &= column.wire_meta == number_bytes(known_column)
    return (
        ""
        if same
        else (
            f"`{name}` is known as {_described(known_column)}, the table map has "
            f"{_described(column)}"
        )
    )


def _finished(column: Column, known_column: Column, *, is_full: bool) -> Column:
    if column.kind is Kind.BINARY and 0 < column.pad_bytes == known_column.type.fixed_bytes:
        return replace(column, kind=known_column.kind)
    if column.wire_type in OLD_TEMPORAL and column.kind is known_column.kind:
        return replace(column, fraction_digits=known_column.fraction_digits)
    if column.type.has_labels and not is_full:
        return replace(column, charset=known_column.charset or column.charset)
    return column


def _listing(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {_described(column)}" for column in columns)


def _described(column: Column) -> str:
    text = str(column.kind)
    if column.kind is Kind.DECIMAL:
        text += f"({column.precision},{column.scale})"
    elif column.type.has_labels:
        text += f" of {len(column.labels)}"
    else:
        size = column.bits or column.fraction_digits or column.pad_bytes or column.char_length_max
        text += f"({size})" if size else ""
    return text + (" unsigned" if column.unsigned and column.type.has_sign else "")
