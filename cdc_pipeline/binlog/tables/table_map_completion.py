"""What a table map leaves out under row metadata MINIMAL or NO_LOG, completed from a known schema.

Rules:
- What the event carries wins: types, metadata words and null bits always, signs and charsets where they are there. With
  full metadata only what no table map tells is taken from the known schema (UUID, INET4, INET6, fractions of MariaDB's
  old temporal format), and only for a column of the same name.
- A column count, type, size or sign that contradicts the known schema stops the table, with both lists of columns:
  values under wrong names would be wrong in silence.

Source: MySQL manual, binlog_row_metadata (MINIMAL: signs, charsets of character columns, geometry types); MariaDB's
NO_LOG carries nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc_pipeline.binlog.table_schema import Column, Kind, TableSchema
from cdc_pipeline.binlog.tables.collations import BINARY_COLLATION, CHARSET_BY_COLLATION
from cdc_pipeline.binlog.tables.table_map_metadata import TableMapMetadata
from cdc_pipeline.binlog.wire_types import OLD_TEMPORAL
from cdc_pipeline.errors import MetadataMissingError, SchemaError

START_AFTER: Final = "SET GLOBAL binlog_row_metadata = 'FULL' and start after the events written before it"

_COLLATION_OF: Final = {charset: number for number, charset in sorted(CHARSET_BY_COLLATION.items(), reverse=True)}
_LABEL_COLLATION: Final = _COLLATION_OF["utf8mb4"]


@dataclass(frozen=True, slots=True)
class Listed:
    """Indexes of the columns that each list of the optional metadata is about, in order."""

    numeric: tuple[int, ...]
    text: tuple[int, ...]
    enums: tuple[int, ...]
    sets: tuple[int, ...]


def completed(metadata: TableMapMetadata, listed: Listed, *, count: int, known: TableSchema) -> TableMapMetadata:
    """The metadata of an event without names, as if the server had written all of it.

    Raises:
        SchemaError: another number of columns than the known schema has.
        MetadataMissingError: the charset of a text column is told nowhere.
    """
    columns = known.columns
    if len(columns) != count:
        raise contradiction(known, f"{count} columns", f"{len(columns)} columns are known, the table map has {count}")
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


def finished(columns: Sequence[Column], *, known: TableSchema, is_full: bool) -> tuple[Column, ...]:
    """The columns of a table map with what only the known schema tells.

    Args:
        is_full: the event carried names itself: then it is right where both differ.

    Raises:
        SchemaError: (not `is_full`) a column is of another type than the known one.
    """
    if is_full and [column.name for column in columns] != list(known.column_names):
        return tuple(columns)
    pairs = list(zip(columns, known.columns, strict=True))
    if not is_full:
        for column, told in pairs:
            difference = _difference(column, told)
            if difference:
                raise contradiction(known, _listing(columns), difference)
    return tuple(_finished(column, told, is_full=is_full) for column, told in pairs)


def contradiction(known: TableSchema, got: str, difference: str) -> SchemaError:
    """The error of a table map that is not of the known columns."""
    return SchemaError(
        f"the table map contradicts the schema history: {difference}",
        table=known.full_name,
        expected=_listing(known.columns),
        got=got,
        next_step="a change of this table was not seen (sql_log_bin = 0, or a start inside its history): "
        "SET GLOBAL binlog_row_metadata = 'FULL' and load the table anew, or add it to tables.exclude",
    )


def _collation(column: Column) -> int:
    if column.kind is not Kind.TEXT:
        return BINARY_COLLATION
    collation = _COLLATION_OF.get(column.charset)
    if collation is None:
        raise MetadataMissingError(
            f"neither the table map nor the schema history tells the charset of column {column.name!r}",
            setting="binlog_row_metadata",
            expected="MINIMAL or FULL, or a charset in the table's definition",
            got=f"charset {column.charset!r}",
            next_step=START_AFTER,
        )
    return collation


def _difference(column: Column, told: Column) -> str:
    """What contradicts between the wire's column and the known one; "" for nothing."""
    name = told.name
    if told.type.fixed_bytes:
        if column.kind is not Kind.BINARY or column.pad_bytes != told.type.fixed_bytes:
            return f"`{name}` is known as {told.kind}, the table map has {_shown(column)}"
        return ""
    if column.kind is not told.kind:
        return f"`{name}` is known as {told.kind}, the table map has {column.kind}"
    same = (column.precision, column.scale, column.bits) == (told.precision, told.scale, told.bits)
    is_old = column.wire_type in OLD_TEMPORAL  # its digits are on no wire
    same &= is_old or not column.type.has_fraction or column.fraction_digits == told.fraction_digits
    same &= column.unsigned == told.unsigned or not column.type.has_sign
    if column.kind is Kind.BINARY:
        same &= column.pad_bytes == told.pad_bytes
    elif column.kind is Kind.TEXT and column.char_length_max and told.char_length_max:
        same &= column.char_length_max == told.char_length_max
    elif column.kind is Kind.ENUM:
        same &= column.wire_meta == (1 if len(told.labels) < 256 else 2)
    elif column.kind is Kind.SET:
        size = (len(told.labels) + 7) // 8
        same &= column.wire_meta == (size if size <= 4 else 8)
    return "" if same else f"`{name}` is known as {_shown(told)}, the table map has {_shown(column)}"


def _finished(column: Column, told: Column, *, is_full: bool) -> Column:
    if column.kind is Kind.BINARY and told.type.fixed_bytes and column.pad_bytes == told.type.fixed_bytes:
        return replace(column, kind=told.kind)
    if column.wire_type in OLD_TEMPORAL and column.kind is told.kind:
        return replace(column, fraction_digits=told.fraction_digits)
    if column.type.has_labels and not is_full:
        return replace(column, charset=told.charset or column.charset)
    return column


def _listing(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {_shown(column)}" for column in columns)


def _shown(column: Column) -> str:
    text = str(column.kind)
    if column.kind is Kind.DECIMAL:
        text += f"({column.precision},{column.scale})"
    elif column.type.has_labels:
        text += f" of {len(column.labels)}"
    else:
        size = column.bits or column.fraction_digits or column.pad_bytes or column.char_length_max
        text += f"({size})" if size else ""
    return text + (" unsigned" if column.unsigned and column.type.has_sign else "")
